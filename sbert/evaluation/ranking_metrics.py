"""Ranking metrics: functions of the relevance grades of the results in ranked order, one ranking per row.

A grade is 0 for a result that is not relevant, and above 0 for a relevant one. Pad shorter rankings with 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import zip_longest

import numpy as np

from sbert.inputs.arguments import check_positive

Grades = np.ndarray | Sequence[float] | Sequence[Sequence[float]]


def pad(rankings: Iterable[Iterable[float]]) -> np.ndarray:
    """Rankings of different lengths, padded with 0: (rankings, longest)."""
    rows = [list(ranking) for ranking in rankings]
    return np.reshape(np.array([*zip_longest(*rows, fillvalue=0.0)], np.float64).T, (len(rows), -1))


def _take_grades(ranked: Grades, k: int | None) -> np.ndarray:
    """The grades of the first k results, as float64: (..., results)."""
    grades = np.asarray(ranked, np.float64)
    if not grades.ndim:
        raise ValueError("ranked is a single number; pass the grades of each ranking in ranked order")
    if not np.all(np.isfinite(grades)) or np.any(grades < 0):
        raise ValueError("a grade is negative, infinite or NaN; pass 0 for what is not relevant, and more for others")
    return grades[..., : check_positive("k", k)]


def _sort_relevant(ranked: Grades, relevant: Grades | None) -> np.ndarray:
    """The grades of all relevant documents, highest first: (..., relevant)."""
    grades = -np.sort(-_take_grades(ranked if relevant is None else relevant, None), axis=-1)
    empty = np.flatnonzero(~np.any(grades > 0, axis=-1))
    if len(empty):
        raise ValueError(f"ranking {empty[0]} has no relevant document, so every order is equally good; leave it out")
    return grades


def hit_at(ranked: Grades, k: int | None = None) -> np.ndarray:
    """Whether a relevant result is among the first k.

    Args:
        ranked: The grade of each result.
        k: Number of results to use; by default all.

    Shape:
        ranked: (..., results). Output: (...), 0 or 1.

    Raises:
        ValueError: If k is less than 1, or a grade is negative or not finite.

    Example:
        >>> from sbert.evaluation.ranking_metrics import hit_at
        >>> hit_at([[0, 0, 1], [0, 1, 1]], k=2).tolist()
        [0.0, 1.0]
    """
    return np.asarray(np.any(_take_grades(ranked, k) > 0, axis=-1), np.float64)


def precision_at(ranked: Grades, k: int) -> np.ndarray:
    """The fraction of the first k results that are relevant; if there are fewer than k, it is still divided by k.

        P@k = |{i <= k: g_i > 0}| / k

    Args:
        ranked: The grade of each result.
        k: Number of results to use.

    Shape:
        ranked: (..., results). Output: (...), 0 to 1.

    Raises:
        ValueError: If k is less than 1, or a grade is negative or not finite.

    References:
        Manning et al., 2008, section 8.4. https://nlp.stanford.edu/IR-book

    Example:
        >>> from sbert.evaluation.ranking_metrics import precision_at
        >>> precision_at([[0, 0, 1], [0, 1, 1]], k=2).tolist()
        [0.0, 0.5]
    """
    return np.asarray(np.sum(_take_grades(ranked, k) > 0, axis=-1) / k)


def recall_at(ranked: Grades, k: int | None = None, relevant: Grades | None = None) -> np.ndarray:
    """The fraction of relevant documents that are among the first k results.

        R@k = |{i <= k: g_i > 0}| / |relevant|

    Args:
        ranked: The grade of each result.
        k: Number of results to use; by default all.
        relevant: The grades of all relevant documents, in any order; by default those of ``ranked``.

    Shape:
        ranked: (..., results). relevant: (..., relevant). Output: (...), 0 to 1.

    Raises:
        ValueError: If k is less than 1, a grade is negative or not finite, or no document is relevant.

    References:
        Manning et al., 2008, section 8.4. https://nlp.stanford.edu/IR-book

    Example:
        >>> from sbert.evaluation.ranking_metrics import recall_at
        >>> recall_at([[0, 0, 1], [0, 1, 1]], k=2).tolist()
        [0.0, 0.5]
    """
    hits = np.sum(_take_grades(ranked, k) > 0, axis=-1)
    return np.asarray(hits / np.sum(_sort_relevant(ranked, relevant) > 0, axis=-1))


def reciprocal_rank_at(ranked: Grades, k: int | None = None) -> np.ndarray:
    """One divided by the rank of the first relevant result; 0 if there is none among the first k.

        RR@k = 1 / min{i <= k: g_i > 0}

    Args:
        ranked: The grade of each result.
        k: Number of results to use; by default all.

    Shape:
        ranked: (..., results). Output: (...), 0 to 1; the mean of several rankings is MRR.

    Raises:
        ValueError: If k is less than 1, or a grade is negative or not finite.

    References:
        Voorhees, 1999, section 3 (MRR). https://trec.nist.gov/pubs/trec8/papers/qa_report.pdf

    Example:
        >>> from sbert.evaluation.ranking_metrics import reciprocal_rank_at
        >>> reciprocal_rank_at([[0, 1, 0], [0, 0, 0]]).tolist()
        [0.5, 0.0]
    """
    grades = _take_grades(ranked, k)
    ranks = np.arange(1, grades.shape[-1] + 1)
    return np.asarray(np.max((grades > 0) / ranks, axis=-1, initial=0.0))


def average_precision_at(ranked: Grades, k: int | None = None, relevant: Grades | None = None) -> np.ndarray:
    """The mean of the precision at the rank of each relevant document; 0 for those not among the first k.

        AP@k = sum_(i <= k, g_i > 0) P@i / min(k, |relevant|)

    Args:
        ranked: The grade of each result.
        k: Number of results to use; by default all.
        relevant: The grades of all relevant documents, in any order; by default those of ``ranked``.

    Shape:
        ranked: (..., results). relevant: (..., relevant). Output: (...), 0 to 1; the mean of several rankings is MAP.

    Raises:
        ValueError: If k is less than 1, a grade is negative or not finite, or no document is relevant.

    References:
        Manning et al., 2008, section 8.4. https://nlp.stanford.edu/IR-book

    Example:
        >>> from sbert.evaluation.ranking_metrics import average_precision_at
        >>> average_precision_at([[1, 0, 1, 0]]).round(4).tolist()
        [0.8333]
    """
    hits = _take_grades(ranked, k) > 0
    precisions = np.cumsum(hits, axis=-1) / np.arange(1, hits.shape[-1] + 1)
    total = np.sum(_sort_relevant(ranked, relevant) > 0, axis=-1)
    return np.asarray(np.sum(precisions * hits, axis=-1) / (total if k is None else np.minimum(k, total)))


def ndcg_at(ranked: Grades, k: int | None = None, relevant: Grades | None = None) -> np.ndarray:
    """Normalized discounted cumulative gain: the DCG of the first k results divided by that of the best order.

        DCG@k = sum_(i <= k) g_i / log2(i + 1)        nDCG@k = DCG@k / (DCG@k of the best order)

    Args:
        ranked: The grade of each result, which is its gain.
        k: Number of results to use; by default all.
        relevant: The grades of all relevant documents, in any order; by default those of ``ranked``.

    Shape:
        ranked: (..., results). relevant: (..., relevant). Output: (...), 0 to 1.

    Raises:
        ValueError: If k is less than 1, a grade is negative or not finite, or no document is relevant.

    References:
        Järvelin and Kekäläinen, 2002, section 2. https://doi.org/10.1145/582415.582418

    Example:
        >>> from sbert.evaluation.ranking_metrics import ndcg_at
        >>> ndcg_at([[3, 0, 2], [3, 2, 0]]).round(4).tolist()
        [0.9386, 1.0]
    """

    def gain(grades: np.ndarray) -> np.ndarray:
        return np.asarray(np.sum(grades / np.log2(np.arange(2, grades.shape[-1] + 2)), axis=-1))

    return np.asarray(gain(_take_grades(ranked, k)) / gain(_sort_relevant(ranked, relevant)[..., :k]))
