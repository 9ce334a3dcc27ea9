"""Their trainers and arguments over ``sbert.Trainer`` and ``sbert.TrainingConfig``."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields, replace
from enum import Enum
from functools import cache, partial
from types import SimpleNamespace
from typing import Any

import torch

from sbert.backends.huggingface import import_from
from sbert.inputs.arguments import check_choice, nearest_argument, warn
from sbert.integrations import switching
from sbert.integrations.sentence_transformers.evaluation import SequentialEvaluator
from sbert.integrations.sentence_transformers.forms import absent
from sbert.integrations.sentence_transformers.losses import settings
from sbert.losses import BinaryCrossEntropyLoss, CoSENTLoss, CrossEntropyLoss
from sbert.losses.signature import Signature
from sbert.training import Callback, EarlyStopping, Trainer, TrainingConfig

_LABELS = ("label", "labels", "score", "scores")
_ROWS = {name: row for row in switching.ROWS if row.section == switching.TRAINING for name in row.theirs}
_OF_TRAINERS = {name: row.plain for row in switching.ROWS if row.section == switching.TRAINERS for name in row.theirs}
_ELSE = "sbert.Trainer, its callbacks and its settings"
# Those that are ours under another name, at most.
_SAME = {name: row.ours or name for name, row in _ROWS.items() if row.how in ("same", "other name")}
_OPTIMIZERS: dict[str, Any] = {
    "adamw_torch": "adamw", "adamw_torch_fused": "adamw", "adamw_8bit": "adamw_8bit", "adamw_bnb_8bit": "adamw_8bit",
    "sgd": torch.optim.SGD, "adagrad": torch.optim.Adagrad, "rmsprop": torch.optim.RMSprop,
}  # fmt: skip
# Theirs at the default of their arguments: a polynomial of degree 1, and one cycle of restarts.
_SCHEDULES = {
    "linear": "linear", "polynomial": "linear", "cosine": "cosine", "cosine_with_restarts": "cosine",
    "constant": "constant", "constant_with_warmup": "constant",
}  # fmt: skip
_CHOICES = {
    "optim": list(_OPTIMIZERS),
    "lr_scheduler_type": list(_SCHEDULES),
    **dict.fromkeys(("eval_strategy", "save_strategy", "logging_strategy"), ("no", "steps", "epoch")),
    "batch_sampler": ("batch_sampler", "no_duplicates", "no_duplicates_hashed", "group_by_label", "random", "in_order"),
    "multi_dataset_batch_sampler": ("round_robin", "proportional"),
}
_DEFAULTS = {
    "batch_sampler": "batch_sampler",
    "multi_dataset_batch_sampler": "proportional",
    "prompts": None,
    "report_to": "none",  # history.jsonl in output_dir has all.
    "warmup_ratio": 0.0,
    "router_mapping": None,
    "learning_rate_mapping": None,
}


class BatchSamplers(Enum):
    """How rows become batches."""

    BATCH_SAMPLER = "batch_sampler"
    NO_DUPLICATES = "no_duplicates"
    NO_DUPLICATES_HASHED = "no_duplicates_hashed"
    GROUP_BY_LABEL = "group_by_label"


class MultiDatasetBatchSamplers(Enum):
    """How batches of several data sets are mixed."""

    ROUND_ROBIN = "round_robin"
    PROPORTIONAL = "proportional"


class SentenceTransformerTrainingArguments(SimpleNamespace):
    """Their arguments with their defaults, as attributes; ``_config`` makes a ``TrainingConfig`` of them.

    Raises:
        TypeError: If an argument is unknown.
        ValueError: If one without an equivalent does not have its default.
    """

    def __init__(self, output_dir: str | os.PathLike[str] | None = None, **options: Any) -> None:
        super().__init__(**_defaults())
        for name, value in {"output_dir": output_dir, **options}.items():
            setattr(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        known, value = _defaults(), getattr(value, "value", value)
        if name not in known and name not in _ROWS:
            meant = nearest_argument(name, known)
            raise TypeError(f"unknown argument {name!r}" + (f"; did you mean {meant!r}?" if meant else ""))
        if name not in _ROWS and value != known[name]:
            raise ValueError(f"{name}={value!r:.60}: only {known[name]!r} is supported; see sbert.TrainingConfig")
        if name in _CHOICES:
            check_choice(name, value, _CHOICES[name])
        super().__setattr__(name, value)


CrossEncoderTrainingArguments = SentenceTransformerTrainingArguments


@cache
def _defaults() -> dict[str, Any]:
    """Their arguments with their defaults."""
    theirs = fields(import_from("TrainingArguments"))
    defaults = {field.name: field.default for field in theirs if field.default is not MISSING}
    return {name: getattr(value, "value", value) for name, value in (defaults | _DEFAULTS).items()}


def _choose_optimizer(name: str, rate: float, given: tuple[Any, Mapping[str, Any]] | None) -> dict[str, Any]:
    """The optimizer of our settings and its rate: of one of their names, or of a class and its arguments."""
    kind, options = given or (_OPTIMIZERS[name], {"lr": rate})
    kind = "adamw" if kind is torch.optim.AdamW and set(options) == {"lr"} else kind
    if isinstance(kind, str):
        return {"optimizer": kind, "learning_rate": options["lr"]}
    trial = kind([torch.nn.Parameter(torch.zeros(1))], **options)  # Its arguments are checked, and its rate known.
    return {"optimizer": partial(kind, **options), "learning_rate": trial.defaults["lr"]}


def _config(args: Any, device: str, batches: int, chunk_tokens: int | None, optimizer: Any) -> TrainingConfig:
    """Our settings of theirs, for a number of batches per epoch."""
    ours = {name: getattr(args, theirs) for theirs, name in _SAME.items()}
    ours |= {"steps": args.max_steps} if args.max_steps > 0 else {"epochs": args.num_train_epochs}
    ours |= _choose_optimizer(args.optim, args.learning_rate, optimizer)
    each = max(1, round(batches / args.gradient_accumulation_steps))
    log_every = {"steps": args.logging_steps, "epoch": each, "no": 10**9}  # The last step is logged in any case.
    ours |= {"log_every": log_every[args.logging_strategy], "max_gradient_norm": args.max_grad_norm or None}
    if args.fp16 and device == "cpu":
        warn("fp16=True computes in bfloat16 on a CPU, which has no float16")
    warm = args.warmup_steps or args.warmup_ratio or 0
    warm = 0 if args.lr_scheduler_type == "constant" else warm
    samplers = {"batch_sampler": "random", "no_duplicates_hashed": "no_duplicates"}
    metric = (args.metric_for_best_model or "").removeprefix("eval_") or None
    return TrainingConfig(
        **{**ours, "output": None if args.save_strategy == "no" else args.output_dir},
        warmup=warm if warm < 1 else round(warm),
        schedule=_SCHEDULES[args.lr_scheduler_type],
        dtype="float16" if args.fp16 and device != "cpu" else "bfloat16" if args.fp16 or args.bf16 else "float32",
        chunk_tokens=chunk_tokens or (4096 if args.gradient_checkpointing else None),
        sampler=samplers.get(args.batch_sampler, args.batch_sampler),
        mix=args.multi_dataset_batch_sampler,
        evaluate_every=(args.eval_steps or args.logging_steps) if args.eval_strategy == "steps" else None,
        checkpoint_every=args.save_steps if args.save_strategy == "steps" else None,
        keep=args.save_total_limit or 10**9,  # All, as theirs.
        metric="evaluation_loss" if metric == "loss" else metric,
        minimize=None if args.greater_is_better is None else not args.greater_is_better,
    )


class SentenceTransformerTrainer:
    """Trains with ``sbert.Trainer``; columns are taken in the order of the data set, as the losses of theirs do.

    Args:
        model: The model.
        args: The arguments; by default those of three epochs.
        train_dataset: A ``datasets.Dataset``, rows, or several of these by name.
        eval_dataset: The same; its loss is a score, too.
        loss: A loss of ``losses``, or its class, or one of ours, or one for each data set by name.
        evaluator: An evaluator, or several.
        callbacks: ``EarlyStoppingCallback`` of transformers, or callbacks of ``sbert.training``.
        optimizer_cls_and_kwargs: A class of optimizers and its arguments, in place of ``optim``.
        options: ``tokenizer`` or ``processing_class``, that of the model; others are not supported: an error says what
            to do instead.

    Raises:
        TypeError: If a subclass overrides a method of theirs, such as ``compute_loss``: it would never be called.
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name in sorted({*dir(import_from("Trainer")), *_OF_TRAINERS} & {*vars(cls)} - {"train"}):
            if not name.startswith("__"):
                raise TypeError(f"{cls.__name__}.{name} is never called here; instead: {_OF_TRAINERS.get(name, _ELSE)}")

    def __init__(
        self,
        model: Any,
        args: Any = None,
        train_dataset: Any = None,
        eval_dataset: Any = None,
        loss: Any = None,
        evaluator: Any = None,
        *,
        callbacks: Iterable[Any] | None = None,
        optimizer_cls_and_kwargs: tuple[Any, Mapping[str, Any]] | None = None,
        **options: Any,
    ) -> None:
        for name, value in options.items():
            if name in ("tokenizer", "processing_class") and value is getattr(model, "tokenizer", model):
                continue
            if name not in _OF_TRAINERS or value not in (None, (None, None)):
                instead = _OF_TRAINERS.get(name, _ELSE)
                raise TypeError(f"{type(self).__name__}() takes no {name}={value!r:.60}; instead: {instead}")
        self.optimizer_cls_and_kwargs = optimizer_cls_and_kwargs
        self.callbacks = list(map(_callback, callbacks or ()))
        gains = [getattr(callback, "early_stopping_threshold", 0.0) for callback in callbacks or ()]
        self.least_gain = max(gains, default=0.0)
        self.model = model
        self.args = args or SentenceTransformerTrainingArguments()
        self.train_dataset, self.eval_dataset = train_dataset, eval_dataset
        loss = default_loss(model) if loss is None else loss
        self.loss = loss(model) if getattr(loss, "makes_a_loss", False) else loss
        self.evaluator = SequentialEvaluator(evaluator) if isinstance(evaluator, (list, tuple)) else evaluator
        self.state = SimpleNamespace(log_history=[], global_step=0)

    def trainer(self) -> Trainer:
        """Our trainer with the same settings."""
        data = self.eval_dataset if self.train_dataset is None else self.train_dataset
        data = data if isinstance(data, Mapping) else {"data": data}
        losses = self.loss if isinstance(self.loss, Mapping) else dict.fromkeys(data, self.loss)
        options = {key: value for one in losses.values() for key, value in settings(one).items()}
        size = self.args.per_device_train_batch_size * int(os.environ.get("WORLD_SIZE", "1"))
        sizes = [math.ceil(len(rows) / size) for rows in data.values()]
        batches = sum(sizes) if self.args.multi_dataset_batch_sampler == "proportional" else min(sizes) * len(sizes)
        evaluated = self.args.per_device_eval_batch_size
        differs = self.eval_dataset is not None and evaluated != self.args.per_device_train_batch_size
        if differs and any(getattr(one, "least_rows", 1) > 1 for one in losses.values()):  # They compare rows.
            warn(f"eval_loss is that of batches of per_device_train_batch_size, not of {evaluated}")
        device = self.model.device.type
        config = _config(self.args, device, batches, options.get("chunk_tokens"), self.optimizer_cls_and_kwargs)
        columns_of = {name: _columns_of(rows, losses[name]) for name, rows in data.items()}
        return Trainer(
            self.model,
            data,
            losses,
            replace(config, batch_size=size, min_delta=self.least_gain),
            evaluator=self.evaluator,
            callbacks=self.callbacks,
            evaluation_data=self.eval_dataset,
            columns={name: columns for name, (columns, _) in columns_of.items() if columns},
            label={name: label for name, (_, label) in columns_of.items() if label},
            guide=options.get("guide"),
        )

    def train(self, resume_from_checkpoint: bool | None = None) -> SimpleNamespace:
        """Train, and return the number of steps, the last loss and the history."""
        trainer = self.trainer()
        if not isinstance(resume_from_checkpoint, bool | None):
            raise ValueError(f"resume_from_checkpoint={resume_from_checkpoint!r}: pass True for that of the last step")
        if self.args.eval_strategy == "no":
            trainer.evaluator = None
        history = trainer.fit(
            resume=bool(resume_from_checkpoint),
            show_progress_bar=None if self.args.disable_tqdm is None else not self.args.disable_tqdm,
        )
        self.state.log_history = history
        self.state.global_step = max((line["step"] for line in history), default=0)
        losses = [line["loss"] for line in history if "loss" in line]
        return SimpleNamespace(global_step=self.state.global_step, training_loss=losses[-1], metrics=history[-1])

    def evaluate(self) -> dict[str, float]:
        """The metrics of the evaluator, and the loss of the evaluation data; their names begin with ``eval_``."""
        given: Any = self.trainer().evaluator
        if given is None:
            raise ValueError("there is nothing to evaluate; pass evaluator= or eval_dataset=")
        metrics = [each(self.model) for each in (given.values() if isinstance(given, Mapping) else [given])]
        return {f"eval_{name}": value for one in metrics for name, value in one.items()}

    def save_model(self, output_dir: str | os.PathLike[str] | None = None) -> None:
        """``model.save``."""
        self.model.save(output_dir or self.args.output_dir)


