"""The best of many scores, found block by block."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import torch
import torch.nn.functional as F

from sbert.functional import SIMILARITIES

# Scores that are in memory at once.
_SCORES = 1 << 23


def top(scores: np.ndarray, k: int) -> np.ndarray:
    """The columns of each row's k greatest scores, the best first; of equal ones, the first columns.

    Shape:
        scores: (rows, columns). Output: (rows, k), or (rows, columns) where there are fewer.

    Example:
        >>> top(np.array([[1, 3, 2, 3, 3]]), 2).tolist()
        [[1, 3]]
    """
    columns = scores.shape[1]
    k = min(k, columns)
    if not scores.size:
        return np.empty((len(scores), k), np.int64)
    least = np.partition(scores, columns - k, axis=1)[:, columns - k, None]  # (rows, 1)
    above, equal = scores > least, scores == least
    room = k - above.sum(1, keepdims=True)
    chosen = above | (equal & (np.cumsum(equal, 1, dtype=np.int32) <= room))
    places = chosen.nonzero()[1].reshape(len(scores), k)
    order = np.argsort(-np.take_along_axis(scores, places, 1), axis=1, kind="stable")
    return np.take_along_axis(places, order, 1)


def _ways(similarity: str) -> tuple[Callable[[np.ndarray], np.ndarray], Callable[[np.ndarray, np.ndarray], np.ndarray]]:
    """What is done to vectors once, and how they are compared after it: cosines are dot products of unit vectors."""
    if similarity == "cosine":
        return lambda vectors: F.normalize(torch.as_tensor(vectors), dim=1).numpy(), SIMILARITIES["dot"]
    return lambda vectors: vectors, SIMILARITIES[similarity]


def nearest(queries: np.ndarray, corpus: Iterable[np.ndarray], k: int, similarity: str = "cosine") -> np.ndarray:
    """The places in a corpus of the k rows that are most similar to each query, the best first.

    Args:
        queries: Vectors.
        corpus: Blocks of vectors, one after another, so that not all of them need be in memory.
        k: How many to find.
        similarity: A name of ``SIMILARITIES``.

    Shape:
        queries: (queries, dim). Each block: (rows, dim). Output: (queries, k), or less where the corpus is smaller; of
        equal scores the first places.

    Example:
        >>> blocks = np.eye(3)[:2], np.eye(3)[2:]
        >>> nearest(np.array([[0.0, 1.0, 2.0]]), blocks, k=2).tolist()
        [[2, 1]]
    """
    scores: np.ndarray = np.empty((len(queries), 0), queries.dtype)
    places: np.ndarray = np.empty((len(queries), 0), np.int64)
    prepare, compare = _ways(similarity)
    start, queries = 0, prepare(queries)
    for block in map(prepare, corpus):
        step = max(1, _SCORES // max(1, len(block)))
        parts = []
        for low in range(0, len(queries), step):
            found = compare(queries[low : low + step], block)  # (queries, rows)
            best = top(found, k)
            parts.append((np.take_along_axis(found, best, 1), best + start))
        scores = np.concatenate([scores, np.concatenate([part for part, _ in parts])], 1)
        places = np.concatenate([places, np.concatenate([part for _, part in parts])], 1)
        # What came before stands first, so equal scores stay in the order of the corpus.
        kept = top(scores, k)
        scores, places = (np.take_along_axis(values, kept, 1) for values in (scores, places))
        start += len(block)
    return places


def mine(vectors: np.ndarray, count: int, similarity: str = "cosine") -> tuple[np.ndarray, np.ndarray]:
    """The pairs of rows that are most similar, out of all pairs, the best first.

    Args:
        vectors: To be compared with each other.
        count: How many pairs to keep.
        similarity: A name of ``SIMILARITIES``.

    Shape:
        vectors: (rows, dim). Outputs: scores (pairs,) and places (pairs, 2), the smaller one first; of equal scores
        the first places.

    Example:
        >>> scores, places = mine(np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]]), count=2)
        >>> scores.round(4).tolist(), places.tolist()
        ([0.8, 0.6], [[1, 2], [0, 2]])
    """
    scores, places = np.empty(0, vectors.dtype), np.empty((0, 2), np.int64)
    prepare, compare = _ways(similarity)
    least, vectors = -np.inf, prepare(vectors)
    step = max(1, _SCORES // (4 * max(1, len(vectors))))  # The places take four times the memory of the scores.
    for low in range(0, len(vectors), step):
        found = compare(vectors[low : low + step], vectors[low:])  # (step, rows - low)
        # Later pairs that are only as similar as the least of those kept come after it.
        pairs = np.argwhere(np.triu(found > least, 1))
        scores = np.concatenate([scores, found[pairs[:, 0], pairs[:, 1]]])
        places = np.concatenate([places, pairs + low])
        if len(scores) > 2 * count:
            kept = top(scores[None], count)[0]
            scores, places, least = scores[kept], places[kept], scores[kept[-1]]
    kept = top(scores[None], count)[0]
    return scores[kept], places[kept]
