"""Rows: matched with a loss's columns, labels and row data; in memory, on the disk and streamed; their samplers."""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import torch
from torch import Tensor

from sbert import Trainer, TrainingConfig
from sbert.distributed.ranks import Ranks
from sbert.losses import (
    BatchAllTripletLoss,
    CosineSimilarityLoss,
    MSELoss,
    MultipleNegativesRankingLoss,
    SoftmaxLoss,
    TripletLoss,
)
from sbert.training import ParquetRows
from sbert.training.batches import turns
from sbert.training.sampling import SAMPLERS, group_by_label, in_order, no_duplicates
from sbert.training.training_data import TrainingData
from tests.training.helpers import fit, pairs, ranking, records, regression, tiny, weights


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def flatten(batches: list[np.ndarray]) -> list[int]:
    return sorted(np.concatenate(batches).tolist())


# ------------------------------------------------------------------------------------------------------- matching


def test_names_decide_the_order() -> None:
    cases: list[tuple[Any, Any, dict[str, Any], tuple[str, ...]]] = [
        ({"negative": "n", "positive": "p", "anchor": "a"}, TripletLoss(), {}, ("a", "p", "n")),
        ({"negative_2": "n2", "negative_1": "n1", "positive": "p", "anchor": "a"}, ranking, {}, ("a", "p", "n2", "n1")),
        ({"x": "a", "y": "b", "z": "c", "w": 1.0}, regression, {"columns": ["z", "x"], "label": "w"}, ("c", "a")),
        (("a", "b", "c"), MultipleNegativesRankingLoss(), {}, ("a", "b", "c")),
        (("a", "p", ["n", "m"]), ranking, {}, ("a", "p", "n", "m")),
        ({"anchor": "a", "positive": "p", "negatives": ["n", "m"]}, ranking, {}, ("a", "p", "n", "m")),
    ]
    for row, loss, options, texts in cases:
        assert TrainingData([row], loss, **options).texts(0) == texts
    assert TrainingData([("a", "b"), ("c", "d")], regression).labels is None
    assert TrainingData([("a", "b", 1.0), ("c", "d", 0.0)], regression).labels.tolist() == [1.0, 0.0]
    vectors = TrainingData([("a", [1.0, 2.0]), ("b", np.array([3.0, 4.0]))], MSELoss())
    assert vectors.labels.tolist() == [[1.0, 2.0], [3.0, 4.0]]


def test_columns_by_position_are_said_once() -> None:
    data = datasets.Dataset.from_list([{"q": a, "a": b, "id": 3} for a, b in pairs(4, False)])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trainer = Trainer(tiny(), data, ranking, TrainingConfig(steps=2, batch_size=2))
        trainer.fit(show_progress_bar=False)
    assert [str(entry.message).partition(";")[0] for entry in caught] == [
        "data: columns by position: q is anchor, a is positive",
        "data: ranking does not use id",
    ]
    assert trainer.batches.datasets["data"].rows.texts(1) == pairs(4, False)[1]


def test_missing_columns_are_taken_by_position_if_the_order_is_clear() -> None:
    row = {"query": "a", "positive": "b", "negative": "c"}
    with pytest.warns(UserWarning, match="query is anchor, positive is positive, negative is negatives"):
        assert TrainingData([row], ranking).texts(0) == ("a", "b", "c")
    for keys in ("positive query", "question anchor", "query positive title", "query negative answer", "positive"):
        with pytest.raises(ValueError, match="rename them, or pass columns= in the order of the loss"):
            TrainingData([dict.fromkeys(keys.split(), "a")], ranking)


ROW = {"premise": "a", "hypothesis": "b", "label": 1}
SCORED = CosineSimilarityLoss()


