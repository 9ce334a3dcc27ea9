"""The systems in the tables of the Sentence-BERT paper: their modules and their training."""

import argparse
import random
import re
import shutil
from pathlib import Path
from typing import Any

import torch

from examples.paper.arguments import read_arguments
from sbert import LSTM, CrossEncoder, Dense, Pooling, SentenceEncoder, Trainer, TrainingConfig, Transformer
from sbert import WordEmbeddings as Words
from sbert.data import read_nli, read_sts, read_triplets
from sbert.losses import CosineSimilarityLoss, SoftmaxLoss, TripletLoss

# The input of the NLI classifier: the rows of the paper's Table 6, and the paper's choice.
CONCATENATIONS = {
    "u-v": ("u", "v"),
    "difference": ("|u-v|",),
    "product": ("u*v",),
    "difference-product": ("|u-v|", "u*v"),
    "u-v-product": ("u", "v", "u*v"),
    "u-v-difference": ("u", "v", "|u-v|"),
    "u-v-difference-product": ("u", "v", "|u-v|", "u*v"),
}
CHOSEN = "u-v-difference"
WORDS_RATE = 1e-3  # Learning rate of systems with random initial weights.
# What is not trained.
FROZEN = ("words", "fasttext", "tokens", "cls")
FOLDS = 10  # Of the arguments.
SECTIONS = "wikipedia-sections-triplets"  # The folder of train.csv and test.csv.
CHECKPOINTS = 500  # Steps between two checkpoints.


def average_words(vectors: Path) -> SentenceEncoder:
    """The mean of fixed word vectors, but for those of stop words."""
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS  # Only this system needs it.

    words = Words.from_text_file(vectors, lower_case=True, stop_words=ENGLISH_STOP_WORDS)
    return SentenceEncoder(words, Pooling("mean"))


def average_tokens(backbone: str | Path) -> SentenceEncoder:
    """The mean of the token vectors of a pretrained transformer."""
    return SentenceEncoder(Transformer(backbone), Pooling("mean"), dtype="float32")


def first_token(backbone: str | Path) -> SentenceEncoder:
    """The vector of the first token of a pretrained transformer, BERT's [CLS]."""
    return sbert(backbone, "cls")


def sbert(backbone: str | Path, pooling: str = "mean") -> SentenceEncoder:
    """A transformer and a pooling, for training."""
    return SentenceEncoder(Transformer(backbone), Pooling(pooling), dtype="float32")


def bilstm(vectors: Path, hidden: int = 2048) -> SentenceEncoder:
    """InferSent: a bidirectional LSTM over fixed word vectors, and max pooling. Conneau et al., 2017, 3.2."""
    words = Words.from_text_file(vectors, lower_case=True)
    return SentenceEncoder(words, LSTM(words.embedding.embedding_dim, hidden), Pooling("max"))


def averaging_network(vectors: Path, width: int = 512) -> SentenceEncoder:
    """A deep averaging network: trainable word vectors, their mean, and two layers. Iyyer et al., 2015."""
    words = Words.from_text_file(vectors, lower_case=True)
    words.embedding.weight.requires_grad_()
    dim = words.embedding.embedding_dim
    return SentenceEncoder(words, Pooling("mean"), Dense(dim, width), Dense(width, width))


def without_head(pairs: CrossEncoder, folder: Path) -> Path:
    """Save the transformer of a cross-encoder without its head, for a new head."""
    pairs.auto_model.base_model.save_pretrained(folder)
    pairs.tokenizer.save_pretrained(folder)
    return folder


