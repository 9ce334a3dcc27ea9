"""Train on triplets from inference data: a premise, a sentence that follows from it, and one that contradicts it.

python examples/train_triplets.py [--model MODEL] [--data FOLDER] [--rows N] [--output FOLDER]

FOLDER/nli contains snli_train_subset.tsv.gz and snli_dev.tsv.
"""

from shared import CLASSES, arguments, load, nli, read, triplets

from sbert import Trainer, TrainingConfig
from sbert.losses import TripletLoss


def right(model):
    """The share of held-out triplets whose positive is nearer than the negative."""
    anchor, positive, negative = (
        model.encode([row[name] for row in held_out], normalize_embeddings=True)
        for name in ("anchor", "positive", "negative")
    )
    return float(((anchor * positive).sum(1) > (anchor * negative).sum(1)).mean())


options = arguments(__doc__)
if options.data:
    files = ("nli/snli_train_subset.tsv.gz", "nli/snli_dev.tsv")
    parts = (read(options, file, ["premise", "hypothesis"], "label", classes=CLASSES) for file in files)
else:
    parts = (nli(200, seed=0), nli(100, seed=1, held_out=True))
train, held_out = map(triplets, parts)

model = load(options.model)
before = right(model)
config = TrainingConfig(
    output=options.output,
    epochs=1,
    learning_rate=2e-5 if options.data else 1e-4,  # Few steps need a high learning rate.
)
Trainer(model, train, TripletLoss(), config, evaluator=right).fit()
print(f"held-out triplets in order: {before:.3f} before, {right(model):.3f} after {len(train)} triplets")
