"""Figures of merit: functions of NumPy arrays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

Numbers = np.ndarray | Sequence[float]


def _ranks(values: np.ndarray) -> np.ndarray:
    """(rows,): the place of each value among the sorted ones, from 1; equal values share the mean of their places."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[place]


def spearman(a: Numbers, b: Numbers) -> float:
    """Spearman's rank correlation: Pearson's correlation of the ranks.

        rho = cov(r(a), r(b)) / (std(r(a)) std(r(b)))

    Equal values have the mean of their ranks r.

    Args:
        a: Numbers.
        b: As many numbers.

    Shape:
        a, b: (rows,). Output: float, -1 to 1; NaN where all numbers of one side are equal.

    Raises:
        ValueError: If the shapes do not fit, there are fewer than two rows, or a number is NaN.

    References:
        Spearman, 1904. https://doi.org/10.2307/1412159
        Reimers et al., 2016 (why STS is measured with it). https://aclanthology.org/C16-1009

    Example:
        >>> spearman([0.1, 0.4, 0.9], [1, 2, 5])
        1.0
        >>> spearman([0.1, 0.9, 0.4], [1, 2, 5])
        0.5
    """
    first, second = np.asarray(a), np.asarray(b)
    if first.ndim != 1 or first.shape != second.shape:
        raise ValueError(f"the shapes {first.shape} and {second.shape} do not fit; pass two rows of as many numbers")
    if len(first) < 2:
        raise ValueError(f"{len(first)} numbers have no order to compare; pass at least 2 on each side")
    for name, values in (("a", first), ("b", second)):
        missing = np.flatnonzero(values != values)
        if len(missing):
            raise ValueError(f"{name}[{missing[0]}] is NaN, which has no rank; leave that row out")
    # Whole when doubled, so that the sums below are exact, and a constant side has a variance of just 0.
    one, two = (2 * _ranks(values) - (len(values) + 1) for values in (first, second))
    scale = np.sqrt((one @ one) * (two @ two))
    return float(np.clip((one @ two) / scale, -1, 1)) if scale else float("nan")
