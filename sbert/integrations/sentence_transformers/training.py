"""Their trainers and arguments over ``sbert.Trainer`` and ``sbert.TrainingConfig``."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import MISSING, asdict, fields, make_dataclass
from enum import Enum
from functools import cache, partial
from pathlib import Path
from statistics import fmean
from typing import Any, get_type_hints

import torch

from sbert.backends.huggingface import import_from
from sbert.distributed.ranks import ALONE
from sbert.inputs.arguments import check_choice, nearest_argument, warn
from sbert.integrations import switching
from sbert.integrations.sentence_transformers.evaluation import SequentialEvaluator
from sbert.integrations.sentence_transformers.features import LABELS, as_loss, join_documents
from sbert.integrations.sentence_transformers.forms import LAZY, offer
from sbert.integrations.sentence_transformers.losses import trainer_settings
from sbert.losses import BinaryCrossEntropyLoss, CoSENTLoss, CrossEntropyLoss
from sbert.losses.signature import Signature
from sbert.training import Callback, Trainer, TrainingConfig
from sbert.training.checkpoint import newest
from sbert.training.training_run import measure
from sbert.training.weights import Weights, create_optimizer

_ROWS = {name: row for row in switching.COUNTERPARTS if row.section == switching.TRAINING for name in row.names}
_TRAINER_ROWS = [row for row in switching.COUNTERPARTS if row.section == switching.TRAINERS]
_OF_TRAINERS = {name: row.plain for row in _TRAINER_ROWS for name in row.names}
_ELSE = "sbert.Trainer, its callbacks and its settings"
# Methods that a subclass may override; there is no card whose callback is added.
_CALLED = "train log evaluate create_optimizer create_scheduler add_model_card_callback push_to_hub".split()
# Those that are ours under another name, at most.
_SAME = {name: row.new_name or name for name, row in _ROWS.items() if row.how in ("same", "other name")}
_OPTIMIZERS: dict[str, Any] = {
    "adamw_torch": "AdamW", "adamw_torch_fused": "AdamW",
    "sgd": torch.optim.SGD, "adagrad": torch.optim.Adagrad, "rmsprop": torch.optim.RMSprop,
}  # fmt: skip
_SAMPLERS, _MIXES = "batch_sampler no_duplicates no_duplicates_hashed group_by_label", "round_robin proportional"
_CHOICES = {
    "optim": list(_OPTIMIZERS),
    "lr_scheduler_type": "linear cosine cosine_with_restarts polynomial constant constant_with_warmup inverse_sqrt"
    " cosine_with_min_lr cosine_warmup_with_min_lr warmup_stable_decay".split(),
    **dict.fromkeys(("eval_strategy", "save_strategy", "logging_strategy"), ("no", "steps", "epoch")),
    "batch_sampler": [*_SAMPLERS.split(), "random", "in_order"],
    "multi_dataset_batch_sampler": _MIXES.split(),
}
_DEFAULTS = {  # history.jsonl in output_dir has all that is reported.
    "batch_sampler": "batch_sampler", "multi_dataset_batch_sampler": "proportional", "report_to": "none",
    "prompts": None, "router_mapping": None, "learning_rate_mapping": None, "warmup_ratio": 0.0,
    "gradient_checkpointing": False,
}  # fmt: skip
_NONE = {"None", "False", "no", "", "[]"}  # Values that mean the same.


# How rows become batches, and how batches of several data sets are mixed.
BatchSamplers = Enum("BatchSamplers", {name.upper(): name for name in _SAMPLERS.split()})  # type: ignore[misc]
MultiDatasetBatchSamplers = Enum("MultiDatasetBatchSamplers", {name.upper(): name for name in _MIXES.split()})  # type: ignore[misc]


class ArgumentsOfTraining:
    """Their arguments with their defaults, as attributes; ``_config`` makes a ``TrainingConfig`` of them.

    Raises:
        TypeError: If an argument is unknown.
        ValueError: If one without an equivalent does not have its default.
    """

    def __init__(self, output_dir: str | os.PathLike[str] | None = None, **options: Any) -> None:
        vars(self).update(_defaults())
        for name, value in {"output_dir": output_dir, **options}.items():
            setattr(self, name, value)
        self.__post_init__()

    def __post_init__(self) -> None:  # Which the __init__ of a dataclass that inherits from it calls.
        args: Any = self
        args.eval_steps = args.eval_steps or args.logging_steps
        args.metric_for_best_model = args.metric_for_best_model or ("loss" if args.load_best_model_at_end else None)
        if args.metric_for_best_model and args.greater_is_better is None:
            args.greater_is_better = not args.metric_for_best_model.endswith("loss")

    def __setattr__(self, name: str, value: Any) -> None:
        defaults, value = _defaults(), getattr(value, "value", value)
        value = "none" if name == "report_to" and value in ([], ["none"], None) else value
        value = json.loads(value) if isinstance(value, str) and value.startswith('{"') else value  # On a command line.
        if name not in defaults and name not in _ROWS and name not in vars(type(self)).get("__dataclass_fields__", ()):
            meant = nearest_argument(name, defaults)
            raise TypeError(f"unknown argument {name!r}" + (f"; did you mean {meant!r}?" if meant else ""))
        default = defaults.get(name, value)
        if name not in _ROWS and value != default and {str(value), str(default)} - _NONE:
            raise ValueError(f"{name}={value!r:.60}: only {default!r} is supported; see sbert.TrainingConfig")
        if name in _CHOICES:
            check_choice(name, value, _CHOICES[name])
        super().__setattr__(name, value)

    to_dict = asdict


@cache
def make_arguments() -> Any:
    """Their class of arguments: a dataclass with the fields of transformers, which is imported for it."""
    kinds = get_type_hints(import_from("TrainingArguments"))
    typed = [(name, kinds.get(name, str | None), value) for name, value in _defaults().items()]
    name = "SentenceTransformerTrainingArguments"
    return make_dataclass(name, typed, bases=(ArgumentsOfTraining,), init=False, namespace={"__module__": __name__})


LAZY.update(dict.fromkeys(("SentenceTransformerTrainingArguments", "CrossEncoderTrainingArguments"), make_arguments))


@cache
def _defaults() -> dict[str, Any]:
    """Their arguments with their defaults."""
    theirs = fields(import_from("TrainingArguments"))
    defaults = {field.name: field.default for field in theirs if field.default is not MISSING}
    return {name: getattr(value, "value", value) for name, value in (defaults | _DEFAULTS).items()}


def _choose_optimizer(args: Any, chosen: tuple[Any, Mapping[str, Any]] | None = None) -> dict[str, Any]:
    """The optimizer of our settings and its rate: of one of their names, or of a class and its arguments."""
    kind, options = chosen or (_OPTIMIZERS[args.optim], {"lr": args.learning_rate})
    kind = "AdamW" if kind is torch.optim.AdamW and set(options) == {"lr"} else kind
    if not isinstance(kind, type):
        return {"optimizer": kind, "learning_rate": options["lr"]}
    trial = kind([torch.nn.Parameter(torch.zeros(1))], **options)  # Its arguments are checked, and its rate known.
    return {"optimizer": partial(kind, **options), "learning_rate": trial.defaults["lr"]}


def _reuse(optimizer: Any) -> tuple[Any, Mapping[str, Any]]:
    """The function of our settings that gives an optimizer of the model's parameters, and its rate."""
    for group in optimizer.param_groups:
        group["lr"] = group.setdefault("initial_lr", group["lr"])

    def reuse(groups: Any) -> Any:
        trained = {id(part) for group in groups for part in group["params"]}
        if not {id(part) for group in optimizer.param_groups for part in group["params"]} <= trained:
            raise ValueError("optimizers= has tensors that are not trained; make it of the model's parameters")
        return optimizer

    return reuse, {"lr": optimizer.param_groups[0]["lr"]}


