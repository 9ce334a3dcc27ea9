"""Train on pairs with scores, so that the cosine of two sentences says how alike they are.

python examples/train_stsb.py [--model MODEL] [--data FOLDER] [--rows N] [--output FOLDER]

FOLDER/stsb holds train.tsv, dev.tsv and test.tsv of the STS benchmark.
"""

from shared import arguments, load, read, scored_pairs

from sbert import Trainer, TrainingConfig
from sbert.evaluation import SimilarityEvaluator
from sbert.losses import CosineSimilarityLoss

COLUMNS = ["sentence1", "sentence2"]

options = arguments(__doc__)
if options.data:
    parts = (f"stsb/{name}.tsv" for name in ("train", "dev", "test"))
    # People gave 0 to 5; a cosine goes up to 1.
    train, dev, test = (read(options, part, COLUMNS, "score", scale=(0, 5)) for part in parts)
else:
    train = scored_pairs(320, seed=0)
    dev, test = scored_pairs(100, seed=1, held_out=True), scored_pairs(200, seed=2, held_out=True)


def evaluator(rows):
    """Of rows: how well cosines order them."""
    return SimilarityEvaluator(*([row[name] for row in rows] for name in (*COLUMNS, "label")))


model = load(options.model)
before = evaluator(test)(model)["spearman"]
config = TrainingConfig(
    output=options.output,
    epochs=4 if options.data else 2,
    learning_rate=2e-5 if options.data else 1e-4,  # Few steps have to be large.
)
# The dev set chooses the best model, which is then in output/best.
Trainer(model, train, CosineSimilarityLoss(), config, evaluator=evaluator(dev), columns=COLUMNS).fit()
after = evaluator(test)(model)["spearman"]
print(f"Spearman on {len(test)} held-out pairs: {before:.3f} before, {after:.3f} after {len(train)} rows")
