"""Communities are those of sentence-transformers; clusters are labels; topic words are those of the formula."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch

from sbert.functional import cos_sim
from sbert.search import cluster, community_detection, topic_words
from sbert.search.exact import clustering
from tests.search.test_mining import clustered


def spread(seed: int, rows: int = 900, dim: int = 32) -> torch.Tensor:
    """Groups of all sizes, that touch, and rows that stand alone."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(60, dim))
    sizes = rng.dirichlet(np.full(60, 0.3))
    vectors = centres[rng.choice(60, rows, p=sizes)] + rng.uniform(0.1, 1.5, (rows, 1)) * rng.normal(size=(rows, dim))
    return torch.from_numpy(vectors.astype(np.float32))


@pytest.mark.parametrize(("threshold", "size"), [(0.75, 10), (0.6, 3), (0.9, 2), (0.3, 50), (0.85, 1)])
@pytest.mark.parametrize("kind", ["groups", "random"])
def test_communities_are_theirs(kind: str, threshold: float, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from sentence_transformers.util import community_detection as theirs

    monkeypatch.setattr(clustering, "_CENTRES", 7)
    monkeypatch.setattr(clustering, "_BLOCK", 256)
    vectors = spread(0) if kind == "groups" else torch.randn(400, 6, generator=torch.Generator().manual_seed(0))
    expected = theirs(vectors, threshold=threshold, min_community_size=size)
    found = community_detection(vectors, threshold, size)
    assert [(group[0], sorted(group)) for group in found] == [(group[0], sorted(group)) for group in expected]
    assert expected or size == 50
    # The order of members is theirs, but for scores that float32 does not tell apart.
    cosines = cos_sim(vectors, vectors)
    for group, other in zip(found, expected, strict=True):
        assert torch.allclose(cosines[group[0], group], cosines[other[0], other], atol=1e-6)


def test_rows_that_are_there_many_times() -> None:
    """And of which more are alike than a block holds: whatever is held, it is not all pairs."""
    vectors = np.repeat(np.eye(3, dtype=np.float32), [3000, 20, 2], axis=0)
    found = community_detection(vectors, 1.0, 3)
    assert found == [list(range(3000)), list(range(3000, 3020))]


def test_few_and_none() -> None:
    assert community_detection(np.empty((0, 3))) == []
    assert community_detection(np.ones((3, 2)), min_community_size=4) == []
    assert community_detection(np.zeros((3, 2)), min_community_size=1) == []


def test_labels_of_communities() -> None:
    vectors = clustered()
    labels = cluster(vectors, "community", threshold=0.8, min_community_size=5)
    groups = community_detection(vectors, 0.8, 5)
    assert [np.flatnonzero(labels == number).tolist() for number in range(len(groups))] == [sorted(g) for g in groups]
    assert (labels == -1).sum() == len(vectors) - sum(map(len, groups))
    assert labels.dtype == np.int64


def test_clusters_that_stand_apart_are_found() -> None:
    """By their directions, however long they are; the largest is 0."""
    rng = np.random.default_rng(0)
    truth = rng.permutation(np.repeat([0, 1, 2], [50, 30, 10]))
    vectors = (np.eye(3)[truth] + 0.1 * rng.normal(size=(90, 3))) * rng.uniform(0.1, 10, (90, 1))
    np.testing.assert_array_equal(cluster(vectors, clusters=3), truth)
    assert cluster(torch.from_numpy(vectors[:1]), clusters=1).tolist() == [0]


def test_topic_words_follow_the_formula() -> None:
    texts = ["The cat, the CAT and a kitten", "the kitten sleeps", "the tax and the law", "law after law", "the noise"]
    labels = np.array([1, 1, 0, 0, -1])
    words = {0: "the tax and the law law after law".split(), 1: "the cat the cat and kitten the kitten sleeps".split()}
    counts = {label: Counter(some) for label, some in words.items()}
    mean = sum(map(len, words.values())) / 2
    found = topic_words(texts, labels, top_k=4)
    for label, times_of in counts.items():
        weights = {
            word: (np.sqrt(times / len(words[label])) - np.sqrt(counts[1 - label][word] / len(words[1 - label])))
            * np.log(1 + mean / (counts[0][word] + counts[1][word]))
            for word, times in times_of.items()
        }
        own = [text.lower() for text, of in zip(texts, labels, strict=True) if of == label]
        ranked = sorted(weights, key=lambda word: (sum(word in text for text in own) == 1, -weights[word], word))
        content = [word for word in ranked if word not in {"the", "and", "after"}]
        assert found[label] == content[:4]
    assert list(found) == [0, 1]
    assert (found[0][0], found[1][0]) == ("law", "kitten")
    # No other to tell it from.
    assert topic_words(["the cat, the kitten, the"], [7], top_k=2) == {7: ["cat", "kitten"]}
    assert topic_words(["", "-"], [0, 1]) == {0: [], 1: []}
    assert topic_words([], []) == {}
