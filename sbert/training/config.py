"""The settings of a training."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from sbert.inputs.arguments import check_choice, check_count, check_number, check_seed, known_arguments
from sbert.inputs.prompts import Prompts
from sbert.training.sampling import MIXES, SAMPLERS

# The factor of the learning rate, by the share of the steps after warm-up that is done.
SCHEDULES: dict[str, Callable[[float], float]] = {
    "linear": lambda done: 1 - done,
    "cosine": lambda done: (1 + math.cos(math.pi * done)) / 2,
    "constant": lambda _: 1.0,
}
Groups = list[dict[str, Any]]  # Groups of parameters, as an optimizer takes them.

# The names of the optimizers of ``torch.optim``.
OPTIMIZERS = [name for name, kind in vars(torch.optim).items() if isinstance(kind, type) and name != "Optimizer"]

if TYPE_CHECKING:
    Optimizer = str | Callable[[Groups], torch.optim.Optimizer]
    Schedule = str | Callable[[float], float]
    Sampler = str | Callable[..., Sequence[Any]]  # Of the rows, the batch size and a generator.

# Numbers of at least 1, and numbers above 0; of both kinds, some may be None, and some a dict of numbers.
_OPTIONAL_COUNTS = ("steps", "chunk_tokens", "max_lengths", "negatives", "evaluate_every", "checkpoint_every")
_COUNTS = ("batch_size", "accumulation", "log_every", "keep", "shuffle_buffer", *_OPTIONAL_COUNTS)
_OPTIONAL_POSITIVE = ("epochs", "learning_rates", "max_gradient_norm")
_POSITIVE = ("learning_rate", "timeout", *_OPTIONAL_POSITIVE)


@dataclass(frozen=True)
class TrainingConfig:
    """The settings of a ``Trainer``; the defaults are those of the Sentence-BERT paper.

    Args:
        output: Folder for checkpoints, the best and the last model and the history; by default nothing is written.
        epochs: Number of passes over the data, which may be a fraction; by default 1. A sampler that gives more rows in
            later epochs, such as a curriculum, is asked for all of them at the start, to know the number of steps.
        steps: Total number of optimizer steps, instead of epochs.
        batch_size: Rows per batch, over all ranks: more ranks change the speed, but not the training, except for the
            random numbers of dropout. For several data sets: one number, or a dict by name.
        drop_last: Whether to leave out batches with fewer rows.
        accumulation: Batches per optimizer step (gradient accumulation), each weighted by its rows.
        chunk_tokens: Turns gradient caching on: at most this many tokens pass through the model together, so a batch
            of any size needs only the memory of one chunk. The gradients are the same.
        deduplicate: Whether to encode a text that occurs in several rows of a batch only once. A text that occurs
            twice in one row, such as ``(text, text)``, is always encoded twice: two dropout views (SimCSE).
        prompts: The prompts of the columns: a dict from a column's name, in the data or the loss, to the name of one
            of the model's prompts, a text, or ``""`` for none; or one of these for all columns. Required if the model
            has a default prompt, which may not be meant for every column. A guide uses its own prompts of these names.
            A cross-encoder takes one name or text, before the first text of each pair; by default its default prompt.
            For several data sets: one of these, or a dict of them by data set.
        routes: The routes of the columns of a model with a ``Router``, such as ``{"anchor": "query", "positive":
            "document"}``: a name for each column, by column as in ``prompts``.
        max_lengths: The maximum number of tokens of the texts of a column, by column as in ``prompts``, or one for all;
            where no column is named, that of the model. For several data sets: these, or a dict of them by data set.
        negatives: Of the negatives of each row, this many are drawn again in each epoch; by default all are taken. Rows
            may have lists of different lengths then.
        optimizer: The name of a class of ``torch.optim``, such as ``"AdamW"`` or ``"Adafactor"``, with its default
            settings; or a function from groups of parameters (dicts of ``params``, ``lr`` and ``weight_decay``) to an
            optimizer.
        learning_rate: Peak learning rate.
        learning_rates: Other peak learning rates by pattern of the weights' names, such as ``{"loss.*": 1e-3,
            "0.auto_model.encoder.layer.[0-5].*": 1e-5}``; the names are those of ``model.named_parameters()``, and
            those of a loss begin with ``loss.``. The last pattern that matches counts.
        freeze: Patterns of names, as in ``learning_rates``, of weights that are not trained.
        warmup: Fraction of the steps in which the learning rate rises linearly; or, as an int, their number. As in
            ``transformers.get_linear_schedule_with_warmup``, but one step ahead during warm-up: there, the first step
            has a learning rate of 0 and trains nothing.
        schedule: The learning rate after warm-up: ``"linear"`` or ``"cosine"``, which fall to 0; ``"constant"``; or a
            function from the share of these steps that is done, 0 to 1, to a factor.
        weight_decay: Weight decay, for all weights except biases and normalization layers.
        max_gradient_norm: Gradients are clipped to this norm; None for no clipping.
        gradient_checkpointing: Whether to compute each layer of transformers twice instead of storing what its
            gradient needs: less memory for a third more time. ``chunk_tokens`` saves more where batches are large.
        dtype: Dtype of the transformer's computation: ``"auto"``, which is bfloat16 on NVIDIA GPUs that compute in it
            (compute capability 8.0 and higher), else float32; ``"float32"``; ``"bfloat16"``; or, for GPUs without
            bfloat16 (T4, V100), ``"float16"``, with gradients that ``torch.amp.GradScaler`` scales. Weights and losses
            are float32; the frozen base model of adapters may be bfloat16, and computes in it.
        seed: Seed of the order of the rows and of dropout.
        sampler: ``"random"``; ``"no_duplicates"``: no text occurs twice in a batch; ``"group_by_label"``: each label
            of a batch occurs there at least twice; ``"in_order"``; or a function from ``TrainingData``, the batch size
            and a NumPy generator to the batches of an epoch, as indices of rows; it may have a parameter ``epoch``.
            For several data sets: one sampler, or a dict by name.
        mix: For several data sets: ``"round_robin"``, one batch of each alternately until the smallest ends;
            ``"proportional"`` to their sizes; or a dict of weights by name, from which each batch's data set is drawn.
        shuffle_buffer: Rows of a stream from which the next one is drawn at random; 1 for the order of the stream.
        log_every: Steps between two lines of the history.
        evaluate_every: Steps between two evaluations, if there is an evaluator; by default those of the first epoch.
        evaluate_first: Whether to evaluate before the first step, too.
        metric: Name of the evaluator's score that decides which model is the best; by default the first.
        minimize: Whether a lower score of that name is better; by default, if the name ends with "loss".
        load_best: Whether the model has the weights of the best evaluation at the end, in place of those of the last
            step; those of the loss stay. Without ``output``, they are stored in memory.
        merge_adapters: Whether the best and the last model are saved with adapters of peft merged into the base model,
            as in ``SentenceEncoder.save``; False saves adapters alone, as checkpoints do.
        checkpoint_every: Steps between two checkpoints; by default those of the first epoch.
        keep: Number of checkpoints to keep, the newest ones.
        timeout: Seconds that a process waits for another one in a step, and at the start, before it ends with an error.
            An evaluation or a save may take longer.

    Raises:
        TypeError: If a value has the wrong type; the message names the setting.
        ValueError: If a value is out of range, or unknown.

    Example:
        >>> from sbert import TrainingConfig
        >>> TrainingConfig(epochs=2, batch_size=64, chunk_tokens=4096).learning_rate
        2e-05
    """

    output: str | os.PathLike[str] | None = None
    epochs: float | None = None
    steps: int | None = None
    batch_size: int | Mapping[str, int] = 16
    drop_last: bool = False
    accumulation: int = 1
    chunk_tokens: int | None = None
    deduplicate: bool = True
    prompts: Prompts | Mapping[str, Prompts] | None = None
    routes: Mapping[str, str] | Mapping[str, Mapping[str, str]] | None = None
    max_lengths: int | Mapping[str, int] | Mapping[str, Mapping[str, int]] | None = None
    negatives: int | None = None
    optimizer: Optimizer = "AdamW"
    learning_rate: float = 2e-5
    learning_rates: Mapping[str, float] | None = None
    freeze: Sequence[str] = ()
    warmup: float = 0.1
    schedule: Schedule = "linear"
    weight_decay: float = 0.01
    max_gradient_norm: float | None = 1.0
    gradient_checkpointing: bool = False
    dtype: str = "auto"
    seed: int = 0
    sampler: Sampler | Mapping[str, Sampler] = "random"
    mix: str | Mapping[str, float] = "round_robin"
    shuffle_buffer: int = 10_000
    log_every: int = 10
    evaluate_every: int | None = None
    evaluate_first: bool = False
    metric: str | None = None
    minimize: bool | None = None
    load_best: bool = False
    merge_adapters: bool = True
    checkpoint_every: int | None = None
    keep: int = 2
    timeout: float = 600.0

    def __post_init__(self) -> None:
        for name, value in list(vars(self).items()):
            if isinstance(value, np.generic):  # JSON, in which checkpoints keep the settings, has no such numbers.
                object.__setattr__(self, name, value := value.item())
            if isinstance(getattr(TrainingConfig, name), bool) and not isinstance(value, bool):
                raise TypeError(f"{name} is {value!r:.40}; pass True or False (true or false in JSON, TOML and --set)")
        self._check_numbers()
        self._check_choices()
        if self.epochs is not None and self.steps is not None:
            raise ValueError("epochs and steps both say how long to train; pass one of them")

    def _check_numbers(self) -> None:
        mix = () if isinstance(self.mix, str) else ("mix",)
        for name in (*_COUNTS, *_POSITIVE, *mix):
            for part, number in numbers_within(name, getattr(self, name)):
                if number is None and name in (*_OPTIONAL_COUNTS, *_OPTIONAL_POSITIVE):
                    continue
                if name in _COUNTS:
                    check_count(part, number)
                elif check_number(part, number) <= 0:
                    raise ValueError(f"{part}={number} is not positive; pass a number above 0")
        check_seed(self.seed)
        warm = check_number("warmup", self.warmup)
        if warm < 0 or (warm > 1 and not isinstance(self.warmup, int)):
            raise ValueError(f"warmup={warm} is not a fraction of the steps; pass 0.0 to 1.0, or an int of steps")
        if check_number("weight_decay", self.weight_decay) < 0:
            raise ValueError(f"weight_decay={self.weight_decay} is negative; pass 0 or more")

    def _check_choices(self) -> None:
        samplers = list(self.sampler.values()) if isinstance(self.sampler, Mapping) else [self.sampler]
        choices: list[tuple[str, Any, Iterable[str]]] = [("sampler", sampler, SAMPLERS) for sampler in samplers]
        choices += [("optimizer", self.optimizer, OPTIMIZERS), ("schedule", self.schedule, SCHEDULES)]
        choices += [("dtype", self.dtype, ("auto", "float32", "bfloat16", "float16"))]
        choices += [("mix", self.mix, MIXES)] if isinstance(self.mix, str) else []
        for name, value, names in choices:
            if isinstance(value, str):
                check_choice(name, value, list(names))
            elif not callable(value):
                raise TypeError(f"{name} is of type {type(value).__name__}; pass a name or a function")

    def for_data_set(self, name: str, names: Sequence[str]) -> TrainingConfig:
        """The settings of one data set among several.

        Raises:
            ValueError: If values are given by data set, and one is missing or unknown.
        """
        values: dict[str, Any] = {}
        by_column = ("prompts", "max_lengths", "routes")
        for setting in ("batch_size", "sampler", "mix", *by_column):
            value = getattr(self, setting)
            if not isinstance(value, Mapping):
                continue
            is_nested = any(isinstance(part, Mapping) for part in value.values())
            if setting in by_column and not is_nested and (len(names) < 2 or set(value) != set(names)):
                continue  # By column.
            if set(value) != set(names):
                listed, expected = (", ".join(map(repr, sorted(names_of))) or "none" for names_of in (value, names))
                raise ValueError(f"{setting} names {listed}, but the data sets are {expected}; name each of them")
            values[setting] = self.mix if setting == "mix" else value[name]
        return replace(self, **values)


def numbers_within(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The numbers in a dict, or in dicts of dicts, each with its path; or the number itself."""
    if not isinstance(value, Mapping):
        yield name, value
        return
    for key, part in value.items():
        yield from numbers_within(f"{name}[{key!r}]", part)


TrainingConfig.__init__ = known_arguments(TrainingConfig.__init__)  # type: ignore[method-assign]
