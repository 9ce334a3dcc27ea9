"""Train on natural language inference with a classifier over pairs: the recipe of the Sentence-BERT paper.

python examples/train_nli.py [--model MODEL] [--data FOLDER] [--rows N] [--output FOLDER]

FOLDER/nli contains snli_train_subset.tsv.gz, mnli_train_ptbtok.tsv.gz and snli_dev.tsv, FOLDER/stsb dev.tsv.
"""

import torch
from shared import CLASSES, arguments, load, nli, read

from sbert import Trainer, TrainingConfig
from sbert.evaluation import SimilarityEvaluator
from sbert.losses import SoftmaxLoss

COLUMNS = ["premise", "hypothesis"]

options = arguments(__doc__)
if options.data:
    files = ["nli/snli_train_subset.tsv.gz", "nli/mnli_train_ptbtok.tsv.gz"]
    train = [row for file in files for row in read(options, file, COLUMNS, "label", classes=CLASSES)]
    held_out = read(options, "nli/snli_dev.tsv", COLUMNS, "label", classes=CLASSES)
    pairs = read(options, "stsb/dev.tsv", ["sentence1", "sentence2"], "score")
    # The purpose of this training in the paper: similarity, although no scores were trained on.
    similarity = SimilarityEvaluator(*([row[name] for row in pairs] for name in ("sentence1", "sentence2", "label")))
else:
    train, held_out, similarity = nli(200, seed=0), nli(50, seed=1, held_out=True), None

model = load(options.model)
torch.manual_seed(0)  # The classifier is initialized at random.
loss = SoftmaxLoss(model.get_sentence_embedding_dimension(), classes=3).to(model.device)


def evaluate(model):
    """An evaluator is a function from a model to a dict; the first value selects the best model."""
    first, second = (model.encode([row[name] for row in held_out], convert_to_tensor=True) for name in COLUMNS)
    with torch.no_grad():
        predicted = loss.scores(first, second).argmax(1).tolist()
    right = sum(label == row["label"] for label, row in zip(predicted, held_out, strict=True))
    return {**(similarity(model) if similarity else {}), "accuracy": right / len(held_out)}


before = evaluate(model)
config = TrainingConfig(
    output=options.output,
    epochs=1,
    learning_rate=2e-5 if options.data else 2e-4,  # Few steps need a high learning rate.
)
Trainer(model, train, loss, config, evaluator=evaluate, columns=COLUMNS).fit()

for name, value in evaluate(model).items():
    print(f"{name} on held-out pairs: {before[name]:.3f} before, {value:.3f} after {len(train)} rows")
