"""Figures of merit of numbers and of predictions: functions of NumPy arrays."""

from __future__ import annotations

import numpy as np

from sbert.evaluation.checks import Numbers, binary, finite, rows

# ---------------------------------------------------------------------------------------------------- correlations


def _ranks(values: np.ndarray) -> np.ndarray:
    """(rows,): the place of each value among the sorted ones, from 1; equal values share the mean of their places."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[place]


def _correlation(one: np.ndarray, two: np.ndarray) -> float:
    """Of two rows whose means are 0."""
    scale = np.sqrt((one @ one) * (two @ two))
    return float(np.clip((one @ two) / scale, -1, 1)) if scale else float("nan")


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
    first, second = rows(2, a=a, b=b)
    # Whole when doubled, so that the sums below are exact, and a constant side has a variance of just 0.
    return _correlation(*(2 * _ranks(values) - (len(values) + 1) for values in (first, second)))


def pearson(a: Numbers, b: Numbers) -> float:
    """Pearson's correlation, of the numbers themselves.

        r = cov(a, b) / (std(a) std(b))

    Args:
        a: Numbers.
        b: As many numbers.

    Shape:
        a, b: (rows,). Output: float, -1 to 1; NaN where all numbers of one side are equal.

    Raises:
        ValueError: If the shapes do not fit, there are fewer than two rows, or a number is not finite.

    References:
        Pearson, 1895. https://doi.org/10.1098/rspl.1895.0041

    Example:
        >>> round(pearson([0.1, 0.4, 0.9], [1, 2, 5]), 4)
        0.9905
    """
    centred = []
    for name, values in zip("ab", rows(2, a=a, b=b), strict=True):
        finite(name, values)
        numbers = values.astype(np.float64)
        if np.all(numbers == numbers[0]):  # The mean of equal numbers may be rounded to another.
            return float("nan")
        # So that no sum and no square is too large, or too small, for a float; a power of two rounds nothing.
        numbers = np.ldexp(numbers, -np.frexp(np.abs(numbers).max())[1])
        numbers -= numbers.mean()
        centred.append(numbers / np.abs(numbers).max())
    return _correlation(*centred)


# ----------------------------------------------------------------------------------------------------- predictions


def accuracy(predicted: Numbers, labels: Numbers) -> float:
    """The part of the predictions that is right.

        accuracy = mean_i [predicted_i = labels_i]

    Args:
        predicted: Classes.
        labels: The true ones.

    Shape:
        predicted, labels: (rows,). Output: float, 0 to 1.

    Raises:
        ValueError: If the shapes do not fit, there is no row, or a number is NaN.

    Example:
        >>> accuracy([0, 2, 1, 1], [0, 2, 2, 1])
        0.75
    """
    guessed, true = rows(1, predicted=predicted, labels=labels)
    return float(np.mean(guessed == true))


def precision(predicted: Numbers, labels: Numbers) -> float:
    """The part of what is predicted that is true; 0 where nothing is predicted.

        precision = |predicted and true| / |predicted|

    Args:
        predicted: 1 for what is predicted, or else 0.
        labels: 1 for what is true, or else 0.

    Shape:
        predicted, labels: (rows,). Output: float, 0 to 1.

    Raises:
        ValueError: If the shapes do not fit, there is no row, or a number is neither 0 nor 1.

    Example:
        >>> precision([1, 1, 0, 0], [1, 0, 1, 1])
        0.5
    """
    guessed, true = rows(1, predicted=predicted, labels=labels)
    taken, right = binary("predicted", guessed), binary("labels", true)
    return float(right[taken].mean()) if taken.any() else 0.0


def recall(predicted: Numbers, labels: Numbers) -> float:
    """The part of what is true that is predicted; 0 where nothing is true.

        recall = |predicted and true| / |true|

    Args:
        predicted: 1 for what is predicted, or else 0.
        labels: 1 for what is true, or else 0.

    Shape:
        predicted, labels: (rows,). Output: float, 0 to 1.

    Raises:
        ValueError: If the shapes do not fit, there is no row, or a number is neither 0 nor 1.

    Example:
        >>> round(recall([1, 1, 0, 0], [1, 0, 1, 1]), 4)
        0.3333
    """
    guessed, true = rows(1, predicted=predicted, labels=labels)
    taken, right = binary("predicted", guessed), binary("labels", true)
    return float(taken[right].mean()) if right.any() else 0.0


def f1(predicted: Numbers, labels: Numbers) -> float:
    """The harmonic mean of precision and recall; 0 where nothing is predicted and nothing true.

        F1 = 2 |predicted and true| / (|predicted| + |true|)

    Args:
        predicted: 1 for what is predicted, or else 0.
        labels: 1 for what is true, or else 0.

    Shape:
        predicted, labels: (rows,). Output: float, 0 to 1.

    Raises:
        ValueError: If the shapes do not fit, there is no row, or a number is neither 0 nor 1.

    References:
        van Rijsbergen, 1979, Information Retrieval, chapter 7.

    Example:
        >>> f1([1, 1, 0, 0], [1, 0, 1, 1])
        0.4
    """
    guessed, true = rows(1, predicted=predicted, labels=labels)
    taken, right = binary("predicted", guessed), binary("labels", true)
    both = int(taken.sum() + right.sum())
    return 2 * int((taken & right).sum()) / both if both else 0.0


def macro_f1(predicted: Numbers, labels: Numbers) -> float:
    """The mean over the classes of each one's F1, so that rare classes count as much as frequent ones.

        macro F1 = mean_c F1([predicted = c], [labels = c])

    Args:
        predicted: Classes.
        labels: The true ones. A class that stands on neither side does not count.

    Shape:
        predicted, labels: (rows,). Output: float, 0 to 1.

    Raises:
        ValueError: If the shapes do not fit, there is no row, or a number is NaN.

    Example:
        >>> macro_f1([0, 2, 1, 1], [0, 2, 2, 1])
        0.7777777777777777
    """
    guessed, true = rows(1, predicted=predicted, labels=labels)
    classes = np.union1d(guessed, true)
    return float(np.mean([f1(guessed == one, true == one) for one in classes]))