def _schedule(args: Any, rate: float, total: int, scheduler: Any) -> Callable[[float], float]:
    """The scheduler of their arguments, or one that is given, as our schedule; warm-up is a part of it."""
    scheduler = scheduler or _make_scheduler(args, torch.optim.SGD([torch.zeros(1)], rate), total)
    if not isinstance(scheduler, torch.optim.lr_scheduler.LambdaLR):
        raise ValueError(f"optimizers= has a {type(scheduler).__name__}; pass a LambdaLR, as transformers has them")

    def factor(done: float) -> float:
        return float(scheduler.lr_lambdas[0](round(done * total)))

    factor.__name__ = args.lr_scheduler_type
    return factor


def _make_scheduler(args: Any, optimizer: Any, total: int) -> Any:
    warm = args.warmup_steps or args.warmup_ratio or 0
    warm = math.ceil(warm * total) if warm < 1 else int(warm)
    return import_from("get_scheduler")(args.lr_scheduler_type, optimizer, warm, total, args.lr_scheduler_kwargs)


def _config(args: Any, device: str, total: int, scheduler: Any = None, **more: Any) -> TrainingConfig:
    """Our settings of theirs, for a number of steps in all; ``more`` are those that depend on the data and the loss."""
    ours = {name: getattr(args, theirs) for theirs, name in _SAME.items()} | _choose_optimizer(args) | more
    ours |= {"steps": args.max_steps} if args.max_steps > 0 else {"epochs": args.num_train_epochs}
    ours |= {"max_gradient_norm": args.max_grad_norm or None, "warmup": 0}  # The schedule has the warm-up.
    ours["batch_size"] *= int(os.environ.get("WORLD_SIZE", "1"))
    state, metric = import_from("TrainerState")(), args.metric_for_best_model
    state.compute_steps(args, total)
    if args.fp16 and device == "cpu":
        warn("fp16=True computes in bfloat16 on a CPU, which has no float16")
    samplers = {"batch_sampler": "random", "no_duplicates_hashed": "no_duplicates"}
    return TrainingConfig(
        **{**ours, "output": None if args.save_strategy == "no" else args.output_dir},
        schedule=_schedule(args, ours["learning_rate"], total, scheduler),
        log_every=state.logging_steps,
        dtype="float16" if args.fp16 and device != "cpu" else "bfloat16" if args.fp16 or args.bf16 else "float32",
        sampler=samplers.get(args.batch_sampler, args.batch_sampler),
        shuffle_buffer=1,  # Streams stay in their order, as theirs.
        evaluate_every=state.eval_steps if args.eval_strategy == "steps" else None,
        checkpoint_every=state.save_steps if args.save_strategy == "steps" else None,
        keep=args.save_total_limit or 10**9,  # All, as theirs.
        metric=_our_score(metric) if metric else None,
        minimize=None if args.greater_is_better is None else not args.greater_is_better,
    )


