"""Callbacks: what they are told, what they can do, and those that come with the library."""

from __future__ import annotations

import math
import signal
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from sbert.losses import MatryoshkaLoss, SpladeLoss, WeightedSum
from sbert.training import Callback, EarlyStopping, TensorBoard, WandB, checkpoint
from sbert.training.callbacks import Progress
from tests.children import run_in_child
from tests.training.helpers import Kill, fit, pairs, ranking, same_weights, tiny

ROWS = pairs(8, False)


def test_callbacks_are_told_what_happens(tmp_path: Path) -> None:
    seen: list[tuple[Any, ...]] = []
    model = tiny()

    class Watch(Callback):
        def on_step(self, progress: Progress) -> None:
            assert set(progress.metrics) == {"loss", "learning_rate", "gradient_norm", "sentences_per_second"}
            assert progress.model is model
            seen.append(("step", progress.step, progress.total))

        def on_evaluate(self, progress: Progress) -> None:
            seen.append(("evaluate", progress.step, dict(progress.metrics), progress.improved))

        def on_save(self, progress: Progress) -> None:
            assert progress.path is not None
            seen.append(("save", progress.step, progress.path.name))

        def on_end(self, progress: Progress) -> None:
            assert progress.path is not None
            seen.append(("end", progress.step, progress.path.name))

    scores = iter([0.3, 0.5, 0.4])
    every: dict[str, Any] = {"evaluate_every": 1, "checkpoint_every": 2, "evaluate_first": True}
    watch = Watch()
    fit(model, ROWS, ranking, output=tmp_path, steps=2, evaluator=lambda _: next(scores), callbacks=watch, **every)
    assert seen == [
        ("evaluate", 0, {"score": 0.3}, True),
        ("step", 1, 2),
        ("evaluate", 1, {"score": 0.5}, True),
        ("step", 2, 2),
        ("evaluate", 2, {"score": 0.4}, False),
        ("save", 2, "step-00000002"),
        ("end", 2, "final"),
    ]


@pytest.mark.parametrize("event", ["on_step", "on_save"])
def test_a_run_that_was_stopped_stays_stopped(event: str, tmp_path: Path) -> None:
    """In ``on_save`` at step 2, step 3 is the last."""

    class Stop(Callback):
        pass

    def stop(progress: Progress) -> None:
        if progress.step == (3 if event == "on_step" else 2):
            progress.stop()

    setattr(Stop, event, staticmethod(stop))
    settings: dict[str, Any] = {"output": tmp_path, "steps": 9, "evaluate_every": 100, "log_every": 100}
    settings |= {"checkpoint_every": 2, "evaluator": lambda _: 1.0}
    history = fit(tiny(), ROWS, ranking, callbacks=[Stop()], **settings)
    assert [entry["step"] for entry in history] == [3, 3], "its last step is logged and evaluated"
    with pytest.warns(UserWarning, match="step-00000003: a callback ended this run at step 3 of 9"):
        again = fit(tiny(), ROWS, ranking, True, **settings)
    assert [entry["step"] for entry in again] == [3, 3]


def test_early_stopping_counts_from_the_best(tmp_path: Path) -> None:
    scores = iter([3.0, 2.0, 2.5, 1.0, 1.5, 1.2, 0.1])
    options: dict[str, Any] = {"evaluator": lambda _: next(scores), "callbacks": EarlyStopping(2)}
    history = fit(tiny(), ROWS, ranking, output=tmp_path, steps=20, evaluate_every=1, minimize=True, **options)
    assert history[-1]["step"] == 6
    assert checkpoint.read(tmp_path / "checkpoints/step-00000006")[1]["best"] == ["score", 1.0]


def test_a_callback_begins_again_with_each_run() -> None:
    stopping = EarlyStopping(2)
    for _ in range(2):
        history = fit(
            tiny(), ROWS, ranking, steps=9, evaluate_every=1, log_every=100, evaluator=lambda _: 0.5, callbacks=stopping
        )
        assert [entry["step"] for entry in history if "loss" in entry] == [3], "the last losses are logged"


