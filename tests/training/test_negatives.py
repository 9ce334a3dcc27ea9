"""Negatives that are mined while training: from which step on, by which weights, and the same after a kill."""

from __future__ import annotations

import copy
import random
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file as read_file
from torch import Tensor

from sbert import SentenceEncoder, Trainer, TrainingConfig
from sbert.losses import MarginMSELoss, MultipleNegativesRankingLoss, TripletLoss
from sbert.losses.module import LossModule
from sbert.losses.signature import Signature
from sbert.search import mine_hard_negatives
from sbert.training import Callback, Progress, Ranks, RefreshNegatives, negatives
from tests.children import run_in_child
from tests.training.helpers import Kill, fit, load, pairs, tiny, weights

PAIRS = pairs(12, False)
CORPUS = [" ".join(reversed(first.split())) for first, _ in pairs(20, False)]
ROWS = [(anchor, positive, "the sea", "a hill") for anchor, positive in PAIRS]
CONDITIONS: dict[str, Any] = {"negatives": 3, "range_min": 1, "range_max": 12}


class Keep(Callback):
    """Copies of the model, by step."""

    def __init__(self) -> None:
        self.models: dict[int, SentenceEncoder] = {}

    def on_step(self, progress: Progress) -> None:
        self.models[progress.step] = copy.deepcopy(progress.model)


class Watch(LossModule):
    """A loss, and the texts of each batch."""

    def __init__(self, loss: LossModule) -> None:
        super().__init__()
        self.loss, self.signature = loss, replace(Signature.of(loss), collates=(self.collate,))
        self.seen: list[list[tuple[str, ...]]] = []

    def collate(self, texts: list[Any], _: Any) -> tuple[list[Any], dict[str, Any]]:
        self.seen.append(texts)
        return texts, {}

    def forward(self, *columns: Tensor, **options: Any) -> Tensor:
        return self.loss(*columns, **options)  # type: ignore[no-any-return]


