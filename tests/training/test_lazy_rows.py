"""Data that does not fit in memory, and several data sets in one run: the batches are those of data in memory."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch
from torch import Tensor

from sbert import SentenceEncoder, Trainer, TrainingConfig
from sbert.losses import SoftmaxLoss
from sbert.training import Rows
from sbert.training.run import checkpoint
from tests.training.test_callbacks import Kill, in_child, loaded
from tests.training.test_training import model, pairs, ranking, regression, weights

__all__ = ["model"]  # A fixture.


class Stream:
    """An iterable without a length, which counts how often a row is read."""

    def __init__(self, rows: list[Any]) -> None:
        self.rows, self.read = rows, 0

    def __iter__(self) -> Iterator[Any]:
        for row in self.rows:
            self.read += 1
            yield row


def in_order(rows: Any, batch_size: int, _: np.random.Generator) -> list[np.ndarray]:
    return [np.arange(at, min(at + batch_size, len(rows))) for at in range(0, len(rows), batch_size)]


def records(count: int) -> list[dict[str, Any]]:
    return [{"first": a, "second": b, "label": label} for a, b, label in pairs(count)]


def trained(folder: Path, data: Any, loss: Any, **settings: Any) -> SentenceEncoder:
    start = loaded(folder / "m")
    Trainer(start, data, loss, TrainingConfig(**{"steps": 6, "batch_size": 4, **settings})).fit(show_progress_bar=False)
    return start


@pytest.mark.parametrize("sampler", ["random", "no_duplicates", "length"])
def test_a_memory_mapped_dataset_trains_as_rows_in_memory(sampler: str, model: SentenceEncoder, tmp_path: Path) -> None:
    model.save(tmp_path / "m")
    rows = records(20)
    datasets.Dataset.from_list(rows).save_to_disk(tmp_path / "data")
    data = datasets.load_from_disk(tmp_path / "data")
    assert not Rows(data, regression).in_memory
    one = trained(tmp_path, rows, regression, sampler=sampler)
    two = trained(tmp_path, data, regression, sampler=sampler)
    assert torch.equal(weights(one), weights(two))


def test_a_stream_in_order_trains_as_rows_in_memory_though_killed_in_each_pass(
    model: SentenceEncoder, tmp_path: Path
) -> None:
    model.save(tmp_path / "m")
    rows = records(22)
    settings: dict[str, Any] = {"steps": 12, "batch_size": 4, "checkpoint_every": 2}
    one = trained(tmp_path, rows, regression, **settings, sampler=in_order)

    def run(*callbacks: Kill) -> SentenceEncoder:
        start = loaded(tmp_path / "m")
        config = TrainingConfig(tmp_path / "o", **settings, shuffle_buffer=1)
        Trainer(start, Stream(rows), regression, config, callbacks=callbacks).fit(resume=True, show_progress_bar=False)
        return start

    for step in (3, 9):
        assert in_child(lambda step=step: run(Kill(step))) == signal.SIGKILL  # type: ignore[misc]
        assert checkpoint.newest(tmp_path / "o/checkpoints") is not None
    assert torch.equal(weights(one), weights(run()))


def test_a_mix_of_shuffled_streams_goes_on_after_a_kill(model: SentenceEncoder, tmp_path: Path) -> None:
    model.save(tmp_path / "m")
    sizes, mix = {"a": 3, "b": 4, "c": 5}, {"a": 1.0, "b": 2.0, "c": 0.5}

    def run(output: str, *callbacks: Kill) -> Tensor:
        start, data = loaded(tmp_path / "m"), {"a": Stream(records(22)), "b": records(10), "c": Stream(records(9))}
        config = TrainingConfig(
            tmp_path / output, steps=12, batch_size=sizes, mix=mix, shuffle_buffer=7, checkpoint_every=4
        )
        Trainer(start, data, regression, config, callbacks=callbacks).fit(resume=True, show_progress_bar=False)
        return weights(start)

    assert in_child(lambda: run("killed", Kill(10))) == signal.SIGKILL
    assert torch.equal(run("whole"), run("killed"))


def test_a_stream_is_shuffled_in_its_buffer() -> None:
    rows = Rows(Stream(records(100)), regression)
    passes = [np.concatenate([at for at, _ in rows.stream(8, 20, np.random.default_rng(seed))]) for seed in (0, 0, 1)]
    assert np.array_equal(passes[0], passes[1])
    assert not np.array_equal(passes[0], passes[2])
    assert sorted(passes[0].tolist()) == list(range(100))
    assert all(row <= place + 20 for place, row in enumerate(passes[0].tolist())), "no row comes before it was read"


def test_a_stream_is_read_no_further_than_its_buffer(model: SentenceEncoder) -> None:
    source = Stream(records(5000))
    config = TrainingConfig(steps=3, batch_size=4, shuffle_buffer=50)
    Trainer(model, source, regression, config).fit(show_progress_bar=False)
    assert source.read < 2 * 1000 + 200, "the first 1,000 rows are read to recognize it"


def test_an_iterable_dataset_is_streamed(model: SentenceEncoder) -> None:
    data = datasets.Dataset.from_list(records(30)).to_iterable_dataset()
    trainer = Trainer(model, data, regression, TrainingConfig(steps=3, log_every=1))
    assert trainer.batches.datasets["data"].rows.is_stream
    assert [entry["step"] for entry in trainer.fit(show_progress_bar=False)] == [1, 2, 3]
    with pytest.raises(ValueError, match="evaluation_data is a stream"):
        Trainer(model, data, regression, TrainingConfig(steps=3), evaluation_data=data)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "data is a stream, whose length is not known; pass steps="),
        ({"steps": 2, "sampler": "length"}, "pass steps=, and neither a sampler"),
        ({"steps": 2, "mix": {"other": 1}}, "mix names 'other', but the data sets are 'data'"),
        ({"steps": 2, "batch_size": {"data": 0}}, r"batch_size\['data'\]=0 is too small"),
        ({"steps": 2, "sampler": {"data": "best"}}, "sampler='best' is unknown"),
        ({"steps": 2, "mix": {"data": 0.0}}, "has a weight that is not positive"),
    ],
)
def test_settings_that_do_not_fit(settings: dict[str, Any], words: str, model: SentenceEncoder) -> None:
    with pytest.raises(ValueError, match=words):
        Trainer(model, Stream(records(10)), regression, TrainingConfig(**settings))


def test_a_row_of_a_stream_that_does_not_fit_is_named(model: SentenceEncoder) -> None:
    rows = [*records(1500), {"first": None, "second": "b", "label": 1.0}]
    config = TrainingConfig(steps=400, batch_size=4, shuffle_buffer=1)
    with pytest.raises(TypeError, match=r"data\[1500\], row 0: column 0 holds None"):
        for _ in Trainer(model, Stream(rows), regression, config).batches.prepare(374, 376, _alone()):
            pass


def _alone() -> Any:
    from sbert.distributed.ranks import ALONE

    return ALONE


def test_each_data_set_has_its_batch_size_and_sampler_and_its_share(model: SentenceEncoder) -> None:
    def loss(first: Tensor, second: Tensor) -> Tensor:
        return (first - second).square().mean()

    data = {"a": pairs(40, False), "b": pairs(400, False)}
    config = TrainingConfig(
        steps=1, batch_size={"a": 4, "b": 8}, sampler={"a": in_order, "b": "random"}, mix={"a": 3.0, "b": 1.0}
    )
    plan = Trainer(model, data, loss, config).epoch(0)
    assert len(plan) == 10 + 50
    sizes = {name: {len(rows) for other, rows in plan if other == name} for name in data}
    assert sizes == {"a": {4}, "b": {8}}
    share = np.mean([name == "a" for name, _ in plan])
    assert 0.6 < share < 0.9
    first = [rows.tolist() for name, rows in plan if name == "a"]
    assert first[:11] == [*(list(range(at, at + 4)) for at in range(0, 40, 4)), [0, 1, 2, 3]], "and once more"


def test_incomplete_batches_are_dropped_and_samplers_know_the_epoch(model: SentenceEncoder) -> None:
    """A curriculum: short rows first."""

    def curriculum(rows: Any, batch_size: int, generator: np.random.Generator, epoch: int) -> list[np.ndarray]:
        sizes = np.array([sum(map(len, rows.texts(row))) for row in range(len(rows))])
        known = np.argsort(sizes, kind="stable")[: len(rows) * (epoch + 1) // 2]
        order = generator.permutation(known)
        return [order[at : at + batch_size] for at in range(0, len(order), batch_size)]

    config = TrainingConfig(epochs=2, batch_size=4, sampler=curriculum, drop_last=True)
    trainer = Trainer(model, pairs(22, False), ranking, config)
    assert [len(rows) for _, rows in trainer.epoch(0)] == [4, 4]
    assert [len(rows) for _, rows in trainer.epoch(1)] == [4] * 5


@pytest.mark.parametrize(("again", "settings"), [(False, {"steps": 9}), (True, {"steps": 2, "drop_last": True})])
def test_a_stream_that_gives_nothing_is_an_error(again: bool, settings: dict[str, Any], model: SentenceEncoder) -> None:
    """It was read for ever."""

    class Once:
        def __init__(self) -> None:
            self.rows = iter(records(8))

        def __iter__(self) -> Iterator[Any]:
            return iter(records(8)) if again else self.rows

    with pytest.raises(ValueError, match=r"gave no batch in pass [12]: it can be iterated once only"):
        Trainer(model, Once(), regression, TrainingConfig(batch_size=50, **settings)).fit()


def test_data_sorted_by_label_trains(model: SentenceEncoder) -> None:
    rows = [{"first": "boat", "second": "lake", "label": int(i > 1100)} for i in range(1200)]
    loss = SoftmaxLoss(model[0].dim, 2)
    assert Trainer(model, datasets.Dataset.from_list(rows), loss, TrainingConfig(steps=1)).fit()
