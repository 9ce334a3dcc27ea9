"""Whether a difference of two systems is more than chance: the paired bootstrap."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sbert.evaluation.checks import Numbers, check_numbers
from sbert.inputs.arguments import check_count


class Difference(NamedTuple):
    """The mean difference of two systems, with its confidence interval.

    Args:
        mean: Mean of ``a - b``.
        low: Lower end of the interval.
        high: Upper end of the interval.
    """

    mean: float
    low: float
    high: float

    @property
    def visible(self) -> bool:
        """Whether the interval excludes 0."""
        return self.low > 0 or self.high < 0


def paired_bootstrap(
    a: Numbers, b: Numbers, *, confidence: float = 0.95, resamples: int = 2000, seed: int = 0
) -> Difference:
    """The mean difference of two systems on the same queries, and its confidence interval by the paired bootstrap.

        d_i = a_i - b_i        interval: quantiles of mean(d_i*), with i* drawn with replacement

    Args:
        a: A metric of one system, such as nDCG, for each query.
        b: The same of another system, for the same queries in the same order.
        confidence: Probability of the interval.
        resamples: Number of samples of the queries.
        seed: Seed of the samples.

    Shape:
        a, b: (queries,).

    Raises:
        ValueError: If the shapes do not match, there are fewer than two queries, a value is not finite, or
            ``confidence`` is not between 0 and 1.

    References:
        Sakai, 2006 (the bootstrap in information retrieval). https://doi.org/10.1145/1148170.1148261

    Example:
        >>> paired_bootstrap([0.9, 0.8, 0.7, 1.0], [0.5, 0.6, 0.4, 0.8]).visible
        True
        >>> paired_bootstrap([0.9, 0.2, 0.7, 0.1], [0.5, 0.6, 0.4, 0.8]).visible
        False
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence={confidence} is not possible; pass a number between 0 and 1, such as 0.95")
    one, two = check_numbers(2, True, a=a, b=b)
    difference, rng = one.astype(np.float64) - two, np.random.default_rng(seed)
    count = len(difference)
    means = [difference[rng.integers(count, size=count)].mean() for _ in range(check_count("resamples", resamples))]
    low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Difference(float(difference.mean()), float(low), float(high))
