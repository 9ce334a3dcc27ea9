"""Search and mining by blocks are those of the sorted whole, in the memory of a block."""

from __future__ import annotations

import math
import tracemalloc
from typing import Any

import numpy as np
import pytest
import torch

from sbert.evaluation import (
    ParaphraseMiningEvaluator,
    RerankingEvaluator,
    RetrievalEvaluator,
    TranslationEvaluator,
    nearest,
)
from sbert.functional import SIMILARITIES
from tests.evaluators import (
    Meanings,
    text,
)


@pytest.mark.parametrize("k", [1, 3, 40, 100])
@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_nearest_is_the_sorted_whole(similarity: str, k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Vectors of few small numbers, so that many scores are equal, and exactly so whatever the block."""
    rng = np.random.default_rng(0)
    queries, corpus = (rng.integers(0, 2, (rows, 4)).astype(float) for rows in (9, 70))
    scores = SIMILARITIES[similarity](queries, corpus).round(9)
    expected = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    compared = "dot" if similarity == "cosine" else similarity  # Of unit vectors.
    monkeypatch.setitem(SIMILARITIES, compared, _rounded(SIMILARITIES[compared]))
    for cells, block in ((1 << 20, 70), (100, 13), (1, 1)):
        monkeypatch.setattr(nearest, "_SCORES", cells)
        blocks = (corpus[start : start + block] for start in range(0, 70, block))
        np.testing.assert_array_equal(nearest.nearest(queries, blocks, k, similarity), expected)


def _rounded(compare: Any) -> Any:
    return lambda a, b: compare(a, b).round(9)


@pytest.mark.parametrize("count", [1, 5, 30, 1000, 10_000])
def test_mining_is_the_sorted_whole(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = np.random.default_rng(0).integers(0, 3, (60, 3)).astype(float)
    scores = vectors @ vectors.T
    places = np.argwhere(np.triu(np.ones_like(scores), 1))
    order = np.argsort(-scores[tuple(places.T)], kind="stable")[:count]
    for cells in (1 << 20, 500, 1):
        monkeypatch.setattr(nearest, "_SCORES", cells)
        found, where = nearest.mine(vectors, count, "dot")
        np.testing.assert_array_equal(where, places[order])
        np.testing.assert_array_equal(found, scores[tuple(places[order].T)])


def test_vectors_are_normalised_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not for each of the steps in which they are compared."""
    rows: list[int] = []
    real = torch.nn.functional.normalize

    def normalize(vectors: torch.Tensor, dim: int) -> torch.Tensor:
        rows.append(len(vectors))
        return real(vectors, dim=dim)

    monkeypatch.setattr(torch.nn.functional, "normalize", normalize)
    monkeypatch.setattr(nearest, "_SCORES", 50)
    vectors = np.random.default_rng(0).normal(size=(30, 4))
    scores, places = nearest.mine(vectors, 10)
    nearest.nearest(vectors[:20], [vectors[:15], vectors[15:]], 3)
    assert rows == [30, 20, 15, 15]
    np.testing.assert_allclose(scores, SIMILARITIES["cosine"](vectors, vectors)[tuple(places.T)])


def test_a_corpus_is_searched_in_the_memory_of_a_block() -> None:
    class Random(Meanings):
        def _encode(self, kind: str, sentences: list[str]) -> np.ndarray:
            return np.random.default_rng(len(sentences)).normal(size=(len(sentences), 512)).astype(np.float32)

    corpus = {str(i): str(i) for i in range(20_000)}  # Vectors of 40 MB.
    evaluator = RetrievalEvaluator({"q": "q"}, corpus, {"q": {"7"}}, block=500)
    evaluator(Random())
    tracemalloc.start()
    evaluator(Random())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8e6


def test_grades_are_the_gain_and_zero_is_not_relevant() -> None:
    corpus = {"a": text(0), "b": text(0, 1), "c": text(0, 2), "d": text(1)}
    found = RetrievalEvaluator({"q": text(0)}, corpus, {"q": {"d": 4, "b": 2, "a": 0}}, precision_recall_at=(2,))(
        Meanings()
    )
    best = 4 + 2 / math.log2(3)
    assert found["ndcg@10"] == pytest.approx((2 / math.log2(3) + 4 / math.log2(5)) / best)
    assert (found["precision@2"], found["recall@2"], found["mrr@10"], found["accuracy@1"]) == (0.5, 0.5, 0.5, 0)
    assert found["map@100"] == pytest.approx((1 / 2 + 2 / 4) / 2)


def test_negatives_come_first_among_equals() -> None:
    sample = {"query": text(0), "positive": [text(0, 1)], "negative": [text(0, 2), text(1)]}
    found = RerankingEvaluator([sample])(Meanings())
    assert found == {"map": 0.5, "mrr@10": 0.5, "ndcg@10": pytest.approx(1 / math.log2(3))}


def test_mining_keeps_little_more_than_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """All pairs and their places would take 90 MB."""
    monkeypatch.setattr(nearest, "_SCORES", 1 << 16)
    vectors = np.random.default_rng(0).normal(size=(3000, 8)).astype(np.float32)
    tracemalloc.start()
    nearest.mine(vectors, 1000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5e6


def test_a_sentence_is_right_wherever_it_stands() -> None:
    """Two translations of one sentence; only one of them is the nearest, and both lead back to it."""
    evaluator = TranslationEvaluator([text(0), text(0), text(1)], [text(0, 1), text(0, 2), text(1, 1)])
    assert evaluator(Meanings()) == pytest.approx(
        {"mean_accuracy": 5 / 6, "source_to_target": 2 / 3, "target_to_source": 1}
    )


def test_places_may_be_of_an_array() -> None:
    evaluator = ParaphraseMiningEvaluator([text(0), text(0, 1), text(1)], np.array([[1, 0], [0, 1]]))
    assert evaluator(Meanings())["f1"] == 1.0


def test_pairs_that_are_not_kept_count_as_not_found() -> None:
    sentences = [text(0), text(0, 1), text(0, 2), text(1)]
    duplicates = [(0, 1), (1, 0), (2, 0), (3, 1)]
    found = ParaphraseMiningEvaluator(sentences, duplicates, max_pairs=2)(Meanings())
    assert (found["precision"], found["f1"]) == (1, 0.8)
    assert found["average_precision"] == found["recall"] == pytest.approx(2 / 3)