class Systems:
    """Provides the systems by name; trained systems are saved in one folder each, and trained once.

    Names: ``words``, ``fasttext``, ``tokens``, ``cls``, ``bilstm``, ``averaging``; ``sbert-nli-POOLING-CONCATENATION``,
    ``sbert-stsb-POOLING``, ``sbert-nli-stsb``, ``sbert-wikisec``; the cross-encoders ``bert-nli``, ``bert-stsb``,
    ``bert-nli-stsb``; and of each part left out of the arguments, ``sbert-afs-fold-0``, ``bert-afs-topic-2`` and so on.

    Args:
        options: ``data`` and ``vectors`` (what to train on, and the file of word vectors), ``backbone``, ``output``,
            ``device``, ``dtype``, ``learning_rate`` of transformers, and ``hidden``, the width of the LSTM.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options

    def get(self, name: str, seed: int = 0) -> SentenceEncoder | CrossEncoder:
        """Return a system; train it if needed, or continue an interrupted training from its checkpoint."""
        if name in FROZEN:
            return self._start(name, seed).to(self.options.device)
        folder = self.folder(name, seed)
        kind = CrossEncoder if name.startswith("bert") else SentenceEncoder
        if not (folder / "final").exists():
            self._train(name, self._start(name, seed).to(self.options.device), seed)
            shutil.rmtree(folder / "checkpoints")  # They are three times as large as the weights.
        return kind(folder / "final", device=self.options.device, dtype="float32")

    def folder(self, name: str, seed: int) -> Path:
        """The folder of a trained system."""
        return self.options.output / "models" / f"{name}-{seed}"

    def forget(self, name: str, seed: int) -> None:
        """Delete a system that no other table needs."""
        shutil.rmtree(self.folder(name, seed), ignore_errors=True)

    def _start(self, name: str, seed: int) -> SentenceEncoder | CrossEncoder:
        """The system before its final training."""
        options = self.options
        torch.manual_seed(seed)  # For new weights.
        if name == "sbert-nli-stsb":
            return self.get(f"sbert-nli-mean-{CHOSEN}", seed)
        if name == "bert-nli-stsb":
            start = without_head(self.get("bert-nli", seed), self.folder(name, seed) / "start")
            torch.manual_seed(seed)
            return CrossEncoder(start, classes=1)
        if name.startswith("sbert"):
            return sbert(
                options.backbone, name.split("-")[2] if name.startswith(("sbert-nli", "sbert-stsb")) else "mean"
            )
        made = {
            "words": lambda: average_words(options.vectors),
            "fasttext": lambda: SentenceEncoder(Words.from_text_file(options.fasttext), Pooling("mean")),
            "tokens": lambda: average_tokens(options.backbone),
            "cls": lambda: first_token(options.backbone),
            "bilstm": lambda: bilstm(options.vectors, options.hidden),
            "averaging": lambda: averaging_network(options.vectors),
            "bert-nli": lambda: CrossEncoder(options.backbone, classes=3),
        }
        return made[name]() if name in made else CrossEncoder(options.backbone, classes=1)

    def _train(self, name: str, model: SentenceEncoder | CrossEncoder, seed: int) -> None:
        """Train for one epoch of NLI or triplets, or four epochs of scores, as in the paper."""
        torch.manual_seed(seed)  # For the classifier.
        scored = any(part in f"{name}-" for part in ("-stsb-", "-afs-"))
        of_words = name in ("bilstm", "averaging")
        config = TrainingConfig(
            output=self.folder(name, seed),
            epochs=4 if scored else 1,
            batch_size=64 if of_words else 16,
            learning_rate=WORDS_RATE if of_words else self.options.learning_rate,
            dtype=self.options.dtype,
            seed=seed,
            checkpoint_every=CHECKPOINTS,
            keep=1,
        )
        rows = self._rows(name)
        if isinstance(model, CrossEncoder):
            model.fit(rows, config=config, resume=True)
            return
        if scored:
            loss = CosineSimilarityLoss()
        elif name == "sbert-wikisec":
            loss = TripletLoss("euclidean", margin=1)
        else:
            # InferSent and the Universal Sentence Encoder also pass the product to the classifier.
            seen = "u-v-difference-product" if of_words else name.split("-", 3)[3]
            loss = SoftmaxLoss(model.get_sentence_embedding_dimension(), 3, CONCATENATIONS[seen])
        Trainer(model, rows, loss, config).fit(resume=True)

    def _rows(self, name: str) -> list[tuple[Any, ...]]:
        """The training rows of a system."""
        data = self.options.data
        if "-afs-" in name:
            protocol, number = name.split("-")[2:]
            return argument_rows(data, protocol)[int(number)][0]
        if name == "sbert-wikisec":
            return section_rows(data, "train")
        return similarity_rows(data) if "-stsb" in name else inference_rows(data)


def argument_rows(data: Path, protocol: str) -> list[tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]]:
    """The rows to train on and to measure, for each part that is left out: a tenth (``fold``), or a ``topic``."""
    topics = [[tuple(row.values()) for row in rows] for rows in read_arguments(data / "afs").values()]
    parts = topics
    if protocol == "fold":
        rows = [row for topic in topics for row in topic]
        random.Random(0).shuffle(rows)
        parts = [rows[start::FOLDS] for start in range(FOLDS)]
    return [([row for other in parts if other is not part for row in other], part) for part in parts]


def section_rows(data: Path, part: str) -> list[tuple[Any, ...]]:
    """Anchor, positive and negative of a part of the sections of Wikipedia."""
    return [tuple(row.values()) for row in read_triplets(data / SECTIONS / f"{part}.csv")]


def inference_files(data: Path) -> list[Path]:
    """The training files of SNLI and MultiNLI, each in one of its published formats."""
    found = [path for start in ("snli", "mnli", "multinli") for path in (data / "nli").glob(f"{start}*train*")]
    return sorted({re.sub(r"\.(tsv|csv|txt|jsonl)(\.gz)?$", "", path.name): path for path in sorted(found)}.values())


def inference_rows(data: Path) -> list[tuple[str, str, int]]:
    """Premise, hypothesis and label of SNLI and MultiNLI."""
    rows = [row for path in inference_files(data) for row in read_nli(path)]
    return [(row["first"], row["second"], row["label"]) for row in rows]


def similarity_rows(data: Path, part: str = "train") -> list[tuple[str, str, float]]:
    """Both sentences and the score of a part of the STS benchmark, 0 to 1."""
    found = [path for path in sorted((data / "stsb").iterdir()) if part in path.name]
    if not found:
        raise FileNotFoundError(f"{data / 'stsb'} has no file with {part} in its name; put it there")
    return [(row["first"], row["second"], row["label"]) for row in read_sts(found[0])]