@pytest.mark.filterwarnings("ignore:the evaluator returned score=nan")
def test_tensorboard_reads_the_figures(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    options: dict[str, Any] = {"evaluator": lambda _: math.nan, "callbacks": TensorBoard()}
    fit(tiny(), ROWS, ranking, output=tmp_path, steps=3, evaluate_every=3, **options)
    figures = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [event.step for event in figures.Scalars("train/loss")] == [1, 2, 3]
    assert "evaluation/score" not in figures.Tags()["scalars"], "NaN is no figure"


def test_a_tracker_goes_on_with_the_same_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in that records the calls of the package."""
    calls: list[Any] = []

    def init(**options: Any) -> Any:
        calls.append(options)
        return SimpleNamespace(id="w1", log=lambda f, step: calls.append((step, sorted(f))), finish=lambda: None)

    wandb = ModuleType("wandb")
    vars(wandb)["init"] = init
    monkeypatch.setitem(sys.modules, "wandb", wandb)

    def run(*more: Callback, resume: bool = False) -> None:
        trackers = [WandB(project="cats"), *more]
        fit(tiny(), ROWS, ranking, resume, output=tmp_path, steps=4, checkpoint_every=2, callbacks=trackers)

    assert run_in_child(lambda: run(Kill(3))) == signal.SIGKILL
    run(resume=True)
    options, step, *_ = calls
    assert (options["id"], options["resume"], options["project"]) == ("w1", "allow", "cats")
    assert options["config"]["steps"] == 4
    names = sorted(f"train/{name}" for name in ("loss", "learning_rate", "gradient_norm", "sentences_per_second"))
    assert step == (3, names)


@pytest.mark.parametrize(("package", "tracker"), [("wandb", WandB()), ("torch.utils.tensorboard", TensorBoard())])
def test_packages_that_are_missing_are_named(package: str, tracker: Callback, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [package, *(name for name in sys.modules if name.startswith(f"{package}."))]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=f"needs {package.rpartition('.')[2]}; run: pip install"):
        fit(tiny(), ROWS, ranking, steps=1, callbacks=tracker)


def test_parts_of_a_loss_and_losses_of_data_sets(tmp_path: Path) -> None:
    """They are those of the plain sum; means of the same steps; and go on after a resume."""

    def parts(anchor: Tensor, positive: Tensor) -> Any:
        return {"near": ranking(anchor, positive), "norm": anchor.square().mean()}

    data, losses = {"a": ROWS, "b": pairs(12, False)[8:]}, {"a": parts, "b": ranking}
    options: dict[str, Any] = {"batch_size": 2, "log_every": 4, "steps": 6}
    line, last = fit(first := tiny(), data, losses, output=tmp_path / "whole", **options)
    assert line["loss"] == pytest.approx((line["loss_a"] + line["loss_b"]) / 2)
    assert line["loss_a"] == pytest.approx(line["loss_near"] + line["loss_norm"])
    assert last["loss_b"] != line["loss_b"]
    plain = fit(second := tiny(), data, {"a": lambda a, b: sum(parts(a, b).values()), "b": ranking}, **options)
    assert [entry["loss"] for entry in plain] == pytest.approx([line["loss"], last["loss"]])
    same_weights(first, second)
    options |= {"output": tmp_path / "killed", "checkpoint_every": 1}
    run_in_child(lambda: fit(tiny(), data, losses, callbacks=Kill(3), **options))
    again = fit(tiny(), data, losses, resume=True, **options)
    assert [entry["loss_near"] for entry in again] == [line["loss_near"], last["loss_near"]]
    combined = MatryoshkaLoss(WeightedSum((parts, 0.5), (ranking, 1.0)), dims=[16, 8])
    plain_sum = MatryoshkaLoss(lambda a, b: sum(parts(a, b).values()) / 2 + ranking(a, b), dims=[16, 8])
    one, other = (fit(tiny(), ROWS, loss, steps=1)[0]["loss"] for loss in (combined, plain_sum))
    assert one == pytest.approx(other)
    for name, loss, words in [("near", ranking, "'near' is the name"), ("b", lambda a, b: {"": a.sum()}, "part ''")]:
        with pytest.raises(ValueError, match=words):
            fit(tiny(), {"a": ROWS, name: ROWS}, {"a": parts, name: loss}, steps=2)
    alone, evaluated = fit(tiny(), ROWS, parts, steps=1, evaluation_data=ROWS)
    assert "loss_data" not in alone
    assert evaluated["evaluation"]["evaluation_loss"] > 0


def test_gradients_are_seen_before_the_step() -> None:
    seen: list[tuple[int, float]] = []

    class Watch(Callback):
        def on_gradients(self, progress: Progress) -> None:
            gradients = [p.grad for p in progress.model.parameters() if p.grad is not None]
            seen.append((progress.step, float(torch.nn.utils.get_total_norm(gradients))))
            assert progress.metrics["gradient_norm"] == pytest.approx(seen[-1][1])

    fit(tiny(), ROWS, ranking, steps=2, callbacks=Watch(), max_gradient_norm=None)
    assert [step for step, norm in seen if norm > 0] == [0, 1]


def test_the_weights_of_a_loss_follow_the_steps_of_the_run(tmp_path: Path) -> None:
    """They depend on the step alone, so that a resumed run goes on with the same; without a trainer, they are whole."""
    factors: list[float] = []

    class Noted(SpladeLoss):
        def start_step(self, step: int, total: int) -> None:
            super().start_step(step, total)
            factors.append(self._factor)

    vectors, whole, resumed = torch.rand(2, 4), tiny(), tiny()
    assert SpladeLoss(ranking, 0.5, 0.5)(vectors, vectors) > ranking(vectors, vectors) + 0.1
    loss, options = Noted(ranking, 0.5, 0.5, warmup=0.5), {"steps": 6, "output": tmp_path / "killed"}
    expected = fit(whole, ROWS, loss, steps=6)
    fit(tiny(), ROWS, WeightedSum((loss, 1.0), (ranking, 1.0)), steps=6)  # Also inside of another loss.
    assert factors == pytest.approx([1 / 9, 4 / 9, 1, 1, 1, 1] * 2)
    run_in_child(lambda: fit(tiny(), ROWS, loss, callbacks=Kill(2), checkpoint_every=1, **options))
    assert fit(resumed, ROWS, loss, resume=True, checkpoint_every=1, **options)[-1]["loss"] == expected[-1]["loss"]
    same_weights(whole, resumed)
