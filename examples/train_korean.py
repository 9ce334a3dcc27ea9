"""Train a Korean model: on natural language inference, and then on scored pairs, as KorSBERT.

python examples/train_korean.py [--model MODEL] [--data FOLDER] [--rows N] [--output FOLDER]

FOLDER/korean contains korsts_train.tsv, korsts_dev.tsv and korsts_test.tsv of KorSTS, and of KorNLI
snli_1.0_train.ko.tsv, or at least kornli_xnli_dev.tsv. Start from a model that knows Korean words: that of the default
reads letters.
"""

from itertools import islice

import torch
from korean_rows import korean_nli, korean_pairs
from shared import arguments, load

from sbert import Trainer, TrainingConfig
from sbert.data import read_nli, read_sts
from sbert.evaluation import SimilarityEvaluator
from sbert.losses import CosineSimilarityLoss, SoftmaxLoss

options = arguments(__doc__)
if options.data:
    folder = options.data / "korean"
    found = [name for name in ("snli_1.0_train.ko.tsv", "kornli_xnli_dev.tsv") if (folder / name).exists()]
    files = [
        read_nli(folder / found[0]),
        *(read_sts(folder / f"korsts_{part}.tsv") for part in ("train", "dev", "test")),
    ]
    inference, train, dev, test = (list(islice(rows, options.rows)) for rows in files)
else:
    inference, train = korean_nli(80, seed=0), korean_pairs(240, seed=0)
    dev, test = korean_pairs(80, seed=1, held_out=True), korean_pairs(200, seed=2, held_out=True)


def columns(rows):
    """Both sentences and the labels of rows, each in a list; the names of the columns differ."""
    return [list(column) for column in zip(*(row.values() for row in rows), strict=True)]


def step(loss, rows, epochs, rate, **more):
    """Train the model on rows."""
    rate = 2e-5 if options.data else rate  # Few steps need a high learning rate.
    data = [tuple(row.values()) for row in rows]
    Trainer(model, data, loss, TrainingConfig(epochs=epochs, learning_rate=rate, **more), evaluator=evaluator).fit()


model, evaluator, score = load(options.model), SimilarityEvaluator(*columns(dev)), SimilarityEvaluator(*columns(test))
before = score(model)["spearman"]
torch.manual_seed(0)  # The classifier is initialized at random.
step(SoftmaxLoss(model.get_sentence_embedding_dimension(), classes=3).to(model.device), inference, 1, 1e-4)
between = score(model)["spearman"]
step(CosineSimilarityLoss(), train, 4 if options.data else 2, 2e-4, output=options.output)
print(f"Spearman on {len(test)} held-out Korean pairs: {before:.3f} before, {score(model)['spearman']:.3f} after")
print(f"{between:.3f} with {len(inference)} rows of inference alone, before {len(train)} scored pairs")
