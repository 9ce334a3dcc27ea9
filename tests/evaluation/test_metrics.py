"""Metrics against scipy's, scikit-learn's and trec_eval's, and in closed form."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
import pytrec_eval
from scipy import stats
from sklearn import metrics as theirs

from sbert.evaluation import paired_bootstrap
from sbert.evaluation.metrics import (
    accuracy,
    average_precision,
    best_threshold,
    f1,
    macro_f1,
    pearson,
    precision,
    recall,
    spearman,
    threshold_counts,
)
from sbert.evaluation.ranking_metrics import (
    average_precision_at,
    hit_at,
    ndcg_at,
    pad,
    precision_at,
    recall_at,
    reciprocal_rank_at,
)

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


# -------------------------------------------------------------------------------------------------------- rankings


@pytest.mark.parametrize("count", [300, 60, 5])
def test_rankings_equal_trec_eval(count: int) -> None:
    """Of 25 queries, of which three find nothing that is relevant; grades from 0 to 3."""
    rng, results, judged = np.random.default_rng(0), {}, {}
    for query in range(25):
        grades = dict.fromkeys(rng.permutation(300)[: rng.integers(1, 40)].tolist(), 0)
        grades = {document: int(rng.integers(0, 4)) for document in grades} | {next(iter(grades)): 2}
        known = [document for document in range(300) if query > 2 or not grades.get(document)][query : query + count]
        results[str(query)] = dict(zip(map(str, known), rng.random(len(known)).tolist(), strict=True))
        judged[str(query)] = {str(document): grade for document, grade in grades.items()}
    orders = {query: sorted(scores, key=scores.__getitem__, reverse=True) for query, scores in results.items()}
    ranked = pad([judged[query].get(document, 0) for document in order] for query, order in orders.items())
    relevant = pad(own.values() for own in judged.values())
    found = {
        "ndcg": ndcg_at(ranked, None, relevant),
        "ndcg_cut_10": ndcg_at(ranked, 10, relevant),
        "map": average_precision_at(ranked, None, relevant),
        "recip_rank": reciprocal_rank_at(ranked),
        "recall_10": recall_at(ranked, 10, relevant),
        "P_10": precision_at(ranked, 10),
        "success_5": hit_at(ranked, 5),
    }
    by_query = pytrec_eval.RelevanceEvaluator(judged, set(found)).evaluate(results)
    for name, values in found.items():
        np.testing.assert_allclose(values, [by_query[query][name] for query in judged], atol=1e-6, err_msg=name)


# ------------------------------------------------------------------------------------------------------- bootstrap


def test_the_interval_is_that_of_the_mean_of_many_queries() -> None:
    rng = np.random.default_rng(0)
    shared = rng.random(800)
    a, b = shared + 0.05 * rng.standard_normal(800), shared + 0.05 * rng.standard_normal(800)
    found, deviation = paired_bootstrap(a, b), 1.96 * np.std(a - b) / np.sqrt(800)
    assert found.mean == pytest.approx(np.mean(a - b))
    assert (found.low, found.high) == pytest.approx(
        (found.mean - deviation, found.mean + deviation), abs=0.1 * deviation
    )
    assert paired_bootstrap(a, b) == found
    narrower = paired_bootstrap(a, b, confidence=0.5)
    assert found.low < narrower.low < narrower.high < found.high


# -------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("figures", "arguments", "message"),
    [
        ((spearman, pearson), ([1, 2], [1, 2, 3]), "2 a, 3 b; pass as many of each"),
        ((spearman,), ([[1, 2]], [[1, 2]]), r"the shape \(1, 2\); pass one-dimensional"),
        ((pearson,), ([1, math.inf, 2], [1, 2, 3]), r"a\[1\] is inf"),
        ((accuracy, f1, macro_f1, precision, recall), ([0, 1], [1]), "there are 2 predicted, 1 labels; pass as many"),
        ((f1, precision, recall), ([0, 2], [0, 1]), r"\[1\] is 2; pass 1 for positive"),
        ((threshold_counts, average_precision, best_threshold), ([0.1, 0.2], [2, 1]), r"labels\[0\] is 2; pass 1"),
        ((threshold_counts, average_precision, best_threshold), ([0.1, math.inf], [0, 1]), r"scores\[1\] is inf"),
        ((average_precision,), ([0.1, 0.2], [0, 0]), "no label is 1, so there is nothing to find"),
        ((best_threshold,), ([0.1, 0.2], [0, 1], "mcc"), "metric='mcc' is unknown; pass one of 'accuracy', 'f1'"),
        ((average_precision_at, ndcg_at, recall_at), ([[1, 0], [0, 0]],), "ranking 1 has no relevant document"),
        ((average_precision_at, ndcg_at, recall_at, hit_at), ([1, 0], 0), "k=0 is too small"),
        ((average_precision_at, ndcg_at, recall_at), ([1, 0], 1, [math.nan]), "negative, infinite or NaN"),
        ((reciprocal_rank_at, hit_at), (3,), "ranked is a single number"),
        ((paired_bootstrap,), ([1.0, 0.5], [0.0]), "2 a, 1 b"),
        ((partial(paired_bootstrap, confidence=95),), ([1.0, 0.5], [0.0, 1.0]), "confidence=95 is not possible"),
    ],
)
def test_refuses(figures: tuple[Any, ...], arguments: tuple[Any, ...], message: str) -> None:
    for figure in figures:
        with pytest.raises(ValueError, match=message):
            figure(*arguments)
