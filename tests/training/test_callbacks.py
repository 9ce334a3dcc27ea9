"""Callbacks, optimizers and schedules: what they do, and that a killed run goes on as if nothing had happened."""

from __future__ import annotations

import math
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from sbert import SentenceEncoder, Trainer, TrainingConfig
from sbert.losses import SoftmaxLoss
from sbert.training import (
    AveragedWeights,
    Callback,
    EarlyStopping,
    MLflow,
    Progress,
    PushToHub,
    TensorBoard,
    WandB,
)
from sbert.training.run import checkpoint
from tests.training.test_training import fit, model, pairs, ranking, regression, weights

__all__ = ["model"]  # A fixture.


def loaded(folder: Path) -> SentenceEncoder:
    """The tiny model that a test saved."""
    return SentenceEncoder(folder, device="cpu")


class Counting(torch.optim.SGD):
    """Has a state in its groups of weights, as Prodigy has."""

    def __init__(self, groups: Any) -> None:
        super().__init__(groups)
        for group in self.param_groups:
            group["count"] = 0

    def step(self, closure: Any = None) -> Any:
        """As many times as steps were taken."""
        for group in self.param_groups:
            group["count"] += 1
            group["lr"] *= group["count"]
        return super().step(closure)


class Kill(Callback):
    """Ends the process at a step, as kill -9 does."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step(self, progress: Progress) -> None:
        if progress.step == self.step:
            os.kill(os.getpid(), signal.SIGKILL)


def in_child(run: Callable[[], object]) -> int:
    """Run in a forked child; its wait status."""
    child = os.fork()
    if not child:
        try:
            run()
        finally:
            os._exit(1)
    return os.waitpid(child, 0)[1]


OPTIMIZERS: dict[str, Any] = {
    "adamw": {"betas": (0.8, 0.99), "eps": 1e-7},
    "adafactor": {"optimizer": "adafactor"},
    "muon": {"optimizer": "muon"},
    "function": {"optimizer": lambda groups: torch.optim.SGD(groups, momentum=0.9)},
    "state in groups": {"optimizer": Counting},
    "cosine": {"schedule": "cosine", "warmup": 3},
    "constant": {"schedule": "constant"},
    "own schedule": {"schedule": lambda done: (1 - done) ** 2},
    "rates": {"learning_rates": {"loss.*": 1e-2, "0.auto_model.encoder.layer.0.*": 1e-3}},
    "frozen": {"freeze": ["0.auto_model.embeddings.*"]},
    "checkpointing": {"gradient_checkpointing": True},
    "stopping": {"callbacks": lambda: [EarlyStopping(2)], "evaluator": lambda _: 0.5},
    "averaged": {"callbacks": lambda: [AveragedWeights(0.9)]},
    "lower": {"minimize": True, "evaluator": {"a": lambda _: {"x": 1.0}, "b": lambda m: float(weights(m).sum())}},
}


@pytest.mark.parametrize("settings", OPTIMIZERS.values(), ids=list(OPTIMIZERS))
def test_killed_runs_go_on_bit_by_bit(settings: dict[str, Any], model: SentenceEncoder, tmp_path: Path) -> None:
    model.save(tmp_path / "start")
    rows = [(*texts, i % 3) for i, texts in enumerate(pairs(24, labelled=False))]
    options = {key: settings[key] for key in ("evaluator",) if key in settings}
    others = {key: value for key, value in settings.items() if key not in ("evaluator", "callbacks")}

    def run(output: str, *more: Callback, resume: bool = False) -> tuple[SentenceEncoder, list[Any], list[Callback]]:
        trained = loaded(tmp_path / "start")
        torch.manual_seed(1)
        loss = SoftmaxLoss(trained.get_sentence_embedding_dimension(), 3)
        own = settings.get("callbacks", list)()
        config = TrainingConfig(
            **{"output": tmp_path / output, "steps": 10, "batch_size": 4, "learning_rate": 1e-3, "log_every": 1}
            | {"checkpoint_every": 2, "evaluate_every": 2, **others}
        )
        trainer = Trainer(trained, rows, loss, config, callbacks=[*own, *more], **options)
        history = trainer.fit(resume=resume, show_progress_bar=False)
        return trained, [{k: v for k, v in e.items() if k != "sentences_per_second"} for e in history], own

    whole, history, watchers = run("whole")
    last = min(history[-1]["step"], 5)
    assert in_child(lambda: run("killed", Kill(last))) == signal.SIGKILL
    newest = checkpoint.newest(tmp_path / "killed" / "checkpoints")
    assert newest is not None
    again, continued, others = run("killed", resume=True)
    assert torch.equal(weights(whole), weights(again))
    assert torch.equal(weights(loaded(tmp_path / "whole/final")), weights(loaded(tmp_path / "killed/final")))
    assert continued == history
    for a, b in zip(watchers, others, strict=True):
        if isinstance(a, AveragedWeights):
            assert torch.equal(weights(a.model), weights(b.model))
            assert not torch.equal(weights(a.model), weights(whole))
            assert torch.equal(weights(a.model), weights(loaded(tmp_path / "killed/averaged")))


def test_checkpointing_gives_the_same_gradients(model: SentenceEncoder, tmp_path: Path) -> None:
    model.save(tmp_path / "m")
    plain, twice = loaded(tmp_path / "m"), loaded(tmp_path / "m")
    calls: list[SentenceEncoder] = []
    for each in (plain, twice):
        part = each[0].auto_model.encoder.layer[0].intermediate
        part.register_forward_pre_hook(lambda *_, each=each: calls.append(each))
    fit(plain, pairs(12, False), ranking, steps=3)
    fit(twice, pairs(12, False), ranking, steps=3, gradient_checkpointing=True)
    assert torch.equal(weights(plain), weights(twice))
    assert [calls.count(each) for each in (plain, twice)] == [3, 6], "the layer runs twice in each of three steps"
    assert not any(getattr(module, "gradient_checkpointing", False) for module in twice.modules())


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # While torch traces.
def test_compiled_layers_give_nearly_the_same(model: SentenceEncoder, tmp_path: Path, monkeypatch: Any) -> None:
    model.save(tmp_path / "m")
    plain, compiled = loaded(tmp_path / "m"), loaded(tmp_path / "m")
    for module in [*plain.modules(), *compiled.modules()]:
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0  # Masks are drawn in another order.
    graphs: list[Any] = []
    original = torch.nn.Module.compile

    def backend(graph: Any, _: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    monkeypatch.setattr(torch.nn.Module, "compile", lambda self: original(self, backend=backend))
    fit(plain, pairs(12, False), ranking, steps=2, optimizer=torch.optim.SGD)
    fit(compiled, pairs(12, False), ranking, steps=2, optimizer=torch.optim.SGD, compile=True)
    assert graphs
    assert all(layer._compiled_call_impl is None for layer in compiled[0].auto_model.encoder.layer)
    assert torch.allclose(weights(plain), weights(compiled), atol=1e-6)


def test_weights_of_a_loss_can_be_frozen(model: SentenceEncoder) -> None:
    loss = SoftmaxLoss(16, 3)
    before = weights(loss)
    rows = [(*texts, i % 3) for i, texts in enumerate(pairs(8, False))]
    fit(model, rows, loss, steps=np.int64(1), learning_rate=np.float32(0.1), freeze=["loss.*"])
    assert torch.equal(weights(loss), before)
    assert loss.classifier.weight.requires_grad


def test_a_state_that_no_checkpoint_can_hold_is_named(model: SentenceEncoder, tmp_path: Path) -> None:
    class Seen(Callback):
        def state(self) -> dict[str, Any]:
            return {"seen": {1, 2}}

    config = TrainingConfig(tmp_path / "o", steps=1)
    with pytest.raises(TypeError, match=r"callback\.0\.seen: Object of type set is not JSON"):
        Trainer(model, pairs(8, False), ranking, config, callbacks=[Seen()]).fit(show_progress_bar=False)


def test_frozen_weights_stay_and_others_have_rates_of_their_own(model: SentenceEncoder, tmp_path: Path) -> None:
    model.save(tmp_path / "m")
    trained = loaded(tmp_path / "m")
    table = trained[0].auto_model.embeddings.word_embeddings.weight
    slow = trained[0].auto_model.encoder.layer[0].output.dense.weight
    before, was = table.clone(), slow.clone()
    rates = {"*": 1e-3, "0.auto_model.encoder.layer.0.output.*": 1e-9}
    fit(trained, pairs(12, False), ranking, steps=2, freeze=["*embeddings*"], learning_rates=rates, weight_decay=0.0)
    assert torch.equal(table, before)
    assert table.requires_grad, "freezing ends with the run"
    assert 0 < (slow - was).abs().max() < 1e-7


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"freeze": ["bert.*"]}, r"freeze: 'bert\.\*' matches none of the \d+ weights, such as 0\.auto_model"),
        ({"learning_rates": {"head": 1.0}}, "learning_rates: 'head' matches none"),
        ({"learning_rates": {"*": 0}}, r"learning_rates\['\*'\]=0 is not positive; to train nothing, use freeze="),
        ({"optimizer": "adam"}, "optimizer='adam' is unknown"),
        ({"schedule": 3}, "schedule is of type int; pass a name or a function"),
        ({"optimizer": "adafactor", "eps": 1.0}, "betas and eps are settings of AdamW"),
        ({"freeze": "0.*"}, "freeze is of type str; pass a list of patterns"),
        ({"freeze": [3]}, "freeze: 3 matches none"),
        ({"learning_rates": [1e-3]}, "learning_rates is of type list; pass a dict"),
        ({"betas": 0.9}, "betas is of type float; pass a tuple"),
        ({"warmup": 0, "schedule": lambda _: None}, "what schedule returned is None; pass a number"),
        ({"warmup": 0, "schedule": lambda _: float("nan")}, "what schedule returned=nan is not finite"),
        ({"drop_last": True}, r"makes no batch of batch_size rows \(drop_last=True\) of data"),
        ({"evaluator": {}}, "metric='' is not among the evaluator's scores: none"),
        ({"callbacks": [EarlyStopping]}, r"callbacks\[0\] is EarlyStopping; pass instances"),
    ],
)
def test_settings_that_do_not_fit(settings: dict[str, Any], words: str, model: SentenceEncoder) -> None:
    others = {name: settings.pop(name) for name in ("callbacks", "evaluator") if name in settings}
    with pytest.raises((ValueError, TypeError), match=words):
        Trainer(model, pairs(8, False), ranking, TrainingConfig(steps=1, **settings), **others).fit()


@pytest.mark.parametrize("package", ["bitsandbytes", "wandb", "mlflow", "torch.utils.tensorboard"])
def test_packages_that_are_missing_are_named(package: str, model: SentenceEncoder, monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    optimizer = "adamw_8bit" if package == "bitsandbytes" else "adamw"
    callbacks = {"wandb": [WandB()], "mlflow": [MLflow()], "torch.utils.tensorboard": [TensorBoard()]}.get(package, [])
    config = TrainingConfig(steps=1, optimizer=optimizer)
    with pytest.raises(ImportError, match=f"needs {package.rpartition('.')[2]}; run: pip install"):
        Trainer(model, pairs(8, False), ranking, config, callbacks=callbacks).fit(show_progress_bar=False)


def test_callbacks_are_told_what_happens(model: SentenceEncoder, tmp_path: Path) -> None:
    seen: list[tuple[Any, ...]] = []

    class Watch(Callback):
        def on_step(self, progress: Progress) -> None:
            assert set(progress.figures) == {"loss", "learning_rate", "gradient_norm", "sentences_per_second"}
            assert progress.model is model
            seen.append(("step", progress.step, progress.total))

        def on_evaluate(self, progress: Progress) -> None:
            seen.append(("evaluate", progress.step, dict(progress.figures), progress.improved))

        def on_save(self, progress: Progress) -> None:
            assert progress.path is not None
            seen.append(("save", progress.step, progress.path.name))

        def on_end(self, progress: Progress) -> None:
            assert progress.path is not None
            seen.append(("end", progress.step, progress.path.name))

    scores = iter([0.3, 0.5, 0.4])
    config = TrainingConfig(tmp_path / "o", steps=2, evaluate_every=1, checkpoint_every=2, evaluate_first=True)
    Trainer(model, pairs(8, False), ranking, config, evaluator=lambda _: next(scores), callbacks=Watch()).fit()
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
def test_a_run_that_was_stopped_stays_stopped(event: str, model: SentenceEncoder, tmp_path: Path) -> None:
    """In ``on_save`` at step 2, step 3 is the last."""

    class Stop(Callback):
        pass

    def stop(progress: Progress) -> None:
        if progress.step == (3 if event == "on_step" else 2):
            progress.stop()

    setattr(Stop, event, staticmethod(stop))
    config = TrainingConfig(tmp_path / "o", steps=9, evaluate_every=100, log_every=100, checkpoint_every=2)
    trainer = Trainer(model, pairs(8, False), ranking, config, evaluator=lambda _: 1.0, callbacks=[Stop()])
    history = trainer.fit(show_progress_bar=False)
    assert [entry["step"] for entry in history] == [3, 3], "its last step is logged and evaluated"
    with pytest.warns(UserWarning, match="step-00000003: a callback ended this run at step 3 of 9"):
        again = Trainer(model, pairs(8, False), ranking, config, evaluator=lambda _: 1.0).fit(resume=True)
    assert [entry["step"] for entry in again] == [3, 3]


def test_other_callbacks_with_a_state_are_refused(model: SentenceEncoder, tmp_path: Path) -> None:
    config = TrainingConfig(tmp_path / "o", steps=2)
    with pytest.warns(UserWarning, match="without an evaluator, EarlyStopping changes nothing"):
        Trainer(model, pairs(8, False), ranking, config, callbacks=[EarlyStopping()]).fit(show_progress_bar=False)
    with pytest.raises(ValueError, match=r"callbacks was \['EarlyStopping'\], but is now \[\]"):
        Trainer(model, pairs(8, False), ranking, config).fit(resume=True)


def test_early_stopping_counts_from_the_best(model: SentenceEncoder, tmp_path: Path) -> None:
    scores = iter([3.0, 2.0, 2.5, 1.0, 1.5, 1.2, 0.1])
    config = TrainingConfig(tmp_path / "o", steps=20, evaluate_every=1, minimize=True)
    trainer = Trainer(
        model, pairs(8, False), ranking, config, evaluator=lambda _: next(scores), callbacks=EarlyStopping(2)
    )
    history = trainer.fit(show_progress_bar=False)
    assert history[-1]["step"] == 6
    assert checkpoint.read(tmp_path / "o/checkpoints/step-00000006")[1]["best"] == ["score", 1.0]


def test_averages_are_those_of_the_formula(model: SentenceEncoder) -> None:
    seen: list[Tensor] = []

    class Watch(Callback):
        def on_step(self, progress: Progress) -> None:
            seen.append(weights(progress.model).clone())

    averaged = AveragedWeights(0.4)
    fit_with = Trainer(
        model, pairs(12, False), ranking, TrainingConfig(steps=5, learning_rate=1e-2), callbacks=[Watch(), averaged]
    )
    fit_with.fit(show_progress_bar=False)
    expected = seen[0]
    for step, value in enumerate(seen[1:], start=2):
        factor = min(0.4, (1 + step) / (10 + step))
        expected = factor * expected + (1 - factor) * value
    assert torch.allclose(weights(averaged.model), expected, atol=1e-6)


def test_tensorboard_reads_the_figures(model: SentenceEncoder, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    config = TrainingConfig(tmp_path / "o", steps=3, evaluate_every=3)
    Trainer(model, pairs(8, False), ranking, config, evaluator=lambda _: math.nan, callbacks=TensorBoard()).fit()
    found = EventAccumulator(str(tmp_path / "o/tensorboard")).Reload()
    assert [event.step for event in found.Scalars("train/loss")] == [1, 2, 3]
    assert "evaluation/score" not in found.Tags()["scalars"], "NaN is no figure"


def test_trackers_go_on_with_the_same_run(model: SentenceEncoder, tmp_path: Path, monkeypatch: Any) -> None:
    """With stand-ins that record the calls of the two packages."""
    calls: list[Any] = []

    def init(**options: Any) -> Any:
        calls.append(("wandb", options))
        return SimpleNamespace(id="w1", log=lambda f, step: calls.append((step, sorted(f))), finish=lambda: None)

    def start_run(**options: Any) -> Any:
        calls.append(("mlflow", options))
        return SimpleNamespace(info=SimpleNamespace(run_id="m1"))

    wandb, mlflow = ModuleType("wandb"), ModuleType("mlflow")
    vars(wandb)["init"] = init
    vars(mlflow).update(start_run=start_run, log_params=lambda _: None, end_run=lambda: None)
    vars(mlflow)["log_metrics"] = lambda f, step: calls.append((step, sorted(f)))
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    model.save(tmp_path / "start")

    def run(*more: Callback, resume: bool = False) -> None:
        trackers = [WandB(project="cats"), MLflow(run_name="one")]
        config = TrainingConfig(tmp_path / "o", steps=4, checkpoint_every=2)
        start = loaded(tmp_path / "start")
        Trainer(start, pairs(8, False), ranking, config, callbacks=[*trackers, *more]).fit(resume=resume)

    assert in_child(lambda: run(Kill(3))) == signal.SIGKILL
    run(resume=True)
    figures = sorted(f"train/{name}" for name in ("loss", "learning_rate", "gradient_norm", "sentences_per_second"))
    (name, options), step, (other, started), *_ = calls
    assert (name, options["id"], options["resume"], options["project"]) == ("wandb", "w1", "allow", "cats")
    assert options["config"]["steps"] == 4
    assert step == (3, figures)
    assert (other, started) == ("mlflow", {"run_name": "one", "run_id": "m1"})


def test_uploads(model: SentenceEncoder, tmp_path: Path, monkeypatch: Any) -> None:
    sent: list[tuple[Any, ...]] = []

    def push(self: SentenceEncoder, name: str, commit_message: str, **_: Any) -> None:
        sent.append((name, commit_message))
        if commit_message == "Step 2":
            raise ConnectionError("no network")

    monkeypatch.setattr(SentenceEncoder, "push_to_hub", push)
    config = TrainingConfig(tmp_path / "o", steps=4, checkpoint_every=2)
    with pytest.warns(UserWarning, match="me/cats: the upload of step 2 failed, and training goes on: no network"):
        Trainer(model, pairs(8, False), ranking, config, callbacks=PushToHub("me/cats", checkpoints=True)).fit()
    assert sent == [("me/cats", "Step 2"), ("me/cats", "Step 4"), ("me/cats", "The model after 4 steps")]


def test_the_loss_of_held_out_rows_is_a_score(model: SentenceEncoder, tmp_path: Path) -> None:
    rows = pairs(22)
    size = {"a": 4}  # Evaluation data without a name is that of the only data set.
    config = TrainingConfig(tmp_path / "o", steps=2, batch_size=size, evaluate_every=1, learning_rate=1e-2)
    with pytest.raises(ValueError, match="pass evaluation_data by such names, too: 'a'"):
        Trainer(model, {"a": pairs(8)}, regression, config, evaluation_data={"b": rows})
    trainer = Trainer(model, {"a": pairs(8)}, {"a": regression}, config, evaluation_data=rows)
    history = trainer.fit(show_progress_bar=False)
    found = [entry["evaluation"]["evaluation_loss"] for entry in history if "evaluation" in entry]
    vectors = [model.encode([row[column] for row in rows], convert_to_tensor=True) for column in (0, 1)]
    labels = torch.tensor([row[2] for row in rows])
    assert found[-1] == pytest.approx(float(regression(*vectors, labels)), abs=1e-5)
    best = checkpoint.read(tmp_path / "o/checkpoints/step-00000002")[1]["best"]
    assert best == ["evaluation_loss", min(found)], "a lower loss is better"


def test_a_callback_begins_anew_with_each_run(model: SentenceEncoder) -> None:
    """Also the weights that nothing clears but the trainer."""
    averaged, stopping = AveragedWeights(0.9), EarlyStopping(2)
    options: dict[str, Any] = {"evaluator": lambda _: 0.5, "callbacks": [averaged, stopping]}
    config = TrainingConfig(steps=9, evaluate_every=1, log_every=100)
    for _ in range(2):
        history = Trainer(model, pairs(8, False), ranking, config, **options).fit(show_progress_bar=False)
        assert [entry["step"] for entry in history if "loss" in entry] == [3], "the last losses are logged"
    assert not torch.equal(weights(averaged.model), weights(model))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(1.0)
    Trainer(model, pairs(8, False), ranking, TrainingConfig(steps=1), callbacks=[averaged]).fit()
    assert torch.equal(weights(averaged.model), weights(model))


def test_an_error_at_the_beginning_leaves_the_model_as_it_was(model: SentenceEncoder) -> None:
    config = TrainingConfig(steps=1, freeze=["0.auto_model.embeddings.*"], learning_rates={"typo*": 1.0})
    with pytest.raises(ValueError, match="typo"):
        Trainer(model, pairs(8, False), ranking, config).fit()
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_an_optimizer_that_takes_some_of_the_groups(model: SentenceEncoder) -> None:
    """What it leaves out has no gradient from earlier steps."""
    left: list[int] = []

    class Watch(Callback):
        def on_step(self, progress: Progress) -> None:
            left.append(sum(parameter.grad is not None for parameter in progress.model.parameters()))

    config = TrainingConfig(steps=2, optimizer=lambda groups: torch.optim.SGD(groups[:1]))
    Trainer(model, pairs(24, False), ranking, config, callbacks=Watch()).fit()
    assert left == [0, 0]
    with pytest.raises(TypeError, match="optimizer= returned NoneType"):
        Trainer(model, pairs(8, False), ranking, TrainingConfig(optimizer=lambda _: None)).fit()  # type: ignore[arg-type,return-value]


def test_scores_of_one_name_are_refused(model: SentenceEncoder) -> None:
    twice: Any = {"a": lambda _: {"b_c": 1.0}, "a_b": lambda _: {"c": 2.0}}
    with pytest.raises(ValueError, match="several evaluators give a_b_c"):
        Trainer(model, pairs(8, False), ranking, TrainingConfig(steps=1), evaluator=twice).fit()
    own: Any = {"evaluation": lambda _: 1.0}
    with pytest.raises(ValueError, match="an evaluator is called 'evaluation'"):
        Trainer(model, pairs(8, False), ranking, evaluator=own, evaluation_data=pairs(8, False))
