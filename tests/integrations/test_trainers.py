"""Trainers under sentence-transformers' names, beside theirs on the same data."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import sentence_transformers as theirs
import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR, StepLR
from torch.utils.data import DataLoader
from transformers import EarlyStoppingCallback, TrainerCallback, get_scheduler

import sbert.integrations.sentence_transformers as ours
from sbert.integrations.sentence_transformers import losses, training
from sbert.training.training_run import rate_factor
from tests import pairs

datasets = pytest.importorskip("datasets")
pytestmark = pytest.mark.filterwarnings("ignore")  # Theirs warn of older names.

ROWS = {
    "sentence1": ["a boat", "the fox", "one two", "the lake", "green hills", "three four", "home", "winter"],
    "sentence2": ["a small boat", "red fox", "zero one", "quiet lake", "hills", "four five", "rows", "long winter"],
    "score": [0.1, 0.9, 0.3, 0.5, 0.7, 0.2, 0.4, 0.8],
}
DATA = datasets.Dataset.from_dict(ROWS)
# The beginning of an epoch comes before the evaluation after the last one here, and after that there.
EVENTS = [f"on_{name}" for name in ("train_begin", "step_end", "epoch_end", "log", "evaluate", "save", "train_end")]


@pytest.fixture
def calm(folder: Path, tmp_path: Path) -> Path:
    """The small transformer without dropout, whose losses are the same in both libraries."""
    path = Path(shutil.copytree(folder, tmp_path / "calm"))
    config = json.loads((path / "config.json").read_text())
    config |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    (path / "config.json").write_text(json.dumps(config))
    return path


class Recorder(TrainerCallback):
    def __init__(self) -> None:
        self.events: list[Any] = []


def _record(event: str) -> Callable[..., None]:
    def record(self: Any, args: Any, state: Any, control: Any, model: Any, **more: Any) -> None:
        given = more.get("logs") or more.get("metrics") or {}
        assert model is not None
        self.events.append((event, state.global_step, state.epoch, sorted(name for name in given if timeless(name))))

    return record


for _event in EVENTS:
    setattr(Recorder, _event, _record(_event))


def timeless(name: str) -> bool:
    return not name.endswith(("runtime", "per_second", "flos"))


def part(st: Any, name: str) -> Any:
    return import_module(f"{st.__name__}.sentence_transformer.{name}")


def make(st: Any, folder: Path, output: Path | None = None, *, trainer: Any = None, **options: Any) -> Any:
    """A trainer of one of the packages, with all rows in each batch."""
    model = st.SentenceTransformer(str(folder), device="cpu")
    arguments: dict[str, Any] = {"per_device_train_batch_size": 8, "learning_rate": 1e-2, "max_steps": 6}
    arguments |= {"report_to": "none", "disable_tqdm": True, "save_strategy": "no", "use_cpu": True, **options}
    args = st.SentenceTransformerTrainingArguments(str(output or folder / "output"), **arguments)
    named = {"train_dataset": DATA, "loss": part(st, "losses").CosineSimilarityLoss(model), **(trainer or {})}
    named = {name: value(model) if name == "optimizers" else value for name, value in named.items()}
    return st.SentenceTransformerTrainer(model, args, **named)


def test_history_events_and_best_model_are_theirs(calm: Path, tmp_path: Path) -> None:
    """Figures to 1e-4, learning rates to 1e-9, and all names and steps."""
    results = []
    for st, name in ((theirs, "theirs"), (ours, "ours")):
        recorder = Recorder()
        evaluator = part(st, "evaluation").EmbeddingSimilarityEvaluator(*ROWS.values(), name="dev")
        trainer = make(
            st, calm, tmp_path / name, max_steps=-1, num_train_epochs=4, warmup_ratio=0.3, lr_scheduler_type="cosine",
            logging_steps=0.5, logging_first_step=True, eval_strategy="epoch", save_strategy="epoch",
            save_total_limit=2, load_best_model_at_end=True, metric_for_best_model="eval_dev_pearson_cosine",
            trainer={"eval_dataset": DATA, "evaluator": evaluator, "callbacks": [recorder]},
        )  # fmt: skip
        output, events = trainer.train(), [*recorder.events]
        history = [{key: line[key] for key in line if timeless(key)} for line in trainer.state.log_history]
        scores = {key: value for key, value in trainer.evaluate().items() if timeless(key) and key != "epoch"}
        links = sorted(path.name for path in (tmp_path / name).glob("checkpoint-*"))
        figures = (output.global_step, pytest.approx(output.training_loss, abs=1e-4), sorted(output.metrics)[-4:])
        best = Path(trainer.state.best_model_checkpoint)
        assert torch.equal(
            st.SentenceTransformer(str(best), device="cpu").encode("a fox", convert_to_tensor=True),
            trainer.model.encode("a fox", convert_to_tensor=True),
        )
        results.append((history, events, scores, links, figures, trainer.state.best_metric))
    (expected, events, *others), (history, own_events, *own_others) = results
    assert [sorted(line) for line in history] == [sorted(line) for line in expected]
    for line, other in zip(history, expected, strict=True):
        assert line == pytest.approx(other, abs=1e-4)
        assert line.get("learning_rate") == pytest.approx(other.get("learning_rate"), abs=1e-9)
    assert own_events == events
    assert own_others[0] == pytest.approx(others[0], abs=1e-4)
    assert own_others[1:3] == others[1:3]
    assert own_others[3] == pytest.approx(others[3], abs=1e-4)


NAMES = {name: {} for name in training._CHOICES["lr_scheduler_type"]} | {
    "cosine_with_restarts": {"num_cycles": 3},
    "polynomial": {"power": 2.0},
    "cosine_with_min_lr": {"min_lr": 1e-5},
    "cosine_warmup_with_min_lr": {"min_lr_rate": 0.1},
    "warmup_stable_decay": {"num_decay_steps": 5},
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("warm", [0, 4, 0.3])
def test_learning_rates_are_theirs(name: str, warm: float) -> None:
    args = ours.SentenceTransformerTrainingArguments(
        lr_scheduler_type=name, lr_scheduler_kwargs=NAMES[name], warmup_steps=warm, max_steps=20
    )
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], args.learning_rate)
    steps = 6 if warm == 0.3 else warm
    scheduler = get_scheduler(name, optimizer, steps, 20, scheduler_specific_kwargs=dict(NAMES[name]))
    expected = []
    for _ in range(20):
        expected.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    config = training._config(args, "cpu", 20)
    rates = [config.learning_rate * rate_factor(config, step, 20) for step in range(20)]
    assert rates == pytest.approx(expected, rel=1e-12)


def test_optimizers_are_used_as_they_are(calm: Path) -> None:
    """Two groups with rates of their own and a scheduler, without part of the weights."""

    def optimizers(model: Any) -> Any:
        named = dict(model.named_parameters())
        biases = [value for name, value in named.items() if name.endswith("bias")]
        others = [value for name, value in named.items() if name.endswith("query.weight")]
        optimizer = torch.optim.SGD([{"params": biases, "lr": 0.1}, {"params": others, "lr": 1.0}], momentum=0.9)
        return optimizer, LambdaLR(optimizer, lambda step: 1 / (1 + step))

    trained = []
    for st in (theirs, ours):
        trainer = make(st, calm, logging_steps=1, trainer={"optimizers": optimizers})
        before = {name: value.clone() for name, value in trainer.model.state_dict().items()}
        trainer.train()
        rates = [line["learning_rate"] for line in trainer.state.log_history if "loss" in line]
        trained.append((trainer.model.encode(ROWS["sentence1"]), rates))
        changed = {name for name, value in trainer.model.state_dict().items() if not torch.equal(value, before[name])}
        assert changed
        assert all(name.endswith(("bias", "query.weight")) for name in changed)
    assert trained[1][0] == pytest.approx(trained[0][0], abs=1e-4)
    assert trained[1][1] == pytest.approx(trained[0][1])
    other = torch.optim.SGD([nn.Parameter(torch.zeros(1))])
    for scheduler, message in (None, "tensors that are not trained; make it of"), (StepLR(other, 1), "a StepLR; pass"):
        with pytest.raises(ValueError, match=f"optimizers= has {message}"):
            make(ours, calm, trainer={"optimizers": lambda _, given=scheduler: (other, given)}).train()


class Stop(TrainerCallback):
    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        control.should_training_stop = state.global_step >= 2
        control.should_log = True


def test_callbacks_stop_and_log(calm: Path) -> None:
    trainer = make(ours, calm, trainer={"callbacks": [Stop]})
    assert trainer.train().global_step == 2
    assert [line["step"] for line in trainer.state.log_history if "loss" in line] == [1, 2]
    trainer = make(ours, calm)
    trainer.add_callback(Stop())
    assert trainer.train().global_step == 2
    with pytest.raises(TypeError, match="callbacks has 'stop'; pass those of transformers"):
        make(ours, calm, trainer={"callbacks": ["stop"]})


def test_early_stopping_is_theirs(calm: Path) -> None:
    """It also ends after an improvement below the threshold."""
    for st in (theirs, ours):
        scores = iter([0.5, 0.6, 0.61, 0.62, 0.9, 0.9, 0.9])
        kind = part(st, "evaluation").SentenceEvaluator
        evaluator = type("Scores", (kind,), {"__call__": lambda *_, scores=scores, **__: next(scores)})()
        trainer = make(
            st, calm, eval_strategy="steps", eval_steps=1, metric_for_best_model="evaluator",
            trainer={
                "evaluator": evaluator, "eval_dataset": DATA,
                "callbacks": [EarlyStoppingCallback(2, early_stopping_threshold=0.05)],
            },
        )  # fmt: skip
        assert trainer.train().global_step == 4


def test_the_loss_decides_by_default(calm: Path, tmp_path: Path) -> None:
    """In both libraries, which save the model at each step."""
    for st, name in ((theirs, "theirs"), (ours, "ours")):
        trainer = make(
            st, calm, tmp_path / name, load_best_model_at_end=True, eval_strategy="steps", eval_steps=1,
            save_strategy="steps", save_steps=1, learning_rate=0.5, trainer={"eval_dataset": DATA},
        )  # fmt: skip
        trainer.train()
        values = [line["eval_loss"] for line in trainer.state.log_history if "eval_loss" in line]
        assert trainer.state.best_metric == min(values) < values[-1]
        assert trainer.args.metric_for_best_model == "loss"
    one = trainer.evaluate(DATA.select([0, 1]), metric_key_prefix="test")
    assert list(one) == ["test_loss"]
    assert one["test_loss"] != trainer.evaluate()["eval_loss"]


class Kill(TrainerCallback):
    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        if state.global_step == 4:
            raise KeyboardInterrupt


def test_resume_from_the_newest_checkpoint_by_its_path(calm: Path, tmp_path: Path) -> None:
    """The history, too, is that of a run that was not stopped: three runs show it."""

    def run(name: str, *callbacks: Any) -> Any:
        options = {"save_strategy": "steps", "save_steps": 3, "logging_steps": 1, "eval_strategy": "epoch"}
        named = {"callbacks": callbacks, "eval_dataset": DATA}
        return make(ours, calm, tmp_path / name, **options, trainer=named)

    whole = run("whole")
    whole.train()
    with pytest.raises(KeyboardInterrupt):
        run("killed", Kill).train()
    with pytest.raises(ValueError, match=r"checkpoint-1'.*: the newest is .*step-00000003; pass True for that"):
        run("killed").train(str(tmp_path / "killed" / "checkpoint-1"))
    resumed = run("killed")
    resumed.train(str(tmp_path / "killed" / "checkpoint-3"))
    lines, expected = (each.state.log_history for each in (resumed, whole))
    assert lines[:-1] == expected[:-1]  # The last has times.
    last = [line["loss"] for line in lines if "loss" in line][3:]
    assert lines[-1]["train_loss"] == pytest.approx(sum(last) / 3)  # Of the steps of this run.
    assert all(torch.equal(*both) for both in zip(resumed.model.parameters(), whole.model.parameters(), strict=True))


def test_streams_stay_in_their_order(calm: Path) -> None:
    stream = datasets.IterableDataset.from_generator(lambda: iter(list(DATA)))
    assert stream.column_names is None
    trainer = make(ours, calm, max_steps=3, per_device_train_batch_size=4, trainer={"train_dataset": stream})
    in_order = make(ours, calm, max_steps=3, per_device_train_batch_size=4, batch_sampler="in_order")
    for each in (trainer, in_order):
        assert each.train().global_step == 3
    both = zip(trainer.model.parameters(), in_order.model.parameters(), strict=True)
    assert all(torch.equal(*each) for each in both)


@pytest.mark.parametrize("kind", ["sentences", "pairs"])
def test_old_fit_takes_schedulers(kind: str, calm: Path, tmp_path: Path) -> None:
    rows = [ours.InputExample(texts=list(row), label=label) for *row, label in zip(*ROWS.values(), strict=True)]
    loader = DataLoader(rows, batch_size=4)
    if kind == "sentences":
        model: Any = ours.SentenceTransformer(calm, device="cpu")
        objective: Any = [(loader, losses.CosineSimilarityLoss(model))]
    else:
        model, objective = ours.CrossEncoder(str(pairs.folder(tmp_path / "scorer")), device="cpu"), loader
    for name in ("WarmupCosine", "warmupconstant", "warmuplinear", "constantlr", "warmupcosinewithhardrestarts"):
        calls: list[int] = []
        model.fit(objective, lambda _, calls=calls: calls.append(1) or 0.5, 2, evaluation_steps=1, scheduler=name)
        assert len(calls) == 4
    with pytest.raises(ValueError, match="scheduler='other' is unknown"):
        model.fit(objective, scheduler="other")


def test_evaluation_data_by_other_names(calm: Path) -> None:
    """Scores have the names of theirs, also of one data set after training with several."""
    found = []
    for st in (theirs, ours):
        for train, held_out in ((DATA, {"a": DATA, "b": DATA}), ({"a": DATA, "b": DATA}, DATA)):
            given = {"train_dataset": datasets.DatasetDict(train) if isinstance(train, dict) else train}
            given["eval_dataset"] = datasets.DatasetDict(held_out) if isinstance(held_out, dict) else held_out
            trainer = make(st, calm, max_steps=1, eval_strategy="steps", eval_steps=1, trainer=given)
            trainer.train()
            names = {name for line in trainer.state.log_history for name in line}
            found.append(sorted(name for name in names if name.startswith("eval") and timeless(name)))
    trainer.loss = dict.fromkeys(("a", "b"), trainer.loss)
    with pytest.raises(ValueError, match="pass evaluation_data by such names, too: 'a', 'b'"):
        trainer.train()
    assert found[2:] == found[:2] == [["eval_a_loss", "eval_b_loss"], ["eval_loss"]]


def test_vectors_of_a_teacher_are_labels(calm: Path) -> None:
    """Of a loss that takes any number of columns, as the losses of lists do."""
    data = datasets.Dataset.from_dict({**ROWS, "label": [[0.1] * 16] * len(ROWS["sentence1"])}).remove_columns("score")
    trainer = make(ours, calm, max_steps=1, trainer={"train_dataset": data, "loss": losses.MSELoss})
    assert trainer.train().global_step == 1


def test_one_column_per_document(tmp_path: Path) -> None:
    """For losses of lists: positives first, and margins or scores as labels."""
    folder = str(pairs.folder(tmp_path / "scorer"))
    texts = {"query": ["a fox", "a boat"], "positive": ["the red fox", "the boat"], "negative": ["one", "two"]}
    trained = []
    for labels in ([1.0, 2.0], [[3.0, 2.0], [5.0, 3.0]]):
        model = ours.CrossEncoder(folder, device="cpu")
        loss = ours.cross_encoder.losses.MarginMSELoss(model)
        args = ours.CrossEncoderTrainingArguments(str(tmp_path), max_steps=2, save_strategy="no", learning_rate=1e-2)
        data = datasets.Dataset.from_dict({**texts, "score": labels})
        ours.CrossEncoderTrainer(model, args, data, loss=loss).train()
        negative, positive = model.predict([("a fox", "one"), ("a fox", "the red fox")], activation=nn.Identity())
        trained.append(positive - negative)  # The loss leaves the bias of the head to rounding.
    assert trained[0] == pytest.approx(trained[1])
