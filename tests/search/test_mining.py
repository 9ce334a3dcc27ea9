"""Mining finds the first of all pairs in order, and holds little more than those."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from sbert.functional import SIMILARITIES
from sbert.search import SimilarPairs, most_similar_pair, paraphrase_mining
from sbert.search.exact import comparison, mining
from tests.contract.evaluators import Meanings
from tests.memory import grown
from tests.search.test_semantic_search import score


def every(vectors: np.ndarray, similarity: str = "cosine") -> SimilarPairs:
    """All pairs in order."""
    all_scores = score(vectors, vectors, similarity)
    first, second = np.triu_indices(len(vectors), 1)
    order = np.lexsort((second, first, -all_scores[first, second]))
    first, second = first[order], second[order]
    return SimilarPairs(all_scores[first, second], first, second)


def equal(found: SimilarPairs, expected: SimilarPairs, count: int | None = None) -> None:
    for name in ("scores", "first", "second"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name)[:count])


def clustered(rows: int = 160, dim: int = 12, twice: bool = True) -> np.ndarray:
    """Groups of likes; some rows are there twice, and one has the length 0, if that is wanted."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(9, dim))
    vectors = centres[rng.integers(0, 9, rows)] + rng.uniform(0, 1, (rows, 1)) * rng.normal(size=(rows, dim))
    if twice:
        vectors[rows // 2 : rows // 2 + 20] = vectors[:20]
        vectors[7] = 0
    return vectors.astype(np.float32)


def tiled(monkeypatch: pytest.MonkeyPatch, queries: int, rows: int) -> None:
    """Compare as many queries with as many rows in one step."""
    monkeypatch.setattr(mining, "_BLOCK", rows)
    monkeypatch.setattr(comparison, "TILE_QUERIES", queries)
    monkeypatch.setattr(comparison, "TILE_ROWS", rows)


@pytest.fixture(params=[(512, 4096), (64, 128), (10, 23)], ids=str)
def _tiles(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    tiled(monkeypatch, *request.param)
    monkeypatch.setattr(mining, "_SAMPLE", 30)
    monkeypatch.setattr(comparison, "_MANY", 0.1)


@pytest.mark.usefixtures("_tiles")
@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_mining_is_the_sorted_whole(similarity: str) -> None:
    vectors = clustered()
    expected = every(vectors, similarity)
    for count in (1, 50, 1000, 3000, 10**6):
        equal(paraphrase_mining(vectors, max_pairs=count, similarity=similarity), expected, count)
    best = most_similar_pair(torch.from_numpy(vectors), similarity=similarity)
    assert best == (expected.scores[0], expected.first[0], expected.second[0])


def test_a_threshold_is_the_least_score() -> None:
    vectors = clustered()
    expected = every(vectors)
    for place in (0, 100, 5000):
        threshold = float(expected.scores[place])
        found = paraphrase_mining(vectors, threshold=threshold)
        equal(found, expected, int((expected.scores >= expected.scores[place]).sum()))
    equal(paraphrase_mining(vectors, threshold=1.0), expected, int((expected.scores >= 1).sum()))


def test_many_equal_pairs_come_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    tiled(monkeypatch, 32, 64)
    vectors = np.tile(np.array([[0.3, 0.4]], np.float32), (200, 1))
    found = paraphrase_mining(vectors, max_pairs=250)
    assert found.first.tolist() == [0] * 199 + [1] * 51
    assert found.second.tolist() == [*range(1, 200), *range(2, 53)]
    assert most_similar_pair(vectors)[1:] == (0, 1)


# Only a process of its own says how much memory mining takes.
@pytest.mark.slow
def test_mining_keeps_little_more_than_it_is_asked_for() -> None:
    """All pairs and their places would take 360 MB."""
    before = """
import numpy as np
from sbert.search import paraphrase_mining
from sbert.search.exact import comparison, mining
mining._BLOCK, comparison.TILE_QUERIES, comparison.TILE_ROWS = 512, 64, 512
vectors = np.random.default_rng(0).normal(size=(6000, 8)).astype(np.float32)
paraphrase_mining(vectors[:1500], max_pairs=1000)
"""
    code = "paraphrase_mining(vectors, max_pairs=1000)"
    assert grown(before, code) < 80e6


@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_a_models_sentences_are_compared_as_the_model_says(similarity: str) -> None:
    """Unless the caller says otherwise; vectors alone have no model, and are compared by cosine."""

    class Model(Meanings):
        similarity_fn_name = similarity

        def encode(self, sentences: list[str], **options: Any) -> np.ndarray:
            return clustered(len(sentences))

    names = ["x"] * 40
    for chosen, expected in ((None, similarity), ("dot", "dot")):
        equal(paraphrase_mining(Model(), names, similarity=chosen), every(clustered(40), expected))
    equal(paraphrase_mining(clustered(40)), every(clustered(40)))


def test_few_vectors() -> None:
    for few in (0, 1):
        assert paraphrase_mining(np.ones((few, 2))).first.shape == (0,)
