"""The contract's table: one row an evaluator, on sentences whose first word is what they mean."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sbert import Pooling, SentenceEncoder, Transformer
from sbert.evaluation import (
    Evaluator,
    LabelEvaluator,
    MSEEvaluator,
    PairClassificationEvaluator,
    ParaphraseMiningEvaluator,
    RerankingEvaluator,
    RetrievalEvaluator,
    SequentialEvaluator,
    SimilarityEvaluator,
    TranslationEvaluator,
    TripletEvaluator,
)
from sbert.losses import SoftmaxLoss
from tests import pairs, small

DIM = 16
WORDS = "boat lake fox hills winter small quiet red seven green one two".split()


def text(meaning: int, way: int = 0) -> str:
    """One of the ways to say something."""
    return f"{WORDS[meaning % 12]} the {WORDS[(meaning + 5 * way) % 12]} {WORDS[way]}"


FIRST = [text(i) for i in range(12)]
SECOND = [text(i + (i % 3 == 0), 1) for i in range(12)]
SAME = [int(i % 3 != 0) for i in range(12)]
QUERIES = {f"q{i}": text(i) for i in range(6)}
CORPUS = {f"{way}-{i}": text(i, way + 1) for way in range(3) for i in range(12)}


def head() -> SoftmaxLoss:
    """Class 1 where the vectors of two texts are nearly the same, else class 0."""
    loss = SoftmaxLoss(DIM, 2, concatenation=("|u-v|",))
    with torch.no_grad():
        loss.classifier.weight.copy_(torch.tensor([[1.0], [0.0]]).expand(2, DIM))
        loss.classifier.bias.copy_(torch.tensor([0.0, 0.5]))
    return loss


def samples() -> list[dict[str, Any]]:
    return [
        {"query": text(i), "positive": [text(i, 1), text(i, 2)], "negative": [text(i + j, 2) for j in range(1, 4 + i)]}
        for i in range(8)
    ]


def sets() -> dict[str, set[str]]:
    return {query: {f"{way}-{i}" for way in range(3)} for i, query in enumerate(QUERIES)}


def grades() -> dict[str, dict[str, int]]:
    """Documents of grade 0 are not relevant; neither is any to the last query."""
    graded = {query: dict.fromkeys(names, 1 + i % 2) for i, (query, names) in enumerate(sets().items())}
    graded["q0"]["0-5"] = 0
    graded["q5"] = dict.fromkeys(graded["q5"], 0)
    return graded


# What makes it, and the figure that comes first.
EVALUATORS: dict[str, tuple[Callable[[], Evaluator], str]] = {
    "similarity": (lambda: SimilarityEvaluator(FIRST, SECOND, SAME), "spearman"),
    "label": (lambda: LabelEvaluator(FIRST, SECOND, SAME, head()), "accuracy"),
    "pair classification": (lambda: PairClassificationEvaluator(FIRST, SECOND, SAME), "average_precision"),
    "triplet": (lambda: TripletEvaluator(FIRST, [text(i, 1) for i in range(12)], FIRST[1:] + FIRST[:1]), "accuracy"),
    "retrieval": (lambda: RetrievalEvaluator(QUERIES, CORPUS, sets()), "ndcg@10"),
    "retrieval by blocks": (
        lambda: RetrievalEvaluator(QUERIES, CORPUS, grades(), ndcg_at=(3,), similarity="euclidean", block=7),
        "ndcg@3",
    ),
    "reranking of candidates": (
        lambda: RetrievalEvaluator(QUERIES, CORPUS, sets(), candidates={query: [*CORPUS] for query in QUERIES}),
        "ndcg@10",
    ),
    "reranking": (lambda: RerankingEvaluator(samples()), "map"),
    "paraphrase mining": (
        lambda: ParaphraseMiningEvaluator(
            [text(i, way) for way in range(2) for i in range(12)],
            [(i + 12 * (i % 2), i + 12 - 12 * (i % 2)) for i in range(12)],
        ),
        "average_precision",
    ),
    "translation": (lambda: TranslationEvaluator(FIRST, [text(i, 1) for i in range(12)]), "mean_accuracy"),
    "teacher": (lambda: MSEEvaluator([text(i, 1) for i in range(12)], np.eye(DIM)[:12], FIRST), "negative_mse"),
    "sequence": (
        lambda: SequentialEvaluator({"b": EVALUATORS["translation"][0](), "a": EVALUATORS["similarity"][0]()}),
        "b_mean_accuracy",
    ),
}


class Meanings:
    """A model that understands all: texts of one meaning have one vector, at right angles to all others."""

    is_cross_encoder = False
    name_or_path = "meanings"

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []  # The kind and the text of all that was encoded.

    def vector(self, sentence: str) -> np.ndarray:
        return np.eye(DIM, dtype=np.float32)[WORDS.index(sentence.split()[0])]

    def _encode(self, kind: str, sentences: list[str]) -> np.ndarray:
        self.calls += [(kind, sentence) for sentence in sentences]
        return np.array([self.vector(sentence) for sentence in sentences], np.float32).reshape(-1, DIM)

    def encode(self, sentences: list[str], show_progress_bar: bool | None = None) -> np.ndarray:
        return self._encode("text", sentences)

    def encode_query(self, sentences: list[str], show_progress_bar: bool | None = None) -> np.ndarray:
        return self._encode("query", sentences)

    def encode_document(self, sentences: list[str], show_progress_bar: bool | None = None) -> np.ndarray:
        return self._encode("document", sentences)


class Collapsed(Meanings):
    """A model to which all texts are the same."""

    def vector(self, sentence: str) -> np.ndarray:
        return np.eye(DIM, dtype=np.float32)[0]


def models(root: Path) -> Path:
    """A model whose query and documents have prompts; a scorer of pairs, and one of three classes."""
    transformer = Transformer(small.bert(root / "bert"))
    prompts = {"query": "zero ", "document": "ten four "}
    SentenceEncoder(transformer, Pooling("mean"), prompts=prompts, device="cpu").save(root / "encoder")
    pairs.folder(root / "scorer")
    pairs.folder(root / "classes", classes=3)
    return root
