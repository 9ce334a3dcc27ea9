"""Columns by position, lists of texts, words as labels; prompts and maximal lengths; folders of Parquet files."""

from __future__ import annotations

import copy
import json
import warnings
from pathlib import Path
from typing import Any

import datasets
import pyarrow
import pyarrow.parquet
import pytest
import torch

from sbert import SentenceEncoder, Trainer, TrainingConfig
from sbert.losses import MultipleNegativesRankingLoss, SoftmaxLoss
from sbert.training import ParquetRows, Ranks, Rows
from tests.training.test_callbacks import loaded
from tests.training.test_training import model, pairs, ranking, regression, weights

__all__ = ["model"]  # A fixture.
LONG = "one two three four five six seven eight nine ten boat lake fox"
ROWS = [{"anchor": f"{word} {LONG}", "positive": LONG} for word in ("red", "green", "seven", "quiet")]


def batches(model: SentenceEncoder, data: Any, loss: Any, **settings: Any) -> list[list[str]]:
    """The texts of the columns of the first row of each batch, as the model reads them."""
    trainer = Trainer(model, data, loss, TrainingConfig(steps=2, batch_size=2, **settings))
    found = []
    for batch in trainer.batches.prepare(0, 2, Ranks(0, 1)):
        first = batch.inputs.columns[0].numpy()
        tokens = batch.inputs.tokens
        rows = [tokens.ids[tokens.offsets[row] : tokens.offsets[row + 1]] for row in first]
        found.append([model.tokenizer.decode(row, skip_special_tokens=True) for row in rows])
    return found


def test_each_column_has_a_length(model: SentenceEncoder) -> None:
    for one, two in batches(model, ROWS, ranking, max_lengths={"anchor": 4, "positive": 8}):
        assert (len(one.split()), len(two.split())) == (2, 6)  # And two special tokens.
    for one, two in batches(model, ROWS, ranking, max_lengths={"anchor": 4}):
        assert (len(one.split()), two) == (2, LONG)
    for one, two in batches(model, ROWS, ranking, max_lengths=5, prompts={"anchor": "seven: ", "positive": ""}):
        assert one.split()[0] == "seven"
        assert len(two.split()) == 3