def _our_score(name: str) -> str:
    """Our name of a score."""
    name = name.removeprefix("eval_")
    return f"evaluation_{name}" if name.endswith("loss") else {"evaluator": "score"}.get(name, name)


def _rename_scores(scores: Mapping[str, float], prefix: str = "eval") -> dict[str, float]:
    """Scores under their names."""
    losses = {name: name.removeprefix("evaluation_") for name in scores if name.endswith("loss")}
    return {f"{prefix}_{({'score': 'evaluator'} | losses).get(name, name)}": scores[name] for name in scores}


class _Reporter(Callback):
    """Keeps their state of a run, and calls their callbacks.

    Args:
        owner: The trainer under their name.
        trainer: Ours.
    """

    def __init__(self, owner: Any, trainer: Trainer) -> None:
        self.owner, self.config = owner, vars(trainer.config)
        self.steps_per_epoch = trainer.batches.steps(trainer.config)[1]

    def on_begin(self, progress: Any) -> None:
        """Begin a new state."""
        self.progress, self.losses, self.logged, self.began = progress, list[float](), 0, time.perf_counter()
        epochs = math.ceil(progress.total / self.steps_per_epoch)
        self.owner.state = import_from("TrainerState")(max_steps=progress.total, num_train_epochs=epochs)
        self.owner.state.compute_steps(self.owner.args, progress.total)
        self.call("on_train_begin", "on_epoch_begin", "on_step_begin")

    def call(self, *events: str, **more: Any) -> None:
        """Call these methods of their callbacks, in this order."""
        owner, step = self.owner, self.progress.step
        owner.state.global_step, owner.state.epoch = step, step / self.steps_per_epoch
        for event in events:
            owner.control = getattr(owner.callback_handler, event)(owner.args, owner.state, owner.control, **more)
        if owner.control.should_training_stop:
            self.progress.stop()

    def log(self, metrics: Mapping[str, float]) -> None:
        """Add a line to the history."""
        self.call()
        self.owner.log(dict(metrics))

    def on_step(self, progress: Any) -> None:
        """Log what is due."""
        metrics, is_last = progress.metrics, progress.step == progress.total
        self.losses.append(metrics["loss"])
        ends = is_last or progress.step % self.steps_per_epoch == 0
        for event in ["on_step_end", *["on_epoch_end"] * ends]:
            self.call(event)
            if self.owner.control.should_log:
                loss, norm = fmean(self.losses[self.logged :]), metrics["gradient_norm"]
                self.log({"loss": loss, "grad_norm": norm, "learning_rate": metrics["learning_rate"]})
                self.logged = len(self.losses)
        self.call(*[] if is_last else [*["on_epoch_begin"] * ends, "on_step_begin"])

    def on_evaluate(self, progress: Any) -> None:
        """Log the scores, and remember the best."""
        state, scores = self.owner.state, _rename_scores(progress.metrics)
        if not self.owner.overrides("evaluate"):  # Which logs its scores itself.
            self.log(scores)
        self.call("on_evaluate", metrics=scores)
        if self.owner.score_callback is not None:
            self.owner.score_callback(next(iter(scores.values())), state.epoch, state.global_step)
        if progress.improved:
            state.best_metric = progress.metrics[self.config["metric"] or next(iter(progress.metrics))]
            state.best_model_checkpoint = progress.folder and str(progress.folder / "best")

    def on_save(self, progress: Any) -> None:
        """Link the checkpoint under their name."""
        link = self.progress.folder / f"checkpoint-{progress.step}"
        with suppress(OSError):  # It is there, or the file system has no links.
            link.symlink_to(progress.path.relative_to(link.parent), target_is_directory=True)
        for other in link.parent.glob("checkpoint-*"):
            if not other.exists():  # It was one too many.
                other.unlink()
        self.call("on_save")

    def on_end(self, progress: Any) -> None:  # noqa: ARG002
        """Log the mean loss and the speed of the steps of this run."""
        steps, seconds = len(self.losses), time.perf_counter() - self.began
        rows = steps * self.config["accumulation"] * self.config["batch_size"]
        speed = {"train_samples_per_second": rows / seconds, "train_steps_per_second": steps / seconds}
        self.log({"train_runtime": seconds, **speed, "train_loss": fmean(self.losses or [0.0])})
        self.call("on_train_end")

    def state(self) -> dict[str, Any]:
        """Theirs."""
        return asdict(self.owner.state)

    def restore(self, state: dict[str, Any]) -> None:
        """Set it."""
        self.owner.state = import_from("TrainerState")(**state)


