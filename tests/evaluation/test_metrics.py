"""Figures of merit against scipy's and scikit-learn's, against plain loops, and in closed form."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics as theirs

from sbert.evaluation import spearman
from sbert.evaluation.metrics import accuracy, f1, macro_f1, pearson, precision, recall
from sbert.evaluation.ranking import average_precision_at, hit_at, ndcg_at, precision_at, recall_at, reciprocal_rank_at
from sbert.evaluation.thresholds import average_precision, best_threshold, threshold_counts

# -------------------------------------------------------------------------------------------------- correlations


@pytest.mark.parametrize("kinds", [2, 3, 11, 1000], ids="{} values".format)
@pytest.mark.parametrize("rows", [2, 3, 10, 501])
def test_correlations_equal_scipys_with_ties(rows: int, kinds: int) -> None:
    compared = 0
    for seed in range(10):
        rng = np.random.default_rng(seed)
        a = rng.integers(0, kinds, rows) / 7
        b = a * rng.choice([-1, 1]) + rng.integers(0, kinds, rows)
        if len(set(a)) == 1 or len(set(b)) == 1:
            continue
        compared += 1
        assert spearman(a, b) == spearman(b, a) == pytest.approx(stats.spearmanr(a, b).statistic, abs=1e-12)
        assert pearson(a, b) == pytest.approx(stats.pearsonr(a, b).statistic, abs=1e-12)
        single = a.astype(np.float32)
        assert pearson(single, b) == pytest.approx(stats.pearsonr(single.astype(float), b).statistic, abs=1e-12)
    assert compared >= 2


def test_spearman_sees_order_alone_and_pearson_no_shift_and_no_scale() -> None:
    a, b = np.random.default_rng(0).normal(size=(2, 50))
    assert (spearman(a, np.exp(3 * a)), spearman(a, -(a**3))) == (1, -1)
    assert spearman([1, 2, 3, math.inf], [-math.inf, 0, 1, 2]) == 1
    for shift, scale in ((0, 1e-200), (0, 1e200), (1e6, 1), (0, 2.0**1000)):
        assert pearson(a * scale + shift, b) == pytest.approx(pearson(a, b), abs=1e-9)
        assert pearson(b, -a * scale + shift) == pytest.approx(-pearson(a, b), abs=1e-9)
    # Numbers whose sum is too large for a float.
    assert pearson(np.abs(a) * 5e307, b) == pytest.approx(pearson(np.abs(a), b), abs=1e-12)


@pytest.mark.parametrize("figure", [spearman, pearson])
def test_the_correlation_of_a_constant_is_nan(figure: Any) -> None:
    """The mean of 1,000 times 0.1 is not 0.1."""
    for rows in (2, 3, 1000):
        for constant in (0.0, 0.1, 1e300):
            assert math.isnan(figure([constant] * rows, np.arange(rows)))
            assert math.isnan(figure(np.arange(rows), [constant] * rows))


# --------------------------------------------------------------------------------------------------- predictions


@pytest.mark.parametrize("rows", [1, 2, 7, 100])
@pytest.mark.parametrize("classes", [2, 3, 20])
def test_predictions_equal_scikit_learns(rows: int, classes: int) -> None:
    for seed in range(5):
        predicted, labels = np.random.default_rng(seed).integers(0, classes, (2, rows))
        assert accuracy(predicted, labels) == theirs.accuracy_score(labels, predicted)
        expected = theirs.f1_score(labels, predicted, average="macro", zero_division=0)
        assert macro_f1(predicted, labels) == pytest.approx(expected, abs=1e-12)
        chosen, true = predicted == 1, labels == 1
        for ours, peer in ((f1, theirs.f1_score), (precision, theirs.precision_score), (recall, theirs.recall_score)):
            assert ours(chosen, true) == pytest.approx(peer(true, chosen, zero_division=0), abs=1e-12)
            assert ours(chosen.astype(float), true.tolist()) == ours(chosen, true)


def test_predictions_where_there_is_nothing() -> None:
    nothing, something = [0, 0, 0], [1, 0, 1]
    for predicted, labels in ((nothing, nothing), (nothing, something), (something, nothing)):
        assert [f1(predicted, labels), precision(predicted, labels), recall(predicted, labels)] == [0, 0, 0]
    assert macro_f1([5, 5], [5, 5]) == 1


# ---------------------------------------------------------------------------------------- scores and a threshold


def cases(rows: int, kinds: int, dtype: Any = np.float64) -> Any:
    """Scores with ties where there are few kinds, and labels of both kinds."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        labels = rng.integers(0, 2, rows)
        scores = (rng.integers(0, kinds, rows) / 7 + labels * rng.choice([0, 0.5, -0.5])).astype(dtype)
        if 0 < labels.sum() < rows:
            yield scores, labels


