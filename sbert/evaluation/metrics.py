"""Metrics of predictions and of scores, and whether a difference is more than chance: functions of NumPy arrays."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sbert.evaluation.metric_checks import Numbers, check_binary, check_numbers
from sbert.inputs.arguments import check_choice, check_count

# ---------------------------------------------------------------------------------------------------- correlations


def _rank(values: np.ndarray) -> np.ndarray:
    """The rank of each value, from 1; equal values have the mean of their ranks. Shape: (rows,)."""
    _, position, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[position]


def _correlate(first: np.ndarray, second: np.ndarray) -> float:
    """Pearson's correlation of two arrays with mean 0."""
    scale = np.sqrt((first @ first) * (second @ second))
    return float(np.clip((first @ second) / scale, -1, 1)) if scale else float("nan")


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
        >>> from sbert.evaluation.metrics import spearman
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
        >>> from sbert.evaluation.metrics import pearson
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
        >>> from sbert.evaluation.metrics import accuracy
        >>> accuracy([0, 2, 1, 1], [0, 2, 2, 1])
        0.75
    """
    predictions, classes = check_numbers(1, predicted=predicted, labels=labels)
    return float(np.mean(predictions == classes))


def _check_positives(predicted: Numbers, labels: Numbers) -> tuple[np.ndarray, np.ndarray]:
    """Which rows are predicted to be positive, and which are. Shape: (rows,) bool each."""
    predictions, classes = check_numbers(1, predicted=predicted, labels=labels)
    return check_binary("predicted", predictions), check_binary("labels", classes)


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
        >>> from sbert.evaluation.metrics import precision
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
        >>> from sbert.evaluation.metrics import recall
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
        >>> from sbert.evaluation.metrics import f1
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
        >>> from sbert.evaluation.metrics import macro_f1
        >>> macro_f1([0, 2, 1, 1], [0, 2, 2, 1])
        0.7777777777777777
    """
    predictions, truth = check_numbers(1, predicted=predicted, labels=labels)
    return float(np.mean([f1(predictions == label, truth == label) for label in np.union1d(predictions, truth)]))


# ----------------------------------------------------------------------------------------------------------- thresholds


def threshold_counts(scores: Numbers, labels: Numbers) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All different thresholds on the scores, with the number of predicted positives and of true positives at each.

    A row is predicted positive if its score is at the threshold or above, so equal scores are on the same side. Each
    threshold is the middle between two neighbouring scores. The first predicts no row, the last all rows.

    Args:
        scores: Numbers.
        labels: 1 for positive, 0 for negative.

    Shape:
        scores, labels: (rows,). Outputs: (thresholds,) each: the thresholds, from high to low, the number of
        predicted positives, and the number of true positives.

    Raises:
        ValueError: If the shapes do not match, there are no rows, a score is not finite, or a label is not 0 or 1.

    Example:
        >>> from sbert.evaluation.metrics import threshold_counts
        >>> thresholds, predicted, correct = threshold_counts([0.25, 0.75, 0.75, 0.5], [0, 1, 0, 1])
        >>> thresholds[1:].tolist(), predicted.tolist(), correct.tolist()
        ([0.625, 0.375, 0.25], [0, 2, 3, 4], [0, 1, 2, 2])
    """
    values, true = check_numbers(1, True, scores=scores, labels=labels)
    # Floats keep their dtype, so that comparing a score with a threshold rounds nothing.
    values = values if values.dtype.kind == "f" else values.astype(np.float64)
    order = np.argsort(-values, kind="stable")
    values, positives = values[order], np.cumsum(check_binary("labels", true)[order])
    last = np.append(np.flatnonzero(values[:-1] != values[1:]), len(values) - 1)  # Of each run of equal scores.
    upper, lower = values[last], np.append(values[last[1:]], values[-1])
    middle = upper / 2 + lower / 2
    # The middle of two adjacent floats may round to the lower one, which must not be predicted positive.
    thresholds = np.where((middle > lower) & (middle <= upper), middle, upper)
    with np.errstate(over="ignore"):
        above_all = np.nextafter(values[0], np.inf)
    return np.append(above_all, thresholds), np.append(0, last + 1), np.append(0, positives[last])


def average_precision(scores: Numbers, labels: Numbers) -> float:
    """The precision at each threshold, weighted by the increase in recall.

        AP = sum_n (R_n - R_(n-1)) P_n

    P_n and R_n are precision and recall at the n-th threshold, from high to low.

    Args:
        scores: Numbers.
        labels: 1 for positive, 0 for negative.

    Shape:
        scores, labels: (rows,). Output: float, 0 to 1.

    Raises:
        ValueError: If the shapes do not match, a score is not finite, a label is not 0 or 1, or no label is 1.

    References:
        Manning et al., 2008, section 8.4. https://nlp.stanford.edu/IR-book

    Example:
        >>> from sbert.evaluation.metrics import average_precision
        >>> round(average_precision([0.9, 0.8, 0.7, 0.6], [1, 0, 1, 0]), 4)
        0.8333
    """
    _, predicted, correct = threshold_counts(scores, labels)
    if not correct[-1]:
        raise ValueError("no label is 1, so there is nothing to find; pass at least one")
    return float(np.sum(np.diff(correct) * correct[1:] / predicted[1:]) / correct[-1])


def best_threshold(scores: Numbers, labels: Numbers, metric: str = "accuracy") -> tuple[float, float]:
    """The threshold with the best value of a metric, and that value; of several best thresholds, the highest.

    Args:
        scores: Numbers.
        labels: 1 for rows that should be at the threshold or above, 0 for the others.
        metric: ``"accuracy"`` or ``"f1"``.

    Shape:
        scores, labels: (rows,). Output: the threshold and the value of the metric.

    Raises:
        ValueError: If the shapes do not match, there are no rows, a score is not finite, a label is not 0 or 1, or the
            metric is unknown.

    Example:
        >>> from sbert.evaluation.metrics import best_threshold
        >>> best_threshold([0.25, 0.5, 0.75, 0.875], [0, 1, 0, 1])
        (0.8125, 0.75)
        >>> best_threshold([0.25, 0.5, 0.75, 0.875], [0, 1, 0, 1], "f1")
        (0.375, 0.8)
    """
    check_choice("metric", metric, ("accuracy", "f1"))
    thresholds, predicted, correct = threshold_counts(scores, labels)
    count, positives = predicted[-1], correct[-1]
    if metric == "f1":
        values = 2 * correct / np.maximum(predicted + positives, 1)
    else:
        values = (2 * correct - predicted + count - positives) / count  # (true positives + true negatives) / rows
    best = int(np.argmax(values))
    return float(thresholds[best]), float(values[best])


# ---------------------------------------------------------------------------------------------------------- differences


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
        >>> from sbert.evaluation import paired_bootstrap
        >>> paired_bootstrap([0.9, 0.8, 0.7, 1.0], [0.5, 0.6, 0.4, 0.8]).visible
        True
        >>> paired_bootstrap([0.9, 0.2, 0.7, 0.1], [0.5, 0.6, 0.4, 0.8]).visible
        False
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence={confidence} is not possible; pass a number between 0 and 1, such as 0.95")
    first, second = check_numbers(2, True, a=a, b=b)
    difference, rng = first.astype(np.float64) - second, np.random.default_rng(seed)
    count = len(difference)
    means = [difference[rng.integers(count, size=count)].mean() for _ in range(check_count("resamples", resamples))]
    low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Difference(float(difference.mean()), float(low), float(high))