@pytest.mark.parametrize(("lag", "accumulation"), [(1, 1), (3, 1), (2, 2)])
def test_they_are_those_of_the_weights_some_steps_before(lag: int, accumulation: int) -> None:
    """A plain loop over the steps, with copies of the model, gives the same."""
    loss, keep = Watch(MultipleNegativesRankingLoss()), Keep()
    callbacks = [keep, RefreshNegatives(CORPUS, every=3, lag=lag, **CONDITIONS)]
    settings: dict[str, Any] = {"steps": 11, "batch_size": 4, "learning_rate": 1e-2, "accumulation": accumulation}
    fit(tiny(), ROWS, loss, callbacks=callbacks, negatives=2, **settings)
    mined: list[dict[str, set[str]]] = []
    before = torch.get_rng_state(), repr(np.random.get_state()), random.getstate()
    for number, batch in enumerate(loss.seen):
        source = max(0, (number // accumulation - lag) // 3 * 3)
        own = {anchor: {"the sea", "a hill"} for anchor, _ in PAIRS}
        if source:
            options = {"as_lists": True, **CONDITIONS}
            lists = mine_hard_negatives(keep.models[source], PAIRS, CORPUS, **options)
            own |= {row["query"]: {*row["documents"][sum(row["labels"]) :]} for row in lists}
        mined += [own] * (own not in mined)
        for anchor, positive, *chosen in batch:
            assert (anchor, positive) in PAIRS
            assert len(chosen) == len({*chosen}) == 2
            assert {*chosen} <= own[anchor]
    assert torch.equal(before[0], torch.get_rng_state()), "encoding in a thread leaves alone what training draws"
    assert before[1:] == (repr(np.random.get_state()), random.getstate())
    assert len(loss.seen) == 11 * accumulation
    assert len(mined) == {1: 4, 2: 3, 3: 3}[lag], "with other weights, others are mined"


def test_a_loss_of_triplets_and_an_anchor_without_any() -> None:
    loss = Watch(TripletLoss())
    rows = [(*pair, "the sea") for pair in PAIRS]
    with pytest.warns(UserWarning, match="12 of 12 rows have fewer than 1 negatives"):
        fit(tiny(), rows, loss, callbacks=RefreshNegatives(CORPUS, every=1, max_score=-2.0), steps=3)
    assert {row[2] for batch in loss.seen for row in batch} == {"the sea"}
    loss.seen.clear()
    fit(tiny(), rows, loss, callbacks=RefreshNegatives(CORPUS, every=1, range_min=1), steps=3)
    assert {row[2] for row in loss.seen[0]} == {"the sea"}
    assert {row[2] for row in loss.seen[-1]} <= {*CORPUS, *(positive for _, positive in PAIRS)}


def delay(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Mining takes so much longer."""

    def mine(*arguments: Any, **options: Any) -> Any:
        time.sleep(seconds if len(arguments[1]) > 1 else 0)
        return mine_hard_negatives(*arguments, **options)

    monkeypatch.setattr(negatives, "mine_hard_negatives", mine)


def train(folder: Path | None, lag: int, *callbacks: Callback, resume: bool = False) -> SentenceEncoder:
    settings: dict[str, Any] = {"batch_size": 4, "steps": 14, "learning_rate": 1e-2, "checkpoint_every": 2}
    mining = RefreshNegatives(CORPUS, every=4, lag=lag, **CONDITIONS)
    model = tiny()
    fit(model, ROWS, MultipleNegativesRankingLoss(), resume, callbacks=[mining, *callbacks], output=folder, **settings)
    return model


def test_the_time_that_mining_takes_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = weights(train(None, 2))
    assert not torch.equal(expected, weights(train(None, 3)))
    delay(monkeypatch, 0.2)
    assert torch.equal(expected, weights(train(None, 2)))


@pytest.mark.slow  # Two runs that are killed.
@pytest.mark.parametrize("step", [7, 9])
def test_a_killed_run_goes_on_bit_by_bit(step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checkpoint 6 has the weights of step 4, with which is mined; checkpoint 8 what was mined, and other weights."""
    expected = train(tmp_path / "whole", 3)
    with monkeypatch.context() as patches:
        delay(patches, 1.5)
        assert run_in_child(lambda: train(tmp_path / "killed", 3, Kill(step))) == signal.SIGKILL
    (state,) = [
        read_file(each) for each in (tmp_path / "killed").glob(f"checkpoints/step-*{step - 1}/training/state.s*")
    ]
    kinds = {".".join(name.split(".")[2:4]) for name in state if name.startswith("callback.0.")}
    assert kinds == {7: {"weights.4"}, 9: {"mined.4", "weights.8"}}[step]
    train(tmp_path / "killed", 3, resume=True)
    assert torch.equal(weights(expected), weights(load(tmp_path / "killed/final")))


def test_a_resumed_run_has_the_same_corpus(tmp_path: Path) -> None:
    def run(corpus: list[str], steps: int = 3, resume: bool = False) -> None:
        refresh = RefreshNegatives(corpus, every=2, lag=1)
        loss = MultipleNegativesRankingLoss()
        config: dict[str, Any] = {"output": tmp_path, "steps": steps, "checkpoint_every": 1}
        fit(tiny(), ROWS, loss, resume, callbacks=refresh, **config)

    run(CORPUS)
    with pytest.raises(ValueError, match="RefreshNegatives had another corpus or settings in the checkpoint"):
        run(CORPUS[1:], resume=True)


def test_what_cannot_be_mined_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    loss = MultipleNegativesRankingLoss()
    with pytest.raises(ValueError, match="lag=5 is longer than every=4"):
        RefreshNegatives(CORPUS, every=4, lag=5)
    with pytest.raises(TypeError, match="corpus is of type str"):
        RefreshNegatives("a text")
    refresh = RefreshNegatives(CORPUS)
    for data, losses in (
        (PAIRS, loss),
        ([(*row[:3], 0.5) for row in ROWS], MarginMSELoss()),
        ({"one": ROWS, "two": ROWS}, {"one": loss, "two": loss}),
    ):
        with pytest.raises(ValueError, match=r"RefreshNegatives: [02] data sets have an anchor, a positive and"):
            Trainer(tiny(), data, losses, callbacks=refresh)
    with pytest.raises(TypeError, match="takes no argument 'range_mini'; did you mean 'range_min'"):
        fit(tiny(), ROWS, loss, callbacks=RefreshNegatives(CORPUS, range_mini=3))
    Trainer(tiny(), {"one": ROWS, "two": PAIRS}, {"one": loss, "two": loss}, TrainingConfig(), callbacks=refresh)
    monkeypatch.setattr(negatives.Ranks, "join", lambda: Ranks(0, 2))
    with pytest.raises(ValueError, match="RefreshNegatives trains in one process, and without sharded=True"):
        refresh.on_begin(Progress(tiny(), 1, {"sharded": False}))


def test_an_error_while_mining_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any, **_: Any) -> Any:
        if len(arguments[1]) > 1:
            raise MemoryError("the corpus is too large")
        return []

    monkeypatch.setattr(negatives, "mine_hard_negatives", fail)
    with pytest.raises(MemoryError, match="the corpus is too large"):
        train(None, 2)


def test_frozen_weights_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside adapters, a copy of the base would take as much memory again."""
    model, copies, real = tiny(), list[Any](), RefreshNegatives._mine
    monkeypatch.setattr(RefreshNegatives, "_mine", lambda own, *args: copies.append(args[0]) or real(own, *args))
    callback = RefreshNegatives(CORPUS, every=2, lag=1, negatives=2)
    fit(model, ROWS, MultipleNegativesRankingLoss(), callbacks=callback, steps=4, freeze=["*embeddings*"])
    for name, weight in copies[1].named_parameters():
        assert (weight.data_ptr() == model.get_parameter(name).data_ptr()) == ("embeddings" in name)


def test_a_checkpoint_waits_for_the_negatives_of_the_last_one() -> None:
    """They are unpacked in the thread after a resume, and have no copy of weights."""
    callback = RefreshNegatives(CORPUS, every=2, lag=1)
    fit(tiny(), ROWS, MultipleNegativesRankingLoss(), callbacks=callback, steps=1)
    with ThreadPoolExecutor(1) as pool:
        callback._results[2] = pool.submit(lambda: time.sleep(0.1) or {})
        assert callback.state()["mined.2"].shape == (len(PAIRS), 0)
