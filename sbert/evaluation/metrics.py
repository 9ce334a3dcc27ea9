"""Correlation and classification metrics: functions of NumPy arrays."""

from __future__ import annotations

import numpy as np

from sbert.evaluation.checks import Numbers, check_binary, check_numbers

# ---------------------------------------------------------------------------------------------------- correlations


def _rank(values: np.ndarray) -> np.ndarray:
    """The rank of each value, from 1; equal values have the mean of their ranks. Shape: (rows,)."""
    _, position, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[position]


def _correlate(one: np.ndarray, two: np.ndarray) -> float:
    """Pearson's correlation of two arrays with mean 0."""
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
        a, b: (rows,). Output: float, -1 to 1; NaN if all values of a or of b are equal.

    Raises:
        ValueError: If the shapes do not match, there are fewer than two rows, or a value is NaN.

    References:
        Spearman, 1904. https://doi.org/10.2307/1412159
        Reimers et al., 2016 (why STS is measured with it). https://aclanthology.org/C16-1009

    Example:
        >>> spearman([0.1, 0.4, 0.9], [1, 2, 5])
        1.0
        >>> spearman([0.1, 0.9, 0.4], [1, 2, 5])
        0.5
    """
    first, second = check_numbers(2, a=a, b=b)
    # Doubled ranks are integers, so all sums are exact, and the variance of a constant argument is exactly 0.
    return _correlate(*(2 * _rank(values) - (len(values) + 1) for values in (first, second)))


def pearson(a: Numbers, b: Numbers) -> float:
    """Pearson's linear correlation.

        r = cov(a, b) / (std(a) std(b))

    Args:
        a: Numbers.
        b: As many numbers.

    Shape:
        a, b: (rows,). Output: float, -1 to 1; NaN if all values of a or of b are equal.

    Raises:
        ValueError: If the shapes do not match, there are fewer than two rows, or a value is not finite.

    References:
        Pearson, 1895. https://doi.org/10.1098/rspl.1895.0041

    Example:
        >>> round(pearson([0.1, 0.4, 0.9], [1, 2, 5]), 4)
        0.9905
    """
    centred = []
    for values in check_numbers(2, True, a=a, b=b):
        numbers = values.astype(np.float64)
        if np.all(numbers == numbers[0]):  # Rounding may make their mean differ from them, and the variance not 0.
            return float("nan")
        # Scaled by a power of two, which is exact, so that no sum or square overflows or underflows.
        numbers = np.ldexp(numbers, -np.frexp(np.abs(numbers).max())[1])
        numbers -= numbers.mean()
        centred.append(numbers / np.abs(numbers).max())
    return _correlate(*centred)


# ----------------------------------------------------------------------------------------------------- predictions


def accuracy(predicted: Numbers, labels: Numbers) -> float:
    """The fraction of correct predictions.

        accuracy = mean_i [predicted_i = labels_i]

    Args:
        predicted: Predicted classes.
        labels: True classes.

    Shape:
        predicted, labels: (rows,). Output: float, 0 to 1.

    Raises:
        ValueError: If the shapes do not match, there are no rows, or a value is NaN.

    Example:
        >>> accuracy([0, 2, 1, 1], [0, 2, 2, 1])
        0.75
    """
    given, true = check_numbers(1, predicted=predicted, labels=labels)
    return float(np.mean(given == true))


def _check_positives(predicted: Numbers, labels: Numbers) -> tuple[np.ndarray, np.ndarray]:
    """Which rows are predicted to be positive, and which are. Shape: (rows,) bool each."""
    given, true = check_numbers(1, predicted=predicted, labels=labels)
    return check_binary("predicted", given), check_binary("labels", true)


def precision(predicted: Numbers, labels: Numbers) -> float:
    """The fraction of predicted positives that are positive; 0 if there are no predicted positives.

        precision = |predicted and true| / |predicted|

    Args:
        predicted: 1 for predicted positive, 0 for predicted negative.
        labels: 1 for positive, 0 for negative.

    Shape:
        predicted, labels: (rows,). Output: float, 0 to 1.

    Raises:
        ValueError: If the shapes do not match, there are no rows, or a value is not 0 or 1.

    Example:
        >>> precision([1, 1, 0, 0], [1, 0, 1, 1])
        0.5
    """
    positive, right = _check_positives(predicted, labels)
    return float(right[positive].mean()) if positive.any() else 0.0


def recall(predicted: Numbers, labels: Numbers) -> float:
    """The fraction of positives that are predicted positive; 0 if there are no positives.

        recall = |predicted and true| / |true|

    Args:
        predicted: 1 for predicted positive, 0 for predicted negative.
        labels: 1 for positive, 0 for negative.

    Shape:
        predicted, labels: (rows,). Output: float, 0 to 1.

    Raises:
        ValueError: If the shapes do not match, there are no rows, or a value is not 0 or 1.

    Example:
        >>> round(recall([1, 1, 0, 0], [1, 0, 1, 1]), 4)
        0.3333
    """
    positive, right = _check_positives(predicted, labels)
    return float(positive[right].mean()) if right.any() else 0.0


def f1(predicted: Numbers, labels: Numbers) -> float:
    """The harmonic mean of precision and recall; 0 if there are neither predicted nor labelled positives.

        F1 = 2 |predicted and true| / (|predicted| + |true|)

    Args:
        predicted: 1 for predicted positive, 0 for predicted negative.
        labels: 1 for positive, 0 for negative.

    Shape:
        predicted, labels: (rows,). Output: float, 0 to 1.

    Raises:
        ValueError: If the shapes do not match, there are no rows, or a value is not 0 or 1.

    References:
        van Rijsbergen, 1979, Information Retrieval, chapter 7.

    Example:
        >>> f1([1, 1, 0, 0], [1, 0, 1, 1])
        0.4
    """
    positive, right = _check_positives(predicted, labels)
    both = int(positive.sum() + right.sum())
    return 2 * int((positive & right).sum()) / both if both else 0.0


def macro_f1(predicted: Numbers, labels: Numbers) -> float:
    """The mean of the F1 of all classes, so that rare classes count as much as frequent ones.

        macro F1 = mean_c F1([predicted = c], [labels = c])

    Args:
        predicted: Predicted classes.
        labels: True classes. The mean is over the classes that occur in either argument.

    Shape:
        predicted, labels: (rows,). Output: float, 0 to 1.

    Raises:
        ValueError: If the shapes do not match, there are no rows, or a value is NaN.

    Example:
        >>> macro_f1([0, 2, 1, 1], [0, 2, 2, 1])
        0.7777777777777777
    """
    given, true = check_numbers(1, predicted=predicted, labels=labels)
    classes = np.union1d(given, true)
    return float(np.mean([f1(given == each, true == each) for each in classes]))
