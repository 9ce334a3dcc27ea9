"""Fusion is its formula, whatever the order and the size of the results."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from sbert.search import BM25, Hits, fuse
from sbert.search.index.bm25 import terms_of
from sbert.search.index.fusion import blend, hybrid_hits

RNG = np.random.default_rng(0)


def hits(queries: int, k: int, ids: np.ndarray) -> Hits:
    scores = -np.sort(-RNG.normal(size=(queries, k)).astype(np.float32), axis=1)
    return Hits(scores, np.stack([RNG.permutation(ids)[:k] for _ in range(queries)]))


@pytest.mark.parametrize("names", [np.arange(-20, 20), np.array([f"id{row}" for row in range(40)], object)])
@pytest.mark.parametrize("method", ["reciprocal_rank", "weighted"])
def test_the_formula(names: np.ndarray, method: str) -> None:
    results, weights, top_k = [hits(6, k, names) for k in (30, 12, 1)], [0.5, 2, 1], 9
    found = fuse(*results, top_k=top_k, method=method, weights=weights, constant=10)
    for query in range(6):
        sums: dict[Any, float] = {}
        for result, weight in zip(results, weights, strict=True):
            numbers = result.scores[query].astype(float)
            for rank, (name, score) in enumerate(zip(result.ids[query], numbers, strict=True), start=1):
                span = numbers.max() - numbers.min()
                share = (
                    1 / (10 + rank) if method == "reciprocal_rank" else (score - numbers.min()) / span if span else 1
                )
                sums[name] = sums.get(name, 0) + weight * share
        best = sorted(sums, key=lambda name, sums=sums: -sums[name])[:top_k]  # type: ignore[misc]
        assert found.ids[query].tolist() == best
        np.testing.assert_allclose(found.scores[query], [sums[name] for name in best], rtol=1e-6)
    assert (found.scores.dtype, found.ids.dtype) == (np.float32, names.dtype)


def test_equal_scores_are_in_the_order_of_the_results() -> None:
    first = Hits(np.array([[3.0, 2, 1]], np.float32), np.array([[5, 6, 7]]))
    second = Hits(np.array([[9.0, 8, 7]], np.float32), np.array([[8, 7, 5]]))
    third = Hits(np.array([[0.9, 0.8, 0.7]], np.float32), np.array([[7, 5, 9]]))
    # 5 has the ranks 1, 3 and 2, and 7 has 3, 2 and 1: added up one after another, their sums may differ.
    for constant in (0, 1, 10, 60):
        found = fuse(first, second, third, constant=constant)
        assert found.ids[0, :2].tolist() == [5, 7]
        assert found.scores[0, 0] == found.scores[0, 1]
    assert fuse(first, second, top_k=9).ids.tolist() == [[5, 7, 8, 6]]
    assert fuse(second, first, top_k=9).ids.tolist() == [[5, 7, 8, 6]]
    assert fuse(first, second, weights=[0, 0]).ids.tolist() == [[5, 6, 7, 8]]


@pytest.mark.parametrize("method", ["reciprocal_rank", "weighted"])
def test_texts_without_a_word_of_the_query_count_as_not_found(method: str) -> None:
    lexical = BM25()
    lexical.add(["a cat", "a dog", "a bird", "the bird"])
    vectors = Hits(np.array([[0.9, 0.8, 0.1, 0.0]], np.float32), np.array([[3, 2, 1, 0]]))
    alone = fuse(vectors, method=method)
    both = fuse(vectors, lexical.search("fish", 4), method=method)
    np.testing.assert_array_equal(both.ids, alone.ids)
    np.testing.assert_array_equal(both.scores, alone.scores)
    assert fuse(vectors, lexical.search("cat", 4), method=method, weights=[1, 2], top_k=1).ids.tolist() == [[0]]
    distances = Hits(np.array([[0.0, -2]], np.float32), np.array([[4, 5]]))  # The same vector: distance 0.
    assert fuse(distances, method=method).scores[0, 0] > 0


def test_what_is_empty_or_does_not_fit() -> None:
    names = np.arange(9)
    one, none = hits(2, 5, names), Hits(np.empty((2, 0), np.float32), np.empty((2, 0), object))
    assert fuse(one, none, top_k=3).ids.tolist() == one.ids[:, :3].tolist()
    assert fuse(none, none).ids.shape == (2, 0)
    assert fuse(hits(2, 5, names), top_k=9).ids.shape == (2, 5)
    empty = Hits(np.empty((0, 5), np.float32), np.empty((0, 5), np.int64))
    assert fuse(empty, empty).ids.shape[0] == 0
    for arguments, options, error, message in (
        ((one, hits(3, 5, names)), {}, ValueError, r"2 results for \[2, 3\] queries were given; pass results for the"),
        ((one, hits(2, 5, names.astype(str).astype(object))), {}, TypeError, "the ids of one result are integers"),
        ((one,), {"weights": [1, 1]}, ValueError, r"weights=\[1, 1\] for 1 results"),
        ((Hits(one.scores * np.inf, one.ids),), {}, TypeError, "of finite scores"),
    ):
        with pytest.raises(error, match=message):
            fuse(*arguments, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("language", "length", "weight"),
    [("english", 9, 0.3), ("english", 20, 0.4), ("english", 300, 0.5), (None, 20, 0.3), (None, 300, 0.4)],
)
def test_words_weigh_by_the_length_of_documents(language: str | None, length: int, weight: float) -> None:
    lexical = BM25(language=language)
    lexical.add([" ".join(["mountain"] * (length - step)) for step in (-1, 0, 1)])
    results, names = [hits(2, 3, np.arange(3)) for _ in range(3)], ["height", "how high is it"]
    found = hybrid_hits(results, names, lexical._postings, language, 3)
    weights = [weight, 0.6 * (1 - weight), 0.4 * (1 - weight)]
    expected = fuse(*results, top_k=3, method="weighted", weights=weights)
    np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-6)
    assert np.array_equal(found.ids, expected.ids)


def test_terms_side_by_side_count_a_quarter_more() -> None:
    """In the 100 best documents, for each two terms once; without a language, they do not."""
    words = "cat dog lake boat tax law".split()
    texts = [" ".join(RNG.choice(words, RNG.integers(1, 9))) for _ in range(150)] + ["wind power"] * 110
    lexical = BM25(language="english")
    lexical.add(texts)
    queries = ["a cat and the dog and cat, dog!", "lake boat tax", "zebra cat zebra", "law", "wind power"]
    first = lexical.search(queries, 260)
    raised = first.scores.copy()
    for row, query in enumerate(queries):
        pairs = {pair: [single(lexical, term) for term in pair] for pair in pairwise(terms_of(query, "english"))}
        for rank, name in enumerate(first.ids[row, :100].tolist()):
            beside = [scores for pair, scores in pairs.items() if " ".join(pair) in texts[name]]
            raised[row, rank] += 0.25 * sum(each[name] for both in beside for each in both)
    found = hybrid_hits([first, first], queries, lexical._postings, "english", 260)
    expected = blend([Hits(raised, first.ids), first], 260, (0.3, 0.7))
    np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-5)
    assert (raised != first.scores).sum(1).tolist()[2:] == [0, 0, 100]
    plain = hybrid_hits([first, first], queries, lexical._postings, None, 260)
    np.testing.assert_allclose(plain.scores, blend([first, first], 260, (0.3, 0.7)).scores, rtol=1e-5)


def single(lexical: BM25, term: str) -> dict[int, float]:
    """The score of one term in each text."""
    found = lexical.search(term, 1000)
    return dict(zip(found.ids[0].tolist(), found.scores[0].tolist(), strict=True))
