"""Search of settings: the scores of the trials, pruning, and a search that is resumed after its process was killed."""

from __future__ import annotations

import math
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from sbert import SentenceEncoder, Trainer, TrainingConfig
from sbert.training import Callback, Progress, search
from tests.training.test_callbacks import in_child
from tests.training.test_training import model, pairs, regression

pytest.importorskip("optuna")
__all__ = ["model"]  # A fixture.


def made(encoder: SentenceEncoder, scores: list[float], **settings: Any) -> Trainer:
    """A trainer with an evaluation at each step, whose scores are these."""
    left = iter(scores)
    config = TrainingConfig(steps=len(scores), batch_size=4, evaluate_every=1, **settings)
    return Trainer(encoder, pairs(8), regression, config, evaluator=lambda _: {"score": next(left)})


def test_the_best_is_found(model: SentenceEncoder) -> None:
    def make(settings: dict[str, Any]) -> Trainer:
        score = -(abs(math.log10(settings["learning_rate"]) + 4) + settings["warmup"])
        return made(model, [score, score - 1], learning_rate=settings["learning_rate"])

    space = {"learning_rate": (1e-6, 1e-2, "log"), "warmup": (0, 3), "mode": ["a"]}
    found = search(space, 12, make, prune=False)
    assert sorted(trial.number for trial in found) == list(range(12))
    assert [trial.score for trial in found] == sorted((trial.score for trial in found), reverse=True)
    assert found[0].settings["warmup"] == 0
    assert {type(trial.settings["warmup"]) for trial in found} == {int}
    assert found[0].score == -abs(math.log10(found[0].settings["learning_rate"]) + 4)


def test_a_loss_is_minimized(model: SentenceEncoder) -> None:
    found = search({"x": [1, 2, 3]}, 6, lambda s: made(model, [s["x"] + 1.0, float(s["x"])], minimize=True))
    assert [trial.score for trial in found] == sorted(trial.score for trial in found)


def test_bad_trials_are_pruned(model: SentenceEncoder) -> None:
    steps: list[int] = []

    def make(settings: dict[str, Any]) -> Trainer:
        steps.append(0)
        bad = len(steps) > 6
        trainer = made(model, [float(-bad)] * 4)

        class Count(Callback):
            def on_step(self, progress: Progress) -> None:
                steps[-1] = progress.step

        trainer.callbacks = [Count()]
        return trainer

    found = search({"x": (0.0, 1.0)}, 8, make)
    assert [trial.pruned for trial in found] == [False] * 6 + [True] * 2
    assert steps == [4] * 6 + [1] * 2
    assert [trial.score for trial in found[6:]] == [-1.0] * 2


def test_a_search_that_was_killed_goes_on(model: SentenceEncoder, tmp_path: Path) -> None:
    file = tmp_path / "trials" / "log"
    space = {"x": (0.0, 1.0)}
    calls: list[dict[str, Any]] = []

    def make(settings: dict[str, Any]) -> Trainer:
        calls.append(settings)
        (tmp_path / "last").write_text(repr(settings))
        if len(calls) == 3 and os.getpid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)
        return made(model, [settings["x"]])

    parent = os.getpid()
    assert in_child(lambda: search(space, 5, make, storage=file)) == signal.SIGKILL
    cut = eval((tmp_path / "last").read_text())
    found = search(space, 5, make, storage=file)
    assert calls[0] == cut
    assert (len(calls), len(found)) == (3, 5)
    assert len({trial.settings["x"] for trial in found}) == 5
    assert search(space, 5, make, storage=file) == found
    assert len(calls) == 3


@pytest.mark.parametrize(
    ("space", "message"),
    [
        ({}, "space is empty"),
        ({"x": []}, "pass a list of choices"),
        ({"x": (1, 0)}, "pass a list of choices"),
        ({"x": (1, 2, "linear")}, "pass a list of choices"),
        ({"x": (0, 2, "log")}, "begins above 0"),
    ],
)
def test_wrong_spaces(space: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        search(space, 1, lambda _: None)  # type: ignore[arg-type, return-value]


def test_a_trainer_without_an_evaluator(model: SentenceEncoder) -> None:
    with pytest.raises(ValueError, match="has no evaluator"):
        search({"x": [1]}, 1, lambda _: Trainer(model, pairs(8), regression))


def test_a_trial_that_diverges_is_the_last(model: SentenceEncoder, tmp_path: Path) -> None:
    def make(settings: dict[str, Any]) -> Trainer:
        return made(model, [math.nan if settings["x"] == 2 else 1.0, 1.0])

    def broken(**_: Any) -> None:
        raise FloatingPointError("the loss is nan")

    with pytest.warns(UserWarning, match="trial 0: the loss is nan"):
        found = search({"x": [[1]]}, 1, lambda s: _with(make(s), broken))
    assert [(math.isnan(trial.score), trial.pruned) for trial in found] == [(True, False)]
    file = tmp_path / "log"
    search({"x": [1, 2]}, 1, make, storage=file)
    with pytest.raises(ValueError, match="holds trials of another space"):
        search({"x": [1, 2, 3]}, 2, make, storage=file)


def _with(trainer: Trainer, fit: Any) -> Trainer:
    trainer.fit = fit  # type: ignore[method-assign]
    return trainer
