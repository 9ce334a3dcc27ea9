"""STSSuite: what its figures are made of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr

from sbert import SentenceEncoder
from sbert.data import read_sick, read_sts, read_sts_year
from sbert.evaluation import STSSuite
from tests.data.test_datasets import lines, put

WORDS = "boat lake fox hills winter small quiet red seven green one two three four five six".split()


def pairs(count: int, seed: int) -> list[tuple[float, str, str]]:
    rng = np.random.default_rng(seed)
    return [(float(rng.integers(0, 6)), *(" ".join(rng.choice(WORDS, 3)) for _ in range(2))) for _ in range(count)]


def folder(root: Path) -> Path:
    """STS12 with two sub-sets, STSb and SICK."""
    header = ["score", "sentence1", "sentence2"]
    put(root / "sts" / "STS12" / "one.tsv", lines(header, *pairs(30, 0)))
    put(root / "sts" / "STS12" / "two.tsv", lines(header, *pairs(12, 1)))
    put(root / "stsb" / "test.tsv", lines(header, *pairs(20, 2)))
    put(root / "sick" / "test.tsv", lines(["relatedness", *header[1:]], *pairs(20, 3)))
    return root


def cosine_correlation(model: SentenceEncoder, rows: list[dict[str, Any]]) -> float:
    first, second = (model.encode([row[name] for row in rows]).astype(float) for name in ("first", "second"))
    cosines = (first * second).sum(1) / np.linalg.norm(first, axis=1) / np.linalg.norm(second, axis=1)
    return float(spearmanr(cosines, [row["label"] for row in rows]).statistic)


def test_figures(model: SentenceEncoder, tmp_path: Path) -> None:
    suite = STSSuite(folder(tmp_path))
    year = read_sts_year(tmp_path / "sts" / "STS12")
    one, two = (cosine_correlation(model, year[name]) for name in ("one", "two"))
    whole = cosine_correlation(model, [*year["one"], *year["two"]])
    stsb = cosine_correlation(model, read_sts(tmp_path / "stsb" / "test.tsv"))
    sick = cosine_correlation(model, read_sick(tmp_path / "sick" / "test.tsv", scale=None))
    found, sets = suite(model), {"STS12": whole, "STSb": stsb, "SICK-R": sick}
    expected = {"average": (whole + stsb + sick) / 3, **sets, "STS12_mean": (one + two) / 2}
    assert found == pytest.approx(expected)
    assert list(found) == list(expected)
    assert abs(found["STS12"] - found["STS12_mean"]) > 1e-3
    assert suite.missing == ["STS13", "STS14", "STS15", "STS16"]


def test_sentevals_layout_gives_the_same(model: SentenceEncoder, tmp_path: Path) -> None:
    flat, senteval = folder(tmp_path / "flat"), tmp_path / "downstream"
    for name in ("one", "two"):
        rows = read_sts(flat / "sts" / "STS12" / f"{name}.tsv", None)
        year = senteval / "STS" / "STS12-en-test"
        put(year / f"STS.input.{name}.txt", lines(*([row["first"], row["second"]] for row in rows)))
        put(year / f"STS.gs.{name}.txt", lines(*(row["label"] for row in rows)))
    rows = read_sts(flat / "stsb" / "test.tsv", None)
    benchmark = lines(*(["g", "f", "y", "1", row["label"], row["first"], row["second"]] for row in rows))
    put(senteval / "STS" / "STSBenchmark" / "sts-test.csv", benchmark)
    header = ["pair_ID", "sentence_A", "sentence_B", "relatedness_score", "entailment_judgment"]
    rows = read_sick(flat / "sick" / "test.tsv", scale=None)
    sick = lines(header, *([1, row["first"], row["second"], row["label"], "NEUTRAL"] for row in rows))
    put(senteval / "SICK" / "SICK_test_annotated.txt", sick)
    assert STSSuite(senteval)(model) == STSSuite(flat)(model)


def test_refuses(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere does not exist"):
        STSSuite(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match=r"has no STS12, .*SICK-R; the expected paths are STS12: sts/STS12 or"):
        STSSuite(tmp_path)
    folder(tmp_path)
    cases: list[tuple[Any, type[Exception], str]] = [
        (["STS12", "STS16"], FileNotFoundError, "no STS16; the expected paths are STS16: sts/STS16 or STS/STS16-en"),
        (["STS17"], ValueError, "'STS17' is unknown; pass one of 'STS12'"),
        ("STS12", TypeError, "sets='STS12' is one string; pass a list"),
        ([], ValueError, "sets is empty"),
    ]
    for sets, error, message in cases:
        with pytest.raises(error, match=message):
            STSSuite(tmp_path, sets)
    put(tmp_path / "stsb" / "test.tsv", "score\tsentence1\tsentence2\nx\ta\tb\n")
    with pytest.raises(ValueError, match=r"test.tsv, line 2: the label 'x' is not a number"):
        STSSuite(tmp_path)
