"""A teacher's scores: the labels that losses take, of rows in any form; and a file that goes on after a stop."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

from sbert import CrossEncoder, Trainer, TrainingConfig
from sbert.losses import DistillKLDivLoss, ListNetLoss, MarginMSELoss
from sbert.search import mine_hard_negatives, score_lists, teacher
from tests import small
from tests.training.helpers import tiny

QUERY, *TEXTS = "a small boat", "the red fox runs", "nobody rows it home", "seven green hills", "ten"
MANY: list[dict[str, Any]] = [{"anchor": QUERY, "positive": text, "negatives": TEXTS[2:], "id": text} for text in TEXTS]


@pytest.fixture(scope="module")
def scorer(tmp_path_factory: pytest.TempPathFactory) -> CrossEncoder:
    return CrossEncoder(small.bert(tmp_path_factory.mktemp("teacher") / "bert"), classes=1, device="cpu")


def raw(scorer: CrossEncoder, *texts: str) -> list[float]:
    return [float(scorer.predict((QUERY, text), activation=nn.Identity())) for text in texts]


@pytest.mark.parametrize(
    "row",
    [
        {"negative": TEXTS[1], "anchor": QUERY, "positive": TEXTS[0]},
        {"anchor": QUERY, "positive": TEXTS[0], "negative_1": TEXTS[1], "negative_2": TEXTS[2]},
        {"query": QUERY, "positive": TEXTS[0], "negatives": TEXTS[1:3], "id": 7},
        {"query": QUERY, "documents": TEXTS[:3], "labels": [1, 0, 0], "negatives": TEXTS[3:]},
        {"anchor": QUERY, "positive": TEXTS[0], "negatives": TEXTS[1:3], "negative_source": "bm25"},
    ],
    ids=lambda row: ",".join(row),
)
def test_rows_of_each_form(scorer: CrossEncoder, row: dict[str, Any]) -> None:
    """Labels are the raw scores of the documents; margins those of the positive minus those of each negative."""
    (scored,) = score_lists(scorer, iter([row]))
    labels = scored.pop("labels")
    assert scored == {name: value for name, value in row.items() if name != "labels"}
    np.testing.assert_allclose(labels, raw(scorer, *TEXTS[: len(labels)]), atol=1e-6)
    assert len(labels) == (2 if "negative" in row else 3)
    if "documents" in row:
        with pytest.raises(TypeError, match="pass dicts of anchor, positive and negatives, as strings"):
            list(score_lists(scorer, [row], as_margins=True))
    else:
        (margins,) = score_lists(scorer, [row], as_margins=True)
        np.testing.assert_allclose(margins["labels"], labels[0] - np.array(labels[1:]), atol=1e-6)


def test_losses_take_them(scorer: CrossEncoder) -> None:
    config = TrainingConfig(steps=1, batch_size=2)
    rows = [{"anchor": query, "positive": TEXTS[0], "negatives": TEXTS[1:]} for query in (QUERY, "ten")]
    for loss, as_margins in ((DistillKLDivLoss(), False), (MarginMSELoss(), True)):
        Trainer(tiny(), list(score_lists(scorer, rows, as_margins=as_margins)), loss, config).fit()
    lists = mine_hard_negatives(tiny(), [(QUERY, TEXTS[0]), ("ten", TEXTS[3])], TEXTS, as_lists=True, range_max=2)
    lists = list(score_lists(scorer, lists))
    Trainer(scorer, lists, ListNetLoss(), config)


def test_rows_are_read_when_they_are_needed(scorer: CrossEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(teacher, "_ROWS", 2)
    taken: list[int] = []

    def endless() -> Iterator[Any]:
        while True:
            taken.append(1)
            yield MANY[0]

    scored = score_lists(scorer, endless())
    assert [len(next(scored)["labels"]) for _ in range(3)] == [3, 3, 3]
    assert len(taken) == 4


def test_a_file_goes_on_after_a_stop(scorer: CrossEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(teacher, "_ROWS", 2)
    file, expected = tmp_path / "scores.jsonl", list(score_lists(scorer, MANY))

    def breaking() -> Iterator[Any]:
        yield from MANY[:3]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        score_lists(scorer, breaking(), out=file)
    before = file.read_bytes()
    assert 0 < len(before.splitlines()) < 3
    file.write_bytes(before + b'{"anchor": "a sm')
    counted: list[int] = []
    real = scorer.predict
    monkeypatch.setattr(scorer, "predict", lambda pairs, **more: counted.append(len(pairs)) or real(pairs, **more))
    for _ in range(2):
        for row, other in zip(score_lists(scorer, iter(MANY), out=file), expected, strict=True):
            np.testing.assert_allclose(row.pop("labels"), other["labels"], atol=1e-6)
            assert row == {name: value for name, value in other.items() if name != "labels"}
        assert file.read_bytes().startswith(before)
        assert [json.loads(line)["id"] for line in file.read_text("utf-8").splitlines()] == TEXTS
    assert sum(counted) < 2 * 3 + 3 * len(MANY), "what is in the file is not scored again, but for its first row"


def test_another_file_or_teacher_is_refused(scorer: CrossEncoder, tmp_path: Path) -> None:
    file = tmp_path / "scores.jsonl"
    score_lists(scorer, MANY, out=file)
    before = file.read_bytes()
    calls: list[Any] = [
        lambda: score_lists(scorer, MANY[1:], out=file),
        lambda: score_lists(scorer, MANY[:2], out=file),
        lambda: score_lists(scorer, MANY, as_margins=True, out=file),
        lambda: score_lists(scorer, MANY, out=file, activation=nn.Sigmoid()),
    ]
    for call, line in zip(calls, (1, 3, 1, 1), strict=True):
        with pytest.raises(ValueError, match=f"line {line} is not this row with the scores of this teacher"):
            call()
    assert file.read_bytes() == before
    file.write_text('{"a": 1}')  # Without an end of the line, as if a process had been stopped there.
    with pytest.raises(ValueError, match="line 1 is not this row"):
        score_lists(scorer, MANY, out=file)
    assert file.read_text() == '{"a": 1}'
    for content in ("query,documents\n", "[1]\n", "\0\n"):
        file.write_text(content)
        with pytest.raises(ValueError, match="line 1 is not this row"):
            score_lists(scorer, MANY, out=file)


def test_arrays_of_a_parquet_file_are_written_as_lists(scorer: CrossEncoder, tmp_path: Path) -> None:
    row = {**MANY[0], "negatives": np.array(TEXTS[2:], object), "id": np.int64(3)}
    for _ in range(2):
        (scored,) = score_lists(scorer, [row], out=tmp_path / "scores.jsonl")
        assert (scored["negatives"], scored["id"]) == (TEXTS[2:], 3)


def test_errors_show_the_row(scorer: CrossEncoder) -> None:
    for row in ("text", (QUERY, TEXTS[0]), {"anchor": QUERY}, {"query": QUERY, "documents": []}, {"documents": TEXTS}):
        with pytest.raises(TypeError, match=r"a row is .*; pass dicts of anchor, positive and negatives, or query and"):
            list(score_lists(scorer, [MANY[0], row]))
    with pytest.raises(TypeError, match=r"a row is .*; pass dicts of anchor, positive and negatives, as strings"):
        list(score_lists(scorer, [{"anchor": QUERY, "positive": "ten"}], as_margins=True))
    with pytest.raises(ValueError, match=r"(?s)teacher is SentenceEncoder.*; pass a CrossEncoder"):
        score_lists(tiny(), MANY)
