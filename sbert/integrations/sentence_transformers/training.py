"""Their trainers and arguments over ``sbert.Trainer`` and ``sbert.TrainingConfig``."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import MISSING, fields
from enum import Enum
from types import SimpleNamespace
from typing import Any

from sbert.backends.huggingface import import_from
from sbert.inputs.arguments import nearest_argument, warn
from sbert.integrations.sentence_transformers.evaluation import SequentialEvaluator
from sbert.integrations.sentence_transformers.forms import Form, absent
from sbert.integrations.sentence_transformers.losses import settings
from sbert.losses import BinaryCrossEntropyLoss, CoSENTLoss, CrossEntropyLoss
from sbert.losses.signature import Signature
from sbert.training import Trainer, TrainingConfig

_LABELS = ("label", "labels", "score", "scores")
# Their arguments under our names.
_SAME = Form(
    dict,
    "output_dir=output per_device_train_batch_size=batch_size gradient_accumulation_steps=accumulation learning_rate"
    " weight_decay max_grad_norm=max_gradient_norm logging_steps=log_every seed prompts",
).parameters()
# Those that _config reads, and those that change no result here.
_TAKEN = (
    "num_train_epochs max_steps warmup_steps warmup_ratio fp16 bf16 gradient_checkpointing batch_sampler"
    " multi_dataset_batch_sampler eval_strategy eval_steps save_strategy save_steps save_total_limit"
    " load_best_model_at_end metric_for_best_model disable_tqdm"
    " per_device_eval_batch_size run_name gradient_checkpointing_kwargs remove_unused_columns tf32 optim"
    " logging_strategy logging_first_step log_level overwrite_output_dir do_train do_eval save_only_model"
    " dataloader_num_workers dataloader_pin_memory dataloader_persistent_workers dataloader_prefetch_factor"
    " greater_is_better logging_dir eval_on_start"
).split()
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
        theirs = fields(import_from("TrainingArguments"))
        known = {field.name: field.default for field in theirs if field.default is not MISSING}
        known.update(_DEFAULTS)
        options = {name: getattr(value, "value", value) for name, value in options.items()}
        for name, value in options.items():
            if name not in known and name not in _TAKEN:
                meant = nearest_argument(name, known)
                raise TypeError(f"unknown argument {name!r}" + (f"; did you mean {meant!r}?" if meant else ""))
            if name not in (*_SAME, *_TAKEN) and value != known[name]:
                raise ValueError(
                    f"{name}={value!r:.60}: only {known[name]!r} is supported; sbert.TrainingConfig has all settings"
                )
        super().__init__(**{**known, **options, "output_dir": output_dir})


CrossEncoderTrainingArguments = SentenceTransformerTrainingArguments


def _config(args: Any, batches: int, chunk_tokens: int | None) -> TrainingConfig:
    """Our settings of theirs, for a number of batches per epoch."""
    ours = {name: getattr(args, theirs) for theirs, name in _SAME.items()}
    total = args.max_steps if args.max_steps > 0 else args.num_train_epochs * batches / args.gradient_accumulation_steps
    ours |= {"steps": args.max_steps} if args.max_steps > 0 else {"epochs": args.num_train_epochs}
    if args.fp16:
        warn("fp16=True computes in bfloat16 here, which needs no scaling of the loss")
    warm = args.warmup_steps or args.warmup_ratio or 0
    samplers = {"batch_sampler": "random", "no_duplicates_hashed": "no_duplicates"}
    metric = (args.metric_for_best_model or "").removeprefix("eval_") or None
    return TrainingConfig(
        **{**ours, "output": None if args.save_strategy == "no" else args.output_dir},
        warmup=warm if warm < 1 else min(1.0, warm / max(1, round(total))),
        dtype="bfloat16" if args.fp16 or args.bf16 else "float32",
        chunk_tokens=chunk_tokens or (4096 if args.gradient_checkpointing else None),
        sampler=samplers.get(args.batch_sampler, args.batch_sampler),
        mix=args.multi_dataset_batch_sampler,
        evaluate_every=(args.eval_steps or args.logging_steps) if args.eval_strategy == "steps" else None,
        checkpoint_every=args.save_steps if args.save_strategy == "steps" else None,
        keep=args.save_total_limit or 2,
        metric="evaluation_loss" if metric == "loss" else metric,
    )


class SentenceTransformerTrainer:
    """Trains with ``sbert.Trainer``; columns are taken in the order of the data set, as the losses of theirs do.

    Args:
        model: The model.
        args: The arguments; by default those of three epochs.
        train_dataset: A ``datasets.Dataset``, rows, or several of these by name.
        eval_dataset: The same; its loss is a score, too.
        loss: A loss of ``losses``, or one of ours, or one for each data set by name.
        evaluator: An evaluator, or several.
        options: ``callbacks`` and the like, which are not supported.
    """

    def __init__(
        self,
        model: Any,
        args: Any = None,
        train_dataset: Any = None,
        eval_dataset: Any = None,
        loss: Any = None,
        evaluator: Any = None,
        **options: Any,
    ) -> None:
        given = [name for name, value in options.items() if value is not None and value != (None, None)]
        if given:
            raise TypeError(f"{', '.join(given)} not supported; sbert.Trainer trains with AdamW, and writes a history")
        self.model = model
        self.args = args or SentenceTransformerTrainingArguments()
        self.train_dataset, self.eval_dataset = train_dataset, eval_dataset
        self.loss = default_loss(model) if loss is None else loss
        self.evaluator = SequentialEvaluator(evaluator) if isinstance(evaluator, (list, tuple)) else evaluator
        self.state = SimpleNamespace(log_history=[], global_step=0)

    def trainer(self) -> Trainer:
        """Our trainer with the same settings."""
        data = self.eval_dataset if self.train_dataset is None else self.train_dataset
        data = data if isinstance(data, Mapping) else {"data": data}
        losses = self.loss if isinstance(self.loss, Mapping) else dict.fromkeys(data, self.loss)
        options = {key: value for one in losses.values() for key, value in settings(one).items()}
        sizes = [math.ceil(len(rows) / self.args.per_device_train_batch_size) for rows in data.values()]
        turns = self.args.multi_dataset_batch_sampler == "round_robin"
        columns_of = {name: _columns_of(rows, losses[name]) for name, rows in data.items()}
        return Trainer(
            self.model,
            data,
            losses,
            _config(self.args, min(sizes) * len(sizes) if turns else sum(sizes), options.get("chunk_tokens")),
            evaluator=self.evaluator,
            evaluation_data=self.eval_dataset,
            columns={name: columns for name, (columns, _) in columns_of.items() if columns},
            label={name: label for name, (_, label) in columns_of.items() if label},
            guide=options.get("guide"),
        )

    def train(self, resume_from_checkpoint: bool | str | None = None) -> SimpleNamespace:
        """Train, and return the number of steps, the last loss and the history."""
        trainer = self.trainer()
        if self.args.eval_strategy == "no":
            trainer.evaluator = None
        history = trainer.fit(
            resume=bool(resume_from_checkpoint),
            show_progress_bar=None if self.args.disable_tqdm is None else not self.args.disable_tqdm,
        )
        self.state.log_history = history
        self.state.global_step = max((line["step"] for line in history), default=0)
        if self.args.load_best_model_at_end:
            load_best(self.model, trainer.config.output)
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


def load_best(model: Any, output: Any) -> None:
    """Give a model the weights of the best one in a folder.

    Raises:
        ValueError: If there is none.
    """
    folder = os.path.join(output or "", "best")
    if output is None or not os.path.isdir(folder):
        raise ValueError("load_best_model_at_end needs an evaluation and output_dir; pass eval_strategy and evaluator")
    best = type(model)(folder, device="cpu")
    model.load_state_dict(best.state_dict())


__all__ = [
    "BatchSamplers",
    "CrossEncoderTrainer",
    "CrossEncoderTrainingArguments",
    "MultiDatasetBatchSamplers",
    "SentenceTransformerTrainer",
    "SentenceTransformerTrainingArguments",
]
__getattr__ = absent(__name__, "Training")
