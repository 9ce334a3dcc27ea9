"""Train a small Korean model from nothing but text and pairs: its vocabulary, and its vectors in two steps.

python examples/train_korean.py [--model MODEL] [--data FOLDER] [--rows N] [--output FOLDER]

1. With translations: the vector of a Korean sentence becomes an English model's vector of its translation. Or without
   them, with inference: a premise comes nearer to what follows from it than to what contradicts it.
2. With scored pairs: the cosine of two sentences becomes their score.

The model is a table with one vector per token; the vector of a text is their mean. --model takes a model that knows
Korean instead, and trains it on inference and scored pairs.

FOLDER/korean contains korsts_{train,dev,test}.tsv of KorSTS, and of KorNLI snli_1.0_train.ko.tsv or at least
kornli_xnli_{dev,test}.tsv. The translations are FOLDER/stsb/train.tsv, which KorSTS translates row by row, and
FOLDER/parallel/junior_high_evaluation_koen.tsv.
"""

from functools import cache
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from korean_rows import korean_nli, korean_pairs, read_translations, translations
from shared import arguments, load, triplets
from sklearn.feature_extraction.text import TfidfVectorizer
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from sbert import SentenceEncoder, Trainer, TrainingConfig
from sbert.data import read_nli, read_sts
from sbert.evaluation import SimilarityEvaluator
from sbert.evaluation.metrics import spearman
from sbert.losses import CosineSimilarityLoss, MSELoss, MultipleNegativesRankingLoss
from sbert.modules import StaticEmbedding

WORDS = pre_tokenizers.Sequence([pre_tokenizers.Punctuation(), pre_tokenizers.Metaspace()])
CHARACTERS = pre_tokenizers.Sequence([pre_tokenizers.Metaspace(), pre_tokenizers.Split("", "isolated")])
# The size, the form (NFC: syllables; NFD: the letters of each), and the longest a token may be.
VOCABULARIES = {
    "8,000 tokens": (8000, normalizers.NFC(), WORDS),
    "4,000 tokens": (4000, normalizers.NFC(), WORDS),
    "8,000 tokens of letters (jamo)": (8000, normalizers.NFD(), WORDS),
    "syllables": (8000, normalizers.NFC(), CHARACTERS),
}
PLAIN = "8,000 tokens"

options = arguments(__doc__, model=None)
SEEDS = range(3 if options.data else 1)
if options.data:
    folder = options.data / "korean"
    found = [name for name in ("snli_1.0_train.ko.tsv", "kornli_xnli_dev.tsv") if (folder / name).exists()]
    names = found[:1] if "snli" in found[0] else [*found, "kornli_xnli_test.tsv"]
    inference = [row for name in names for row in islice(read_nli(folder / name), options.rows)]
    files = (read_sts(folder / f"korsts_{part}.tsv") for part in ("train", "dev", "test"))
    (train, *held_out), parallel = (list(islice(rows, options.rows)) for rows in files), read_translations(options)
else:
    inference, train, parallel = korean_nli(80, seed=0), korean_pairs(240, seed=0), translations(256, seed=0)
    held_out = [korean_pairs(200, seed, held_out=True) for seed in (1, 2)]

texts = [row["kor"] for row in parallel] + [text for row in inference + train for text in list(row.values())[:2]]
vectors = load("all-MiniLM-L6-v2").encode([row["eng"] for row in parallel])
STEPS = {  # Rows, loss, and settings.
    "translations": (
        [(row["kor"], vector) for row, vector in zip(parallel, vectors, strict=True)],
        MSELoss(),
        {"learning_rate": 5e-3, "epochs": 5},
    ),
    "inference": (
        triplets(inference),
        MultipleNegativesRankingLoss(),
        {"learning_rate": 1e-3, "epochs": 2},
    ),
    "scored pairs": (
        [tuple(row.values()) for row in train],
        CosineSimilarityLoss(),
        {"learning_rate": 3e-3, "epochs": 4},
    ),
}
columns = [[list(column) for column in zip(*map(dict.values, rows), strict=True)] for rows in held_out]
evaluators = [SimilarityEvaluator(*three) for three in columns]


def without_training():
    """Spearman on dev and test of the cosines of tf-idf weights of one and two characters."""
    ngrams = TfidfVectorizer(analyzer="char_wb", ngram_range=(1, 2), sublinear_tf=True).fit(texts)
    for first, second, scores in columns:
        products = ngrams.transform(first).multiply(ngrams.transform(second))
        yield spearman(np.asarray(products.sum(1))[:, 0], scores)


@cache
def make_tokenizer(vocabulary):
    """A Unigram tokenizer of the texts; morphemes are not analyzed."""
    size, form, border = VOCABULARIES[vocabulary]
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.Sequence([form, normalizers.Lowercase()]), border
    settings = {"vocab_size": size, "special_tokens": ["[UNK]"], "unk_token": "[UNK]", "show_progress": False}
    tokenizer.train_from_iterator(texts, trainers.UnigramTrainer(**settings))
    return tokenizer


def new_model(vocabulary):
    """A table of random vectors of the size of the teacher's."""
    tokenizer = make_tokenizer(vocabulary)
    return SentenceEncoder(StaticEmbedding(tokenizer, 0.05 * torch.randn(tokenizer.get_vocab_size(), vectors.shape[1])))


def trained(steps, vocabulary=PLAIN):
    """The last seed's model; and Spearman on dev and test, of each seed at first and after each step."""
    figures = []
    for seed in SEEDS:
        torch.manual_seed(seed)
        model = load(options.model) if options.model else new_model(vocabulary)
        figures.append([[evaluator(model)["spearman"] for evaluator in evaluators]])
        for rows, loss, settings in (STEPS[step] for step in steps):
            rate = {"learning_rate": 2e-5} if options.model else {}
            Trainer(model, rows, loss, TrainingConfig(**(settings | rate), batch_size=64, seed=seed)).fit()
            figures[-1].append([evaluator(model)["spearman"] for evaluator in evaluators])
    return model, np.array(figures)  # (seeds, 1 + steps, 2)


def show(name, figures):
    """A row of the table: mean and standard deviation of dev and test, times 100."""
    cells = (f"{mean:5.1f} ± {std:.1f}" for mean, std in zip(figures.mean(0), figures.std(0), strict=True))
    print(f"{name:60}", *cells, sep="  ", flush=True)


print(f"{'Spearman, times 100':60}", f"{'dev':11}", "test", sep="  ")
show("tf-idf of characters", 100 * np.array([[*without_training()]]))
chains = [["inference", "scored pairs"], ["translations", "scored pairs"]]
for steps in chains[:1] if options.model else chains:
    model, figures = trained(steps)
    for i in range(len(steps) + 1):
        show(", ".join(steps[:i]) or "at first", 100 * figures[:, i])
for vocabulary in [] if options.model else [name for name in VOCABULARIES if name != PLAIN]:
    show(f"{', '.join(steps)}: {vocabulary}", 100 * trained(steps, vocabulary)[1][:, -1])

if options.output:
    model.save(Path(options.output) / "final")
before, after = figures[:, 0, 1].mean(), figures[:, -1, 1].mean()
print(f"Spearman on {len(held_out[1])} held-out pairs: {before:.3f} before, {after:.3f} after")
