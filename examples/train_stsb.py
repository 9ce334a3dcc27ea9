"""Train on scored pairs, so that the cosine of two sentences is their similarity.

python examples/train_stsb.py [--model MODEL] [--data FOLDER] [--rows N] [--output FOLDER]

FOLDER/stsb contains train.tsv, dev.tsv and test.tsv of the STS benchmark.
"""

from shared import arguments, load, read, scored_pairs

from sbert import Trainer, TrainingConfig
from sbert.evaluation import SimilarityEvaluator
from sbert.losses import CosineSimilarityLoss

COLUMNS = ["sentence1", "sentence2"]

options = arguments(__doc__)
if options.data:
    parts = (f"stsb/{name}.tsv" for name in ("train", "dev", "test"))
    # The scores are from 0 to 5, cosines at most 1.
    train, dev, test = (read(options, part, COLUMNS, "score", scale=(0, 5)) for part in parts)
else:
    train = scored_pairs(320, seed=0)
    dev, test = scored_pairs(100, seed=1, held_out=True), scored_pairs(200, seed=2, held_out=True)


def evaluator(rows):
    """An evaluator of rows: the rank correlation of cosines and scores."""
    return SimilarityEvaluator(*([row[name] for row in rows] for name in (*COLUMNS, "label")))


model = load(options.model)
before = evaluator(test)(model)["spearman"]
config = TrainingConfig(
    output=options.output,
    epochs=4 if options.data else 2,
    learning_rate=2e-5 if options.data else 1e-4,  # Few steps need a high learning rate.
)
# The dev set selects the best model, which is saved in output/best.
Trainer(model, train, CosineSimilarityLoss(), config, evaluator=evaluator(dev), columns=COLUMNS).fit()
after = evaluator(test)(model)["spearman"]
print(f"Spearman on {len(test)} held-out pairs: {before:.3f} before, {after:.3f} after {len(train)} rows")
