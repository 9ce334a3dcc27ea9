"""Metrics of scores that are compared with a threshold: functions of NumPy arrays."""

from __future__ import annotations

import numpy as np

from sbert.evaluation.checks import Numbers, check_binary, check_numbers
from sbert.inputs.arguments import check_choice


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