@pytest.mark.parametrize("kinds", [1, 2, 11, 100_000])
@pytest.mark.parametrize("rows", [2, 3, 10, 101])
def test_average_precision_equals_scikit_learns_with_ties(rows: int, kinds: int) -> None:
    every = list(cases(rows, kinds))
    assert len(every) > 5
    for scores, labels in every:
        expected = theirs.average_precision_score(labels, scores)
        assert average_precision(scores, labels) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("metric", ["accuracy", "f1"])
@pytest.mark.parametrize("kinds", [1, 2, 11, 100_000])
def test_no_threshold_is_better_than_the_best(kinds: int, metric: str, dtype: Any) -> None:
    """Every threshold that makes a difference is compared; the value is what predictions at the threshold get."""
    figure = {"accuracy": accuracy, "f1": f1}[metric]
    for scores, labels in (case for rows in (1, 2, 3, 20) for case in cases(rows, kinds, dtype)):
        numbers = scores.astype(float)
        threshold, value = best_threshold(scores, labels, metric)
        for kind in (scores, numbers):  # A threshold is a number of their kind, or comparing with it would round it.
            assert figure(kind >= threshold, labels) == pytest.approx(value, abs=1e-15)
        assert value == pytest.approx(max(figure(numbers >= other, labels) for other in [*numbers, np.inf]), abs=1e-15)


def test_the_best_threshold_in_closed_form() -> None:
    assert best_threshold([0.25, 0.75], [0, 1]) == (0.5, 1)
    assert best_threshold([0.25, 0.75], [0, 1], "f1") == (0.5, 1)
    assert best_threshold([0.25, 0.75], [1, 1]) == (0.25, 1)  # All of them.
    assert best_threshold([0.25, 0.75], [0, 0]) == (np.nextafter(0.75, 1), 1)  # None of them.
    assert best_threshold([3, 3, 3, 3], [1, 1, 1, 0]) == (3, 0.75)
    assert best_threshold([True, False], [1, 0]) == (0.5, 1)
    assert best_threshold(np.array([3, 1], np.uint8), [1, 0]) == (2, 1)


def test_neighbours_among_floats_are_told_apart() -> None:
    for low in (1.0, np.nextafter(1.0, 2), -1.0, 0.0, -np.finfo(float).max, np.nextafter(np.finfo(float).max, 0)):
        high = np.nextafter(low, np.inf)
        threshold, value = best_threshold([low, high], [0, 1])
        assert value == 1
        assert low < threshold <= high
    both = np.array([np.float32(1), np.nextafter(np.float32(1), np.float32(2))])
    assert (both >= best_threshold(both, [0, 1])[0]).tolist() == [False, True]


# -------------------------------------------------------------------------------------------------------- rankings


