"""Figures of merit of rankings: functions of grades in ranked order, one ranking a row.

A grade says how relevant what stands in a place is; 0, or a place that is empty, is not relevant.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sbert.inputs.arguments import check_positive

Grades = np.ndarray | Sequence[float] | Sequence[Sequence[float]]


def _ranked(ranked: Grades, k: int | None) -> np.ndarray:
    """(..., places): the grades of the first k places."""
    grades = np.asarray(ranked, np.float64)
    if not grades.ndim:
        raise ValueError("ranked is one number; pass the grades of each ranking in their order")
    if not np.all(np.isfinite(grades)) or np.any(grades < 0):
        raise ValueError("a grade is negative, infinite or NaN; pass 0 for what is not relevant, or else more")
    return grades[..., : check_positive("k", k)]


def _relevant(ranked: Grades, relevant: Grades | None) -> np.ndarray:
    """(..., relevant): the grades of all that is relevant, the best first."""
    grades = -np.sort(-_ranked(ranked if relevant is None else relevant, None), axis=-1)
    empty = np.flatnonzero(~np.any(grades > 0, axis=-1))
    if len(empty):
        raise ValueError(f"nothing is relevant in ranking {empty[0]}, which no order could find; leave it out")
    return grades


def hit_at(ranked: Grades, k: int | None = None) -> np.ndarray:
    """Whether something relevant stands in the first k places.

    Args:
        ranked: The grade of each place.
        k: How many places count; all where it is not given.

    Shape:
        ranked: (..., places). Output: (...), 0 or 1.

    Raises:
        ValueError: If k is less than 1, or a grade is negative or not finite.

    Example:
        >>> hit_at([[0, 0, 1], [0, 1, 1]], k=2).tolist()
        [0.0, 1.0]
    """
    return np.asarray(np.any(_ranked(ranked, k) > 0, axis=-1), np.float64)


def precision_at(ranked: Grades, k: int) -> np.ndarray:
    """The part of the first k places in which something relevant stands; places that are empty count.

        P@k = |{i <= k: g_i > 0}| / k

    Args:
        ranked: The grade of each place.
        k: How many places count.

    Shape:
        ranked: (..., places). Output: (...), 0 to 1.

    Raises:
        ValueError: If k is less than 1, or a grade is negative or not finite.

    References:
        Manning et al., 2008, section 8.4. https://nlp.stanford.edu/IR-book

    Example:
        >>> precision_at([[0, 0, 1], [0, 1, 1]], k=2).tolist()
        [0.0, 0.5]
    """
    return np.asarray(np.sum(_ranked(ranked, k) > 0, axis=-1) / k)


def recall_at(ranked: Grades, k: int | None = None, relevant: Grades | None = None) -> np.ndarray:
    """The part of what is relevant that stands in the first k places.

        R@k = |{i <= k: g_i > 0}| / |relevant|

    Args:
        ranked: The grade of each place.
        k: How many places count; all where it is not given.
        relevant: The grades of all that is relevant, in any order; those of ``ranked`` where it is not given.

    Shape:
        ranked: (..., places). relevant: (..., relevant). Output: (...), 0 to 1.

    Raises:
        ValueError: If k is less than 1, a grade is negative or not finite, or nothing is relevant.

    References:
        Manning et al., 2008, section 8.4. https://nlp.stanford.edu/IR-book

    Example:
        >>> recall_at([[0, 0, 1], [0, 1, 1]], k=2).tolist()
        [0.0, 0.5]
    """
    found = np.sum(_ranked(ranked, k) > 0, axis=-1)
    return np.asarray(found / np.sum(_relevant(ranked, relevant) > 0, axis=-1))


def reciprocal_rank_at(ranked: Grades, k: int | None = None) -> np.ndarray:
    """One over the first of the first k places in which something relevant stands; 0 where there is none.

        RR@k = 1 / min{i <= k: g_i > 0}

    Args:
        ranked: The grade of each place.
        k: How many places count; all where it is not given.

    Shape:
        ranked: (..., places). Output: (...), 0 to 1; the mean of several rankings is MRR.

    Raises:
        ValueError: If k is less than 1, or a grade is negative or not finite.

    References:
        Voorhees, 1999, section 3 (MRR). https://trec.nist.gov/pubs/trec8/papers/qa_report.pdf

    Example:
        >>> reciprocal_rank_at([[0, 1, 0], [0, 0, 0]]).tolist()
        [0.5, 0.0]
    """
    grades = _ranked(ranked, k)
    places = np.arange(1, grades.shape[-1] + 1)
    return np.asarray(np.max((grades > 0) / places, axis=-1, initial=0.0))


def average_precision_at(ranked: Grades, k: int | None = None, relevant: Grades | None = None) -> np.ndarray:
    """The mean of the precisions at each relevant place, up to k; what is not found there counts as 0.

        AP@k = sum_(i <= k, g_i > 0) P@i / min(k, |relevant|)

    Args:
        ranked: The grade of each place.
        k: How many places count; all where it is not given.
        relevant: The grades of all that is relevant, in any order; those of ``ranked`` where it is not given.

    Shape:
        ranked: (..., places). relevant: (..., relevant). Output: (...), 0 to 1; the mean of several rankings is MAP.

    Raises:
        ValueError: If k is less than 1, a grade is negative or not finite, or nothing is relevant.

    References:
        Manning et al., 2008, section 8.4. https://nlp.stanford.edu/IR-book

    Example:
        >>> average_precision_at([[1, 0, 1, 0]]).round(4).tolist()
        [0.8333]
    """
    found = _ranked(ranked, k) > 0
    precisions = np.cumsum(found, axis=-1) / np.arange(1, found.shape[-1] + 1)
    most = np.sum(_relevant(ranked, relevant) > 0, axis=-1)
    return np.asarray(np.sum(precisions * found, axis=-1) / (most if k is None else np.minimum(k, most)))


def ndcg_at(ranked: Grades, k: int | None = None, relevant: Grades | None = None) -> np.ndarray:
    """The gain of the first k places, lower places counting less, over that of the best order.

        DCG@k = sum_(i <= k) g_i / log2(i + 1)        nDCG@k = DCG@k / (DCG@k of the best order)

    Args:
        ranked: The grade of each place, which is its gain.
        k: How many places count; all where it is not given.
        relevant: The grades of all that is relevant, in any order; those of ``ranked`` where it is not given.

    Shape:
        ranked: (..., places). relevant: (..., relevant). Output: (...), 0 to 1.

    Raises:
        ValueError: If k is less than 1, a grade is negative or not finite, or nothing is relevant.

    References:
        Järvelin and Kekäläinen, 2002, section 2. https://doi.org/10.1145/582415.582418

    Example:
        >>> ndcg_at([[3, 0, 2], [3, 2, 0]]).round(4).tolist()
        [0.9386, 1.0]
    """

    def gain(grades: np.ndarray) -> np.ndarray:
        return np.asarray(np.sum(grades / np.log2(np.arange(2, grades.shape[-1] + 2)), axis=-1))

    return np.asarray(gain(_ranked(ranked, k)) / gain(_relevant(ranked, relevant)[..., :k]))