@pytest.mark.parametrize(
    ("data", "loss", "options", "error", "words"),
    [
        ([{**ROW, "id": "x"}], SoftmaxLoss(8, 3), {}, ValueError, "takes first, second and labels; data has p"),
        ([ROW], ranking, {}, ValueError, r"takes anchor, positive, \*negatives; data has premise, hypothesis, label"),
        ([ROW], ranking, {"columns": ["premise", "text"]}, ValueError, "there is no 'text'"),
        ([ROW], ranking, {"columns": ["premise"]}, ValueError, "columns= names premise; name one column for each"),
        ([ROW], ranking, {"columns": ["premise", "hypothesis"], "label": "label"}, ValueError, "takes no labels"),
        ([{"anchor": "a", "positive": "b", "label": 1}], ranking, {}, ValueError, "has anchor, positive, label"),
        ([{"first": "a", "second": "b"}], SCORED, {}, ValueError, "none is the label"),
        ([{"first": "a", "second": "b", "label": 1, "score": 2}], SCORED, {}, ValueError, "which of them"),
        ([{"first": "a", "second": "b"}, {"first": "a"}], regression, {}, ValueError, "row 1: no 'second'"),
        ([("a", "b"), ("a", None)], ranking, {}, TypeError, "row 1: column 1 holds None"),
        ([("a", "b"), "ab"], ranking, {}, TypeError, "row 1 is of type str"),
        (["ab"], ranking, {}, TypeError, "row 0 is of type str .a dict of columns .*; pass tuples"),
        ([("a", "b")], SCORED, {}, ValueError, r"\(first, second, label\); those of data have 2 values \(str"),
        ([], ranking, {}, ValueError, "has no rows"),
        ([("a", "b")], ranking, {"columns": ["a", "b"]}, ValueError, "rows without names"),
        ([("a", "b", 0.5), ("a", "b", 4.2)], SCORED, {}, ValueError, r"data: labels\[1\] is 4.2"),
        ([("a", "b", 0.5), ("a", "b", float("nan"))], SCORED, {}, ValueError, "row 1: the label is missing"),
        ([("a", "b", "yes")], SCORED, {}, TypeError, "row 0: the label is 'yes'"),
        ([("a", "b", "x")], SoftmaxLoss(8, 3), {}, TypeError, "the label is 'x' .*read_rows.classes=...."),
        ([("a", "b", ["c", "d"]), ("a", "b", ["c"])], ranking, {}, ValueError, "row 1 has a list of 1 texts, row 0 of"),
        ([("a", [1.0, 2.0]), ("b", [1.0])], MSELoss(), {}, ValueError, "row 1: the label has the shape"),
    ],
)  # fmt: skip
def test_rows_that_do_not_fit(data: Any, loss: Any, options: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        TrainingData(data, loss, **options)


# ------------------------------------------------------------------------------------- on the disk, and streamed


class Stream:
    """An iterable without a length, which counts how often a row is read."""

    def __init__(self, rows: list[Any]) -> None:
        self.rows, self.read = rows, 0

    def __iter__(self) -> Iterator[Any]:
        for row in self.rows:
            self.read += 1
            yield row


def train(data: Any, **settings: Any) -> Tensor:
    model = tiny()
    fit(model, data, regression, **{"steps": 6, "batch_size": 4, **settings})
    return weights(model)


@pytest.mark.parametrize("sampler", ["random", "no_duplicates"])
def test_a_memory_mapped_dataset_trains_as_rows_in_memory(sampler: str, tmp_path: Path) -> None:
    rows = records(20)
    datasets.Dataset.from_list(rows).save_to_disk(tmp_path / "data")
    data = datasets.load_from_disk(tmp_path / "data")
    assert not TrainingData(data, regression).in_memory
    assert torch.equal(train(rows, sampler=sampler), train(data, sampler=sampler))


def test_a_stream_is_shuffled_in_its_buffer_and_read_no_further() -> None:
    rows = TrainingData(Stream(records(100)), regression)
    passes = [np.concatenate([at for at, _ in rows.stream(8, 20, generator(seed))]) for seed in (0, 0, 1)]
    assert np.array_equal(passes[0], passes[1])
    assert not np.array_equal(passes[0], passes[2])
    assert sorted(passes[0].tolist()) == list(range(100))
    assert all(row <= number + 20 for number, row in enumerate(passes[0].tolist())), "no row comes before it was read"
    source = Stream(records(5000))
    train(source, steps=3, shuffle_buffer=50)
    assert source.read < 2 * 1000 + 200, "the first 1,000 rows are read to recognize it"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "data is a stream, whose length is not known; pass steps="),
        ({"steps": 2, "sampler": "in_order"}, "pass steps=, and neither a sampler"),
        ({"steps": 2, "mix": {"other": 1}}, "mix names 'other', but the data sets are 'data'"),
        ({"steps": 2, "evaluation_data": Stream(records(3))}, "evaluation_data is a stream"),
        ({"steps": 2, "drop_last": True, "batch_size": 50}, "gave no batch in pass 1: it can be iterated once only"),
    ],
)
def test_settings_that_do_not_fit_a_stream(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        fit(tiny(), Stream(records(10)), regression, **settings)


def test_a_folder_of_parquet_is_a_stream_in_order(tmp_path: Path) -> None:
    rows = records(40)
    for number in range(2):
        file = tmp_path / "data" / f"part{number}" / "a.parquet"
        file.parent.mkdir(parents=True)
        table = pyarrow.Table.from_pylist(rows[number * 20 :][:20])
        pyarrow.parquet.write_table(table, file, row_group_size=7)
    data = ParquetRows(tmp_path / "data")
    assert list(data) == list(data) == rows
    assert list(ParquetRows(tmp_path / "data", ["label"])) == [{"label": row["label"]} for row in rows]
    # Two passes.
    assert torch.equal(train(data, steps=20, shuffle_buffer=1), train(rows, steps=20, sampler="in_order"))
    with pytest.raises(FileNotFoundError, match="has none"):
        ParquetRows(tmp_path / "none")


# ---------------------------------------------------------------------------------------------------- samplers


def test_no_text_stands_twice_in_a_batch() -> None:
    chance = random.Random(1)
    data = [(f"premise {chance.randint(0, 60)}", f"hypothesis {chance.randint(0, 200)}") for _ in range(400)]
    rows = TrainingData(data, ranking)
    batches = no_duplicates(rows, 16, generator())
    assert flatten(batches) == list(range(400))
    for batch in batches:
        texts = [text for row in batch for text in set(rows.texts(row))]
        assert len(texts) == len(set(texts))
    assert max(map(len, batches)) == 16
    assert len(batches) <= 28
    assert [b.tolist() for b in no_duplicates(rows, 16, generator())] == [b.tolist() for b in batches]
    everywhere = TrainingData([("the same", f"{i}") for i in range(40)], ranking)
    with pytest.warns(UserWarning, match="40 batches are needed instead of 5"):
        assert len(no_duplicates(everywhere, 8, generator())) == 40


@pytest.mark.parametrize("batch_size", [4, 5, 8])
@pytest.mark.parametrize("labels", [2, 13])
def test_each_label_of_a_batch_stands_there_twice(batch_size: int, labels: int) -> None:
    chance = random.Random(0)
    data = [(f"text {i}", chance.randrange(labels)) for i in range(101)] + [("alone", 99)]
    rows = TrainingData(data, BatchAllTripletLoss())
    with pytest.warns(UserWarning, match=r"leaves \d+ of 102 rows out of an epoch: 1 of them") as caught:
        batches = group_by_label(rows, batch_size, generator())
    used = flatten(batches)
    assert len(set(used)) == len(used)
    assert f"leaves {102 - len(used)} of 102 rows" in str(caught[0].message)
    for batch in batches:
        counts = np.unique(rows.labels[batch].numpy(), return_counts=True)[1]
        assert len(batch) <= batch_size
        assert len(counts) >= 2
        assert counts.min() >= 2
    for wrong, size, words in (
        (TrainingData([("a", 0), ("b", 1)], lambda sentence, labels: 0), 8, "no label occurs in two rows"),
        (TrainingData([("a", "b")], ranking), 8, "needs rows with one label each"),
        (rows, 3, "two rows of two labels"),
    ):
        with pytest.raises(ValueError, match=words):
            group_by_label(wrong, size, generator())


def test_mixes() -> None:
    assert list(turns([2, 5, 3], "round_robin", generator())) == [0, 1, 2, 0, 1, 2]
    mixed = np.array(list(turns([20, 50], "proportional", generator())))
    assert np.bincount(mixed).tolist() == [20, 50]
    assert 0 < mixed[:35].sum() < 35
    config = TrainingConfig(
        steps=1, batch_size={"a": 4, "b": 8}, sampler={"a": in_order, "b": "random"}, mix={"a": 3.0, "b": 1.0}
    )
    plan = Trainer(tiny(), {"a": pairs(40, False), "b": pairs(400, False)}, ranking, config).epoch(0)
    assert len(plan) == 10 + 50
    assert {(name, len(rows)) for name, rows in plan} == {("a", 4), ("b", 8)}
    assert 0.6 < np.mean([name == "a" for name, _ in plan]) < 0.9
    first = [rows.tolist() for name, rows in plan if name == "a"]
    assert first[:11] == [*(list(range(at, at + 4)) for at in range(0, 40, 4)), [0, 1, 2, 3]], "and once more"


def test_incomplete_batches_are_dropped_and_samplers_know_the_epoch() -> None:
    """A curriculum: short rows first."""
    asked = []

    def curriculum(rows: TrainingData, batch_size: int, generator: np.random.Generator, epoch: int) -> list[np.ndarray]:
        asked.append(epoch)
        sizes = np.array([sum(map(len, rows.texts(row))) for row in range(len(rows))])
        known = np.argsort(sizes, kind="stable")[: len(rows) * (epoch + 1) // 2]
        order = generator.permutation(known)
        return [order[at : at + batch_size] for at in range(0, len(order), batch_size)]

    config = TrainingConfig(epochs=2, batch_size=4, sampler=curriculum, drop_last=True)
    trainer = Trainer(tiny(), pairs(22, False), ranking, config)
    assert [[len(rows) for _, rows in trainer.epoch(epoch)] for epoch in (0, 1)] == [[4, 4], [4] * 5]
    for epochs, accumulation, steps in [(2, 1, 2 + 5), (1.4, 1, 2 + 2), (0.5, 1, 1), (2, 2, 4)]:
        config = replace(config, epochs=epochs, accumulation=accumulation)
        asked.clear()
        history = Trainer(tiny(), pairs(22, False), ranking, config).fit(show_progress_bar=False)
        assert history[-1]["step"] == steps, "all batches of all epochs"
        assert asked == sorted(asked), "epochs are planned in their order"


@pytest.mark.filterwarnings("ignore:sampler='group_by_label' leaves")
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_the_batches_of_epochs_are_counted(sampler: str) -> None:
    rows = [(text, i % 5) for i, (text, _) in enumerate(pairs(60, False))]
    trainer = Trainer(tiny(), rows, BatchAllTripletLoss(), TrainingConfig(sampler=sampler, batch_size=8))
    counts = [len(trainer.epoch(epoch)) for epoch in range(3)]
    assert trainer.batches.count(2.5) == counts[0] + counts[1] + counts[2] / 2


@pytest.mark.parametrize("kind", [datasets.DatasetDict, datasets.IterableDatasetDict])
def test_splits_for_tests_are_refused_unless_the_caller_names_them(kind: Any) -> None:
    rows = datasets.Dataset.from_list([{"anchor": a, "positive": b} for a, b in pairs(4, False)])
    rows = rows if kind is datasets.DatasetDict else rows.to_iterable_dataset()
    config = TrainingConfig(steps=1)
    for name in ("test", "validation", "dev", "Validation_matched", "dev_r1", "test-2"):
        words = rf"the splits 'train', '{name}', and '{name}' is for evaluation.*; pass data\['train'\], or a dict of"
        with pytest.raises(ValueError, match=words):
            Trainer(tiny(), kind(train=rows, **{name: rows}), ranking, config)
    for data in (kind(train=rows, more=rows), {"train": rows, "test": rows}):
        assert list(Trainer(tiny(), data, ranking, config).batches.datasets) == list(data)


@pytest.mark.parametrize("kind", ["memory", "dataset"])
def test_negatives_are_drawn_anew_in_each_epoch(model: Any, kind: str) -> None:
    rows = [
        {"anchor": f"a{i}", "positive": f"p{i}", "negatives": [f"n{i} {k}" for k in range(2 + i % 4)]} for i in range(8)
    ]
    data = rows if kind == "memory" else datasets.Dataset.from_list(rows)
    config = TrainingConfig(batch_size=4, negatives=3, seed=5)
    trainer = Trainer(model, data, MultipleNegativesRankingLoss(), config)
    assert len(trainer.batches.datasets["data"].rows.names) == 5
    batches = list(trainer.batches.prepare(0, 8, Ranks()))
    drawn: dict[str, list[tuple[str, ...]]] = {}
    for batch in batches:
        for anchor, positive, *negatives in batch.texts:
            number = int(anchor[1:])
            assert (positive, len(negatives)) == (f"p{number}", 3)
            assert {*negatives} <= {*rows[number]["negatives"]}
            assert len({*negatives}) == min(3, len(rows[number]["negatives"]))
            drawn.setdefault(anchor, []).append(tuple(negatives))
    assert {len(each) for each in drawn.values()} == {4}
    assert len({frozenset(each) for each in drawn["a3"]}) > 1  # 3 of 5, four times.
    again = list(trainer.batches.prepare(5, 8, Ranks()))  # As after a resume.
    assert [batch.texts for batch in again] == [batch.texts for batch in batches[5:]]


def test_negatives_are_drawn_where_a_loss_takes_them(model: Any) -> None:
    rows = [("a", "b", ["c", "d", "e"]), ("f", "g", ["h"])]
    losses: Any = {"one": MultipleNegativesRankingLoss(), "two": CosineSimilarityLoss()}
    trainer = Trainer(model, {"one": rows, "two": [("a", "b", 1.0)] * 2}, losses, TrainingConfig(negatives=2))
    texts = {batch.dataset.rows.name: batch.texts for batch in trainer.batches.prepare(0, 2, Ranks())}
    assert [len(row) for row in texts["one"]] == [4, 4]
    assert [len(row) for row in texts["two"]] == [2, 2]


def test_negatives_that_cannot_be_drawn(model: Any) -> None:
    rows = [
        {"anchor": "a", "positive": "b", "negatives": ["c", "d"]},
        {"anchor": "a", "positive": "b", "negatives": []},
    ]
    for data, loss, number, message in [
        (rows[:1], MultipleNegativesRankingLoss(), 3, "negatives=3, but data has 2 in a row; pass at most as many"),
        (rows, MultipleNegativesRankingLoss(), 1, "data, row 1 has a list of 0 texts.*pass at least one"),
        ([("a", "b", 1.0)], CosineSimilarityLoss(), 1, r"negatives=1, but no loss takes \*negatives"),
    ]:
        with pytest.raises(ValueError, match=message):
            Trainer(model, data, loss, TrainingConfig(negatives=number))
    uneven = [*rows[:1], {"anchor": "a", "positive": "b", "negatives": ["c"]}]
    with pytest.raises(ValueError, match="pass as many in every row, or set negatives="):
        Trainer(model, uneven, MultipleNegativesRankingLoss())


def test_batches_are_no_rows() -> None:
    """What a DataLoader collates would be a row of many columns: the positive of an anchor the next anchor."""
    loader = torch.utils.data.DataLoader(pairs(8, False), batch_size=4)  # type: ignore[arg-type, var-annotated]
    named = [{"anchor": ["a", "b"], "positive": ["c", "d"]}]

    def spread(*sentences: Tensor) -> Tensor:
        return sentences[0].sum()

    for loss in (MultipleNegativesRankingLoss(), ranking, spread):
        with pytest.raises(TypeError, match="data is a DataLoader, which gives batches, not rows; pass its dataset"):
            TrainingData(loader, loss)
        for batches in (list(loader), [tuple(batch) for batch in loader], *([named] if loss is not spread else [])):
            with pytest.raises(TypeError, match=r"column 0 holds .* takes text; pass a row for each text"):
                TrainingData(batches, loss)