def test_each_data_set_has_prompts_and_lengths(model: SentenceEncoder) -> None:
    data = {"a": ROWS, "b": ROWS}
    prompts = {"a": {"anchor": "red ", "positive": ""}, "b": "green "}
    found = batches(model, data, ranking, prompts=prompts, max_lengths={"a": {}, "b": 4})
    assert [row[0].startswith("red") for row in found] == [True, False]
    assert found[0][1] == LONG
    assert [len(text.split()) for text in found[1]] == [2, 2]
    assert all(text.startswith("green") for text in found[1])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_lengths": {"ancor": 3}}, "max_lengths names the column 'ancor', which no data has.*mean 'anchor'"),
        ({"max_lengths": {"anchor": 0}}, r"max_lengths\['anchor'\]=0 is too small"),
        ({"max_lengths": {"a": {"anchor": 3}}}, "max_lengths names 'a', but the data sets are 'a', 'b'"),
        ({"prompts": {"a": {"ancor": ""}, "b": ""}}, "names the column 'ancor', which a has not"),
    ],
)
def test_errors(model: SentenceEncoder, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Trainer(model, {"a": ROWS, "b": ROWS}, ranking, TrainingConfig(**settings))


def test_a_resume_with_another_length_is_an_error(model: SentenceEncoder, tmp_path: Path) -> None:
    model.save(tmp_path / "m")
    config: dict[str, Any] = {"output": tmp_path / "out", "steps": 2, "batch_size": 2}
    data = [{"first": a, "second": b, "label": label} for a, b, label in pairs(4)]
    with pytest.warns(UserWarning, match="were truncated to max_lengths or max_seq_length=64"):
        Trainer(loaded(tmp_path / "m"), data, regression, TrainingConfig(**config, max_lengths={"first": 4})).fit()
    again = Trainer(loaded(tmp_path / "m"), data, regression, TrainingConfig(**config, max_lengths={"first": 5}))
    with pytest.raises(ValueError, match="max_lengths was"):
        again.fit(resume=True)
    assert torch.isfinite(weights(again.model)).all()


# ------------------------------------------------------------------------------- positions, lists, words as labels


def test_columns_by_position_are_told_once(model: SentenceEncoder, tmp_path: Path) -> None:
    data = datasets.Dataset.from_list([{"q": row["anchor"], "a": row["positive"], "id": 3} for row in ROWS])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trainer = Trainer(model, data, ranking, TrainingConfig(steps=2, batch_size=2))
        trainer.fit()
    assert [str(entry.message).partition(";")[0] for entry in caught] == [
        "data: columns by position: q is anchor, a is positive",
        f"data: {ranking.__name__} does not use id",
    ]
    assert trainer.batches.datasets["data"].rows.texts(1) == (ROWS[1]["anchor"], LONG)


@pytest.mark.parametrize("named", [True, False])
def test_a_list_of_negatives_is_several_columns(named: bool) -> None:
    rows = [("boat", "lake", ["fox", "red"]), ("one", "two", ["three", "four"])]
    names = ("anchor", "positive", "negatives")
    data: list[Any] = [dict(zip(names, row, strict=True)) for row in rows] if named else rows
    found = Rows(data, MultipleNegativesRankingLoss())
    assert found.texts(1) == ("one", "two", "three", "four")
    assert [own[-1] for own in found.names] == [*names, "negatives"]


def test_words_are_classes(model: SentenceEncoder, tmp_path: Path) -> None:
    """All of them, also those behind the first rows; a file and the card name them; held-out rows have the same."""
    texts = [
        {"first": f"boat {'fox ' * (i % 7)}", "second": "lake", "label": "yes" if i < 1000 else "no"}
        for i in range(1010)
    ]
    data = datasets.Dataset.from_list([texts[1009], *texts[:1009]])
    numbers = [{**row, "label": int(row["label"] == "yes")} for row in data]
    encoders = [copy.deepcopy(model) for _ in range(2)]
    for encoder, rows in zip(encoders, (data, numbers), strict=True):
        config = TrainingConfig(output=tmp_path / f"{rows is data}", steps=1, sampler="in_order")
        torch.manual_seed(0)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            held_out = texts[:3] if rows is data else None
            Trainer(encoder, rows, SoftmaxLoss(model[0].dim, 2), config, evaluation_data=held_out).fit()
        assert [str(entry.message) for entry in told] == ["data: the labels are the classes 0 = no, 1 = yes"] * (
            rows is data
        )
    assert torch.equal(weights(encoders[0]), weights(encoders[1]))
    assert json.loads((tmp_path / "True" / "labels.json").read_text()) == {"data": ["no", "yes"]}
    assert "Classes: 0 = no, 1 = yes." in (tmp_path / "True" / "final" / "README.md").read_text()


def test_words_of_one_loss_differ(model: SentenceEncoder) -> None:
    loss = SoftmaxLoss(model[0].dim, 2)
    data = {name: [("boat", "lake", "a"), ("fox", "red", name)] for name in ("b", "c")}
    with (
        pytest.raises(ValueError, match="b has the classes a, b, and c has a, c, for one loss"),
        pytest.warns(UserWarning, match="are the classes"),
    ):
        Trainer(model, data, loss)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Forty rows in two files of several row groups."""
    for number in range(2):
        rows = [{"first": a, "second": b, "label": label} for a, b, label in pairs(40)[number * 20 :][:20]]
        made = tmp_path / "data" / f"part{number}" / "a.parquet"
        made.parent.mkdir(parents=True)
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), made, row_group_size=7)
    return tmp_path / "data"


def test_a_folder_of_parquet_is_a_stream_in_order(model: SentenceEncoder, folder: Path, tmp_path: Path) -> None:
    model.save(tmp_path / "m")
    rows = [{"first": a, "second": b, "label": label} for a, b, label in pairs(40)]
    data = ParquetRows(folder)
    assert list(data) == list(data) == rows
    assert list(ParquetRows(folder, ["label"])) == [{"label": row["label"]} for row in rows]
    settings: dict[str, Any] = {"steps": 20, "batch_size": 4}  # Two passes.
    one, two = loaded(tmp_path / "m"), loaded(tmp_path / "m")
    Trainer(one, data, regression, TrainingConfig(**settings, shuffle_buffer=1)).fit()
    Trainer(two, rows, regression, TrainingConfig(**settings, sampler="in_order")).fit()
    assert torch.equal(weights(one), weights(two))


def test_what_is_wrong_with_parquet(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="has none"):
        ParquetRows(tmp_path / "none")
    with pytest.raises(ValueError, match=r"a\.parquet: no columns 'third'; name one that occurs once"):
        list(ParquetRows(folder, ["third"]))
    file = folder / "part1" / "a.parquet"
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(ValueError, match=r"part1.*not a valid Parquet file"):
        list(ParquetRows(folder))