class SentenceTransformerTrainer:
    """Trains with ``sbert.Trainer``; columns are taken in the order of the data set, as the losses of theirs do.

    Args:
        model: The model.
        args: The arguments; by default those of three epochs.
        train_dataset: A ``datasets.Dataset``, a stream, rows, or several of these by name.
        eval_dataset: The same; its loss is a score, too.
        loss: A loss of ``losses``, or its class, or one of ours, or one for each data set by name.
        evaluator: An evaluator, or several.
        callbacks: Callbacks of transformers, such as ``EarlyStoppingCallback``.
        optimizers: An optimizer of the model's parameters and a scheduler of it, or None.
        optimizer_cls_and_kwargs: A class of optimizers and its arguments, in place of ``optim``.
        options: ``tokenizer`` or ``processing_class``, that of the model; others are not supported: an error says what
            to do instead.

    Raises:
        TypeError: If a subclass overrides a method of theirs, such as ``compute_loss``: it would never be called.
    """

    score_callback: Any = None  # Of the old ``fit``, called with the score that decides, the epoch and the step.

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name in sorted({*dir(import_from("Trainer")), *_OF_TRAINERS} & {*vars(cls)} - {*_CALLED}):
            if not name.startswith("__"):
                raise TypeError(f"{cls.__name__}.{name} is never called here; instead: {_OF_TRAINERS.get(name, _ELSE)}")

    def __init__(
        self, model: Any, args: Any = None, train_dataset: Any = None, eval_dataset: Any = None,
        loss: Any = None, evaluator: Any = None, *,
        callbacks: Iterable[Any] | None = None, optimizers: tuple[Any, Any] = (None, None),
        optimizer_cls_and_kwargs: tuple[Any, Mapping[str, Any]] | None = None, **options: Any,
    ) -> None:  # fmt: skip
        tokenizer = getattr(model, "tokenizer", None)
        for name, value in options.items():
            is_that = name in ("tokenizer", "processing_class") and value is tokenizer
            if not is_that and (name not in _OF_TRAINERS or value is not None):
                instead = _OF_TRAINERS.get(name, _ELSE)
                raise TypeError(f"{type(self).__name__}() takes no {name}={value!r:.60}; instead: {instead}")
        self.args = args or make_arguments()()
        self.model = model.to("cpu") if self.args.use_cpu else model
        self.processing_class, self.optimizer_cls_and_kwargs = tokenizer, optimizer_cls_and_kwargs
        self.optimizer, self.lr_scheduler = optimizers
        self.train_dataset, self.eval_dataset = train_dataset, eval_dataset
        named = loss if isinstance(loss, Mapping) else {"": default_loss(model) if loss is None else loss}
        new = {name: as_loss(part(model) if isinstance(part, type) else part) for name, part in named.items()}
        self.loss = new if isinstance(loss, Mapping) else new[""]
        self.evaluator = SequentialEvaluator(evaluator) if isinstance(evaluator, (list, tuple)) else evaluator
        self.state, self.control = import_from("TrainerState")(), import_from("TrainerControl")()
        module = import_from("trainer_callback")
        theirs = [module.DefaultFlowCallback, *(callbacks or ())]
        handler = self.callback_handler = module.CallbackHandler(theirs, model, tokenizer, *optimizers)
        for callback in handler.callbacks:
            if not isinstance(callback, module.TrainerCallback):
                raise TypeError(f"callbacks has {callback!r:.60}; pass those of transformers")
        self.add_callback, self.pop_callback = handler.add_callback, handler.pop_callback
        self.remove_callback = handler.remove_callback

    @classmethod
    def overrides(cls, *names: str) -> bool:
        """Whether a subclass has a method of its own under one of these names."""
        return any(getattr(cls, name) is not getattr(SentenceTransformerTrainer, name) for name in names)

    def trainer(self, eval_dataset: Any = None, is_run: bool = False) -> Trainer:
        """Our trainer with the same settings; for a run, with the optimizer and the scheduler that a subclass makes."""
        _ = self.model.max_seq_length  # Which takes that of its tokenizer.
        args, held_out = self.args, self.eval_dataset if eval_dataset is None else eval_dataset
        trained = held_out if self.train_dataset is None else self.train_dataset
        data, others = (rows if isinstance(rows, Mapping) else {"data": rows} for rows in (trained, held_out))
        losses = self.loss if isinstance(self.loss, Mapping) else {"data": self.loss}
        loss_of = {**dict.fromkeys({**others, **data}, next(iter(losses.values()))), **losses}
        if self.model.is_cross_encoder:
            data, others = (
                {name: join_documents(rows, loss_of[name]) for name, rows in part.items()} for part in (data, others)
            )
        held_out = others if isinstance(held_out, Mapping) else others["data"]
        more = {name: value for loss in losses.values() for name, value in trainer_settings(loss).items()}
        more |= {"mix": "round_robin"} if len(data) == 1 else {}  # Any other reads a whole stream.
        guide, size = more.pop("guide", None), args.per_device_eval_batch_size
        compares_rows = any(getattr(loss, "least_rows", 1) > 1 for loss in losses.values())  # Of a batch.
        if held_out is not None and compares_rows and size != args.per_device_train_batch_size:
            warn(f"eval_loss is that of batches of per_device_train_batch_size, not of {size}")
        columns_of = {name: _columns_of(rows, loss_of[name]) for name, rows in {**others, **data}.items()}
        device = self.model.device.type
        trainer = Trainer(
            self.model, data, self.loss, _config(args, device, 1, **more), evaluator=self.evaluator,
            evaluation_data=held_out, guide=guide,
            columns={name: columns for name, (columns, _) in columns_of.items() if columns},
            label={name: label for name, (_, label) in columns_of.items() if label},
        )  # fmt: skip
        total = trainer.batches.steps(trainer.config)[0]
        if is_run and self.overrides("create_optimizer", "create_scheduler"):
            self.create_optimizer()
            self.create_scheduler(total, self.optimizer)
        chosen = self.optimizer_cls_and_kwargs if self.optimizer is None else _reuse(self.optimizer)
        more |= _choose_optimizer(args, chosen)
        trainer.config = _config(args, device, total, self.lr_scheduler, **more)
        return trainer

    def train(self, resume_from_checkpoint: str | os.PathLike[str] | bool | None = None) -> Any:
        """Train, and return the number of steps, the mean loss, and the time and speed.

        Raises:
            ValueError: If it is to resume from another checkpoint than the newest one of the output folder.
        """
        trainer, args, checkpoint = self.trainer(is_run=True), self.args, resume_from_checkpoint
        trainer.callbacks.append(_Reporter(self, trainer))
        last = newest(Path(args.output_dir or "") / "checkpoints")
        if not isinstance(checkpoint, bool | None) and (last is None or Path(checkpoint).resolve() != last.resolve()):
            raise ValueError(f"resume_from_checkpoint={checkpoint!r}: the newest is {last}; pass True for that")
        if args.eval_strategy == "no":
            trainer.evaluator = None
        elif self.overrides("evaluate"):
            trainer.evaluator = lambda _: {_our_score(name): score for name, score in self.evaluate().items()}
        show = None if args.disable_tqdm is None else not args.disable_tqdm
        trainer.fit(resume=bool(checkpoint), show_progress_bar=show)
        metrics = [{}, *self.state.log_history][-1]  # The first of several processes has them.
        output = import_from("TrainOutput", "transformers.trainer_utils")
        return output(self.state.global_step, metrics.get("train_loss", 0.0), metrics)

    def create_optimizer(self, *_: Any) -> Any:
        """The optimizer of the arguments for all weights that are trained."""
        if self.optimizer is None:
            losses = self.loss if isinstance(self.loss, Mapping) else {"": self.loss}
            config = _config(self.args, "cpu", 1, **_choose_optimizer(self.args, self.optimizer_cls_and_kwargs))
            self.optimizer = create_optimizer(config, Weights(self.model, losses))
        return self.optimizer

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        """The scheduler of the arguments for a number of steps."""
        if self.lr_scheduler is None:
            self.lr_scheduler = _make_scheduler(self.args, optimizer or self.optimizer, num_training_steps)
        return self.lr_scheduler

    def log(self, logs: dict[str, float], *_: Any) -> None:
        """Add a line to the history."""
        logs = {**logs, "epoch": self.state.epoch}
        self.state.log_history.append({**logs, "step": self.state.global_step})
        self.control = self.callback_handler.on_log(self.args, self.state, self.control, logs)

    def evaluate(self, eval_dataset: Any = None, *_: Any, metric_key_prefix: str = "eval", **__: Any) -> Any:
        """The metrics of the evaluator, and the loss of the evaluation data; their names begin with the prefix."""
        evaluator = self.trainer(eval_dataset).evaluator
        if evaluator is None:
            raise ValueError("there is nothing to evaluate; pass evaluator= or eval_dataset=")
        scores = _rename_scores(measure(evaluator, self.model, ALONE), metric_key_prefix)
        self.log(scores)
        return scores

    def save_model(self, output_dir: str | os.PathLike[str] | None = None) -> None:
        """``model.save``."""
        self.model.save(output_dir or self.args.output_dir)

    def push_to_hub(self, commit_message: str = "End of training", **options: Any) -> Any:
        """``model.push_to_hub``, as ``hub_model_id`` or with the name of the output folder."""
        name = self.args.hub_model_id or Path(self.args.output_dir).resolve().name
        return self.model.push_to_hub(name, commit_message=commit_message, **{"token": self.args.hub_token, **options})


CrossEncoderTrainer = SentenceTransformerTrainer


def _columns_of(data: Any, loss: Any) -> tuple[list[str], str | None]:
    """The columns of a data set in its order, and the one of labels if the loss takes them; none of plain rows."""
    names = data[:1] if hasattr(data, "set_transform") else getattr(data, "column_names", ())
    names = list(next(iter(data)) if names is None else names)  # Some streams know their rows alone.
    label = next((name for name in names if name in LABELS), None)
    return [name for name in names if name != label], label if "labels" in Signature.of(loss).extras else None


def default_loss(model: Any) -> Any:
    """The loss that is used if none is given."""
    if model.is_cross_encoder:
        return CrossEntropyLoss(model.classes) if model.classes > 1 else BinaryCrossEntropyLoss()
    return CoSENTLoss()


__all__ = ["BatchSamplers", "CrossEncoderTrainer", "MultiDatasetBatchSamplers", "SentenceTransformerTrainer", *LAZY]
offer(__name__)
