"""Fusion: one result from several, such as those of a search by words and a search by vectors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from sbert.inputs.arguments import check_choice, check_count, check_number, known_arguments
from sbert.search.index import IndexHits
from sbert.search.store import Id

# How words and vectors are best fused: python -m tests.benchmarks.hybrid.
CANDIDATES, WEIGHTS = 1000, (0.6, 0.4)


@known_arguments
def fuse(
    *hits: IndexHits,
    top_k: int = 10,
    method: str = "reciprocal_rank",
    weights: Sequence[float] | None = None,
    constant: float = 60,
) -> IndexHits:
    r"""The best ids of several results for the same queries.

    The score of an id is the sum, over the results that have found it,

    - for ``"reciprocal_rank"`` of ``weight / (constant + rank)``, with ranks from 1;
    - for ``"weighted"`` of ``weight * (score - min) / (max - min)``, with the least and the greatest score of the query
      in that result.

    In a result without negative scores for a query, a score of 0 means that a document has nothing in common with it:
    ``Lexical`` returns such documents if no others remain. They count as not found. Ids with equal scores are in the
    order of the first result, then of the second, and so on.

    Args:
        *hits: Results of ``Index.search`` and ``Lexical.search``, in any order and of any size. A result should have
            several times ``top_k`` ids per query: an id that one result has at place 30 may be the best of all.
        top_k: Number of ids per query.
        method: ``"reciprocal_rank"``, which needs no comparable scores, or ``"weighted"``.
        weights: One weight of at least 0 per result; default: 1 for each.
        constant: Constant of reciprocal rank fusion, at least 0: the greater, the less the first ranks stand out.

    Shape:
        Each output: (queries, top_k), or fewer columns if the results have fewer different ids for a query.

    Raises:
        ValueError: If the results are of different numbers of queries, or an argument does not fit.
        TypeError: If a result is not ``IndexHits``, or the ids of one are integers, and of another strings.

    References:
        Cormack et al., 2009, Reciprocal rank fusion outperforms Condorcet and individual rank learning methods.
        https://doi.org/10.1145/1571941.1572114

    Example:
        >>> words = IndexHits(np.array([[9.0, 4.0, 0.0]]), np.array([[7, 5, 1]]))
        >>> vectors = IndexHits(np.array([[0.8, 0.7, 0.1]]), np.array([[5, 2, 7]]))
        >>> fuse(words, vectors, top_k=2).ids
        array([[5, 7]])
        >>> fuse(words, vectors, top_k=2, method="weighted", weights=[1, 3]).scores.round(4)
        array([[3.4444, 2.5714]], dtype=float32)
    """
    count = check_count("top_k", top_k)
    check_choice("method", method, ("reciprocal_rank", "weighted"))
    if check_number("constant", constant) < 0:
        raise ValueError(f"constant={constant} is negative; pass at least 0")
    queries = _queries(hits)
    factors = _weights(weights, len(hits))
    shares = [
        factor * (_normalized(each.scores) if method == "weighted" else _reciprocal(each.scores, constant))
        for each, factor in zip(hits, factors, strict=True)
    ]
    found: list[dict[Id, list[float]]] = [{} for _ in range(queries)]
    for each, share in zip(hits, shares, strict=True):
        for sums, ids, values in zip(found, each.ids.tolist(), share.tolist(), strict=True):
            for identity, value in zip(ids, values, strict=True):
                sums.setdefault(identity, []).append(value)
    width = min([count, *map(len, found)])
    # fsum does not depend on the order of the results, so that equal scores are equal.
    best = [
        sorted(((-math.fsum(values), identity) for identity, values in sums.items()), key=itemgetter(0))[:width]
        for sums in found
    ]
    scores = np.array([[-score for score, _ in row] for row in best], np.float32)
    dtype = next((each.ids.dtype for each in hits if each.ids.size), hits[0].ids.dtype)
    names: npt.NDArray[Any] = np.array([[identity for _, identity in row] for row in best], dtype)
    return IndexHits(scores.reshape(queries, width), names.reshape(queries, width))


def _queries(hits: Sequence[IndexHits]) -> int:
    """The number of queries, the same in all results."""
    for each in hits:
        if not isinstance(each, IndexHits):
            raise TypeError(
                f"a result is of type {type(each).__name__}; pass what Index.search or Lexical.search returns"
            )
    counts = [len(each.ids) for each in hits]
    if len(set(counts)) != 1:
        raise ValueError(f"{len(hits)} results for {counts} queries were given; pass results for the same queries")
    if len({each.ids.dtype.kind for each in hits if each.ids.size}) > 1:
        raise TypeError("the ids of one result are integers, those of another strings; use the same ids in both")
    if not all(np.isfinite(each.scores).all() for each in hits):
        raise ValueError("a score is NaN or infinite; pass the results of a search")
    return counts[0]


def _weights(weights: Sequence[float] | None, count: int) -> list[float]:
    checked = [1.0] * count if weights is None else [check_number("a weight", each) for each in weights]
    if len(checked) != count or min(checked, default=0) < 0:
        raise ValueError(f"weights={weights} for {count} results; pass one of at least 0 for each")
    return checked


def _reciprocal(scores: npt.NDArray[np.float32], constant: float) -> npt.NDArray[np.float64]:
    """1 / (constant + rank) of each hit. Shape: (queries, k)."""
    return np.where(_found(scores), 1 / (constant + 1 + np.arange(scores.shape[1])), 0)


def _normalized(scores: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Scores between 0 and 1; 1 if all scores of a query are equal. Shape: (queries, k)."""
    if not scores.size:
        return np.zeros(scores.shape)
    low, high = scores.min(1, keepdims=True).astype(float), scores.max(1, keepdims=True).astype(float)
    return np.where(_found(scores), np.where(high > low, (scores - low) / np.where(high > low, high - low, 1), 1), 0)


def _found(scores: npt.NDArray[np.float32]) -> npt.NDArray[np.bool_]:
    """Whether a hit has something in common with its query. Shape: (queries, k)."""
    found: npt.NDArray[np.bool_] = (scores != 0) | (scores.min(1, keepdims=True, initial=0) < 0)
    return found