CrossEncoderTrainer = SentenceTransformerTrainer


def _callback(given: Any) -> Callback:
    if hasattr(given, "early_stopping_patience"):
        return EarlyStopping(given.early_stopping_patience)
    if not isinstance(given, Callback):
        raise TypeError(f"callbacks has {given!r:.60}; pass EarlyStoppingCallback, or those of sbert.training")
    return given


def _columns_of(data: Any, loss: Any) -> tuple[list[str], str | None]:
    """The columns of a data set in its order, and the one of labels if the loss takes them; none of plain rows."""
    names = list(getattr(data, "column_names", None) or ())
    label = next((name for name in names if name in _LABELS), None)
    return [name for name in names if name != label], label if "labels" in Signature.of(loss).extras else None


def default_loss(model: Any) -> Any:
    """The loss that is used if none is given."""
    if model.is_cross_encoder:
        return CrossEntropyLoss(model.classes) if model.classes > 1 else BinaryCrossEntropyLoss()
    return CoSENTLoss()


__all__ = [
    "BatchSamplers",
    "CrossEncoderTrainer",
    "CrossEncoderTrainingArguments",
    "MultiDatasetBatchSamplers",
    "SentenceTransformerTrainer",
    "SentenceTransformerTrainingArguments",
]
__getattr__ = absent(__name__, "Training")