@pytest.mark.parametrize("k", [1, 3, 10, 50, None])
def test_rankings_equal_scikit_learns(k: int | None) -> None:
    """The whole ranking of scores without ties."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        scores, grades = rng.permutation(20).astype(float), rng.integers(0, 4, 20)
        grades[rng.integers(20)] = 3
        ranked = grades[np.argsort(-scores)]
        assert ndcg_at(ranked, k) == pytest.approx(theirs.ndcg_score([grades], [scores], k=k), abs=1e-12)
        expected = theirs.average_precision_score(grades > 0, scores)
        assert average_precision_at(ranked) == pytest.approx(expected, abs=1e-12)
        taken = scores >= np.sort(scores)[-min(k or 20, 20)]
        assert recall_at(ranked, k) == pytest.approx(theirs.recall_score(grades > 0, taken), abs=1e-12)
        assert hit_at(ranked, k) == (taken & (grades > 0)).any()
        if k is not None and k <= 20:
            expected = theirs.precision_score(grades > 0, taken, zero_division=0)
            assert precision_at(ranked, k) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("k", [1, 3, 10, 50])
def test_rankings_equal_plain_loops(k: int) -> None:
    """Rankings that are cut, where not all that is relevant was found."""
    for seed in range(50):
        rng = np.random.default_rng(seed)
        ranked = rng.integers(0, 3, 12) * rng.integers(0, 2, 12)
        relevant = rng.permutation([*ranked, *rng.integers(0, 3, 5), 1])
        hits, total = 0, int((relevant > 0).sum())
        precisions, gain, first = 0.0, 0.0, 0.0
        for place, grade in enumerate(ranked[:k].tolist(), start=1):
            gain += grade / math.log2(place + 1)
            if grade:
                hits += 1
                precisions += hits / place
                first = first or 1 / place
        best = sum(grade / math.log2(place + 2) for place, grade in enumerate(sorted(relevant)[::-1][:k]))
        assert average_precision_at(ranked, k, relevant) == pytest.approx(precisions / min(k, total))
        assert ndcg_at(ranked, k, relevant) == pytest.approx(gain / best)
        assert recall_at(ranked, k, relevant) == pytest.approx(hits / total)
        assert precision_at(ranked, k) == pytest.approx(hits / k)
        assert reciprocal_rank_at(ranked, k) == pytest.approx(first)
        assert hit_at(ranked, k) == bool(hits)


def test_rankings_in_rows() -> None:
    ranked = np.array([[0, 2, 0, 1], [1, 0, 0, 0], [0, 0, 0, 0]])
    relevant = np.array([[1, 2, 3], [1, 0, 0], [2, 2, 0]])
    assert reciprocal_rank_at(ranked).tolist() == [0.5, 1, 0]
    assert hit_at(ranked, 1).tolist() == [0, 1, 0]
    assert precision_at(ranked, 2).tolist() == [0.5, 0.5, 0]
    assert recall_at(ranked, 4, relevant) == pytest.approx([2 / 3, 1, 0])
    assert average_precision_at(ranked, 4, relevant) == pytest.approx([(1 / 2 + 2 / 4) / 3, 1, 0])
    best = 3 + 2 / math.log2(3) + 1 / 2
    assert ndcg_at(ranked, 4, relevant) == pytest.approx([(2 / math.log2(3) + 1 / math.log2(5)) / best, 1, 0])
    assert ranked.tolist()[0] == [0, 2, 0, 1]


# -------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("figures", "arguments", "message"),
    [
        ((spearman, pearson), ([1, 2], [1, 2, 3]), "2 a, 3 b; pass as many of each"),
        ((spearman,), ([[1, 2]], [[1, 2]]), r"the shape \(1, 2\); pass one-dimensional"),
        ((spearman, pearson), ([1], [1]), "1 a, 1 b; .* at least 2"),
        ((spearman, pearson), ([1, 2, 3], [1, math.nan, 3]), r"b\[1\] is NaN"),
        ((pearson,), ([1, math.inf, 2], [1, 2, 3]), r"a\[1\] is inf"),
        ((accuracy, f1, macro_f1, precision, recall), ([0, 1], [1]), "there are 2 predicted, 1 labels; pass as many"),
        ((accuracy, f1, macro_f1, precision, recall), ([], []), "0 predicted, 0 labels; .* at least 1"),
        ((accuracy, f1, macro_f1, precision, recall), ([0, 1], [1, math.nan]), r"labels\[1\] is NaN"),
        ((f1, precision, recall), ([0, 2], [0, 1]), r"\[1\] is 2; pass 1 for positive"),
        ((threshold_counts, average_precision, best_threshold), ([0.1, 0.2], [2, 1]), r"labels\[0\] is 2; pass 1"),
        ((threshold_counts, average_precision, best_threshold), ([0.1, math.inf], [0, 1]), r"scores\[1\] is inf"),
        ((threshold_counts, average_precision, best_threshold), ([0.1], [0, 1]), "1 scores, 2 labels"),
        ((average_precision,), ([0.1, 0.2], [0, 0]), "no label is 1, so there is nothing to find"),
        ((best_threshold,), ([0.1, 0.2], [0, 1], "mcc"), "metric='mcc' is unknown; pass one of 'accuracy', 'f1'"),
        ((average_precision_at, ndcg_at, recall_at), ([[1, 0], [0, 0]],), "ranking 1 has no relevant document"),
        ((average_precision_at, ndcg_at, recall_at, hit_at), ([1, 0], 0), "k=0 is too small"),
        ((average_precision_at, ndcg_at, recall_at, hit_at), ([1, -1],), "negative, infinite or NaN"),
        ((average_precision_at, ndcg_at, recall_at), ([1, 0], 1, [math.nan]), "negative, infinite or NaN"),
        ((reciprocal_rank_at, hit_at), (3,), "ranked is a single number"),
    ],
)
def test_refuses(figures: tuple[Any, ...], arguments: tuple[Any, ...], message: str) -> None:
    for figure in figures:
        with pytest.raises(ValueError, match=message):
            figure(*arguments)
