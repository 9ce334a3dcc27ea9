"""Figures of merit of scores that are cut in two: functions of NumPy arrays."""

from __future__ import annotations

import numpy as np

from sbert.evaluation.checks import Numbers, binary, finite, rows
from sbert.inputs.arguments import check_choice


def cuts(scores: Numbers, labels: Numbers) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Every way of taking the greatest scores: where to cut, how many are taken, and how many of them are true.

    Equal scores are taken together. A cut lies in the middle between what is taken and what is not; the first takes
    nothing, and the last one everything.

    Args:
        scores: Numbers.
        labels: 1 for what is true, or else 0.

    Shape:
        scores, labels: (rows,). Outputs: (cuts,), where scores that are as great as the cut, or greater, are taken.

    Raises:
        ValueError: If the shapes do not fit, there is no row, a score is not finite, or a label is neither 0 nor 1.

    Example:
        >>> threshold, taken, true = cuts([0.25, 0.75, 0.75, 0.5], [0, 1, 0, 1])
        >>> threshold[1:].tolist(), taken.tolist(), true.tolist()
        ([0.625, 0.375, 0.25], [0, 2, 3, 4], [0, 1, 2, 2])
    """
    numbers, true = rows(1, scores=scores, labels=labels)
    finite("scores", numbers)
    # Floats stay of their kind, so that a cut is one of them, and comparing with it rounds nothing.
    numbers = numbers if numbers.dtype.kind == "f" else numbers.astype(np.float64)
    order = np.argsort(-numbers, kind="stable")
    numbers, found = numbers[order], np.cumsum(binary("labels", true)[order])
    last = np.append(np.flatnonzero(numbers[:-1] != numbers[1:]), len(numbers) - 1)  # Of each run of equal scores.
    upper, lower = numbers[last], np.append(numbers[last[1:]], numbers[-1])
    middle = upper / 2 + lower / 2
    # The middle of neighbours among floats may be the lower one, which is not to be taken.
    threshold = np.where((middle > lower) & (middle <= upper), middle, upper)
    with np.errstate(over="ignore"):
        nothing = np.nextafter(numbers[0], np.inf)
    return np.append(nothing, threshold), np.append(0, last + 1), np.append(0, found[last])


def average_precision(scores: Numbers, labels: Numbers) -> float:
    """The mean of the precisions at each of the true ones, from the greatest score down.

        AP = sum_n (R_n - R_(n-1)) P_n

    P and R are precision and recall of the n-th cut; equal scores lie on the same side of each.

    Args:
        scores: Numbers.
        labels: 1 for what is true, or else 0.

    Shape:
        scores, labels: (rows,). Output: float, 0 to 1.

    Raises:
        ValueError: If the shapes do not fit, a score is not finite, a label is neither 0 nor 1, or none is 1.

    References:
        Manning et al., 2008, section 8.4. https://nlp.stanford.edu/IR-book

    Example:
        >>> round(average_precision([0.9, 0.8, 0.7, 0.6], [1, 0, 1, 0]), 4)
        0.8333
    """
    _, taken, true = cuts(scores, labels)
    if not true[-1]:
        raise ValueError("no label is 1, and there is nothing to find; pass at least one")
    return float(np.sum(np.diff(true) * true[1:] / taken[1:]) / true[-1])


def best_threshold(scores: Numbers, labels: Numbers, metric: str = "accuracy") -> tuple[float, float]:
    """The cut of the scores that is best, and how good it is; of equally good ones, that which takes least.

    Args:
        scores: Numbers.
        labels: 1 for what should lie at the threshold or above, or else 0.
        metric: ``"accuracy"`` or ``"f1"``.

    Shape:
        scores, labels: (rows,). Output: threshold and value.

    Raises:
        ValueError: If the shapes do not fit, there is no row, a score is not finite, a label is neither 0 nor 1, or the
            metric is unknown.

    Example:
        >>> best_threshold([0.25, 0.5, 0.75, 0.875], [0, 1, 0, 1])
        (0.8125, 0.75)
        >>> best_threshold([0.25, 0.5, 0.75, 0.875], [0, 1, 0, 1], "f1")
        (0.375, 0.8)
    """
    check_choice("metric", metric, ("accuracy", "f1"))
    threshold, taken, true = cuts(scores, labels)
    if metric == "f1":
        values = 2 * true / np.maximum(taken + true[-1], 1)
    else:
        values = (2 * true - taken + taken[-1] - true[-1]) / taken[-1]  # True ones taken, others left.
    best = int(np.argmax(values))
    return float(threshold[best]), float(values[best])
