"""Train a cross-encoder, which reads both sentences together, and let it rerank what an encoder finds.

python examples/train_cross_encoder.py [--model MODEL] [--data FOLDER] [--rows N] [--output FOLDER]

FOLDER/stsb contains train.tsv, dev.tsv and test.tsv of the STS benchmark.
"""

import torch
from shared import arguments, load, read, scored_pairs

from sbert import CrossEncoder, TrainingConfig
from sbert.evaluation import SimilarityEvaluator

COLUMNS = ["sentence1", "sentence2"]

options = arguments(__doc__)
if options.data:
    parts = (f"stsb/{name}.tsv" for name in ("train", "dev", "test"))
    train, dev, test = (read(options, part, COLUMNS, "score", scale=(0, 5)) for part in parts)
else:
    train = scored_pairs(512, seed=0)
    dev, test = scored_pairs(100, seed=1, held_out=True), scored_pairs(200, seed=2, held_out=True)


def evaluator(rows):
    """An evaluator of rows: the rank correlation of the model's scores and those of the data."""
    return SimilarityEvaluator(*([row[name] for row in rows] for name in (*COLUMNS, "label")))


encoder = load(options.model)
torch.manual_seed(0)  # The head is initialized at random.
model = CrossEncoder(encoder.name_or_path, classes=1)
before = evaluator(test)(model)["spearman"]
config = TrainingConfig(
    output=options.output,
    epochs=4,
    learning_rate=2e-5 if options.data else 2e-4,  # Few steps need a high learning rate.
)
model.fit(train, config=config, evaluator=evaluator(dev), columns=COLUMNS)
after = evaluator(test)(model)["spearman"]
print(f"Spearman on {len(test)} held-out pairs: {before:.3f} before, {after:.3f} after {len(train)} rows")

# The encoder finds candidates among many texts quickly; the cross-encoder ranks these few.
texts = sorted({row["sentence2"] for row in test})
query = test[0]["sentence1"]
candidates = [
    texts[i] for i in encoder.similarity(encoder.encode([query]), encoder.encode(texts))[0].argsort()[::-1][:10]
]
print(f"\n{query}")
for entry in model.rank(query, candidates, top_k=3):
    print(f"  {entry['score']:.2f}  {candidates[entry['corpus_id']]}")
