"""Callbacks: what a trainer calls at the steps, evaluations and checkpoints of a run, and some that are ready."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from sbert.inputs.arguments import check_count
from sbert.inputs.extras import require

# What a checkpoint holds of a callback: tensors, and values that JSON can hold.
CallbackState = dict[str, Any]


@dataclass
class Progress:
    """Where a training run is, as its callbacks see it.

    Args:
        model: The model in training.
        total: Number of steps of the whole run.
        settings: The settings of the run, as JSON stores them.
        folder: The output folder, if there is one.
        step: Number of finished steps.
        metrics: After a step: ``loss``, ``loss_NAME`` of each of several data sets and of each part of a loss,
            ``learning_rate``, ``gradient_norm`` and ``sentences_per_second``; before the step of the optimizer: the
            losses and ``gradient_norm``; after an evaluation: its scores; else none.
        path: The folder that was written: a checkpoint, or the model of the end.
        improved: Whether the evaluation was the best so far.
        stopped: Whether the run ends after this step.
    """

    model: Any
    total: int
    settings: Mapping[str, Any] = field(default_factory=dict)
    folder: Path | None = None
    step: int = 0
    metrics: Mapping[str, float] = field(default_factory=dict)
    path: Path | None = None
    improved: bool = False
    stopped: bool = False

    def stop(self) -> None:
        """End the run after this step, as if it were the last: with an evaluation, a checkpoint and the final model.

        In ``on_save``, after one more step; before the first step, with the final model only.
        """
        self.stopped = True


class Callback:
    """What a ``Trainer`` calls while it trains; a subclass overrides what it needs.

    Of several processes, only the first one calls it. What ``state`` returns is in every checkpoint, so that a resumed
    run goes on as if it had not been stopped; what changes in ``on_save`` is in the next one.

    Example:
        >>> import torch
        >>> from sbert import SentenceEncoder, Trainer
        >>> from sbert.training import Callback
        >>> class Print(Callback):
        ...     def on_step(self, progress):
        ...         print(progress.step, "of", progress.total)
        >>> rows = [("A cat sleeps.", "A kitten naps."), ("Taxes rise.", "Taxes go up.")]
        >>> def loss(anchor, positive): return 1 - torch.cosine_similarity(anchor, positive).mean()
        >>> trainer = Trainer(SentenceEncoder(), rows, loss, callbacks=[Print()])
        >>> _ = trainer.fit(show_progress_bar=False)
        1 of 1
    """

    def on_begin(self, progress: Progress) -> None:
        """Called before the first step, and before ``restore``: forget an earlier run."""

    def on_gradients(self, progress: Progress) -> None:
        """Called before each step of the optimizer, with all gradients in ``.grad``, which are only to be read."""

    def on_step(self, progress: Progress) -> None:
        """Called after each step."""

    def on_evaluate(self, progress: Progress) -> None:
        """Called after each evaluation."""

    def on_save(self, progress: Progress) -> None:
        """Called after each checkpoint was written."""

    def on_end(self, progress: Progress) -> None:
        """Called at the end, after the final model was written."""

    def state(self) -> CallbackState:
        """What a checkpoint has to hold: tensors, and values that JSON can hold, by name."""
        return {}

    def restore(self, state: CallbackState) -> None:
        """Set what ``state`` returned when the checkpoint was written."""


class EarlyStopping(Callback):
    """Ends a run when evaluations no longer improve.

    Args:
        patience: Number of evaluations in a row without an improvement after which the run ends.

    Example:
        >>> from sbert.training import EarlyStopping
        >>> EarlyStopping(patience=3).patience
        3
    """

    def __init__(self, patience: int = 3) -> None:
        self.patience: int = check_count("patience", patience)
        self._waited = 0

    def on_begin(self, progress: Progress) -> None:  # noqa: ARG002
        """Begin to count."""
        self._waited = 0

    def on_evaluate(self, progress: Progress) -> None:
        """Count the evaluations since the best one."""
        self._waited = 0 if progress.improved else self._waited + 1
        if self._waited >= self.patience:
            progress.stop()

    def state(self) -> CallbackState:
        """The count."""
        return {"waited": self._waited}

    def restore(self, state: CallbackState) -> None:
        """Set the count."""
        self._waited = int(state["waited"])


class _Tracker(Callback):
    """Sends the metrics of steps and evaluations to a program that draws them."""

    _run: Any = None  # What takes them: a writer or a run, made at the first metrics.
    _id: str | None = None  # Of the run, with which a resumed training goes on.
    _end: str  # The name of its function that ends it.

    def on_begin(self, progress: Progress) -> None:  # noqa: ARG002
        """Start over at the first metrics."""
        self._run = self._id = None

    def on_end(self, progress: Progress) -> None:  # noqa: ARG002
        """Close the file, or finish the run."""
        if self._run is not None:
            getattr(self._run, self._end)()

    def on_step(self, progress: Progress) -> None:
        """Send what is known of the step."""
        self._send("train", progress)

    def on_evaluate(self, progress: Progress) -> None:
        """Send the scores."""
        self._send("evaluation", progress)

    def _send(self, group: str, progress: Progress) -> None:
        finite = {f"{group}/{name}": value for name, value in progress.metrics.items() if math.isfinite(value)}
        self.log(finite, progress)

    def log(self, metrics: dict[str, float], progress: Progress) -> None:
        """Send metrics by name."""
        raise NotImplementedError


class TensorBoard(_Tracker):
    """Writes the metrics for TensorBoard; see them with ``tensorboard --logdir FOLDER``.

    Args:
        folder: Where to write. Default: ``tensorboard`` in the output folder.

    Example:
        >>> from sbert.training import TensorBoard
        >>> TensorBoard("runs/first").folder
        'runs/first'
    """

    _end = "close"

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        self.folder: str | None = None if folder is None else os.fspath(folder)

    def log(self, metrics: dict[str, float], progress: Progress) -> None:
        """Write metrics of this step."""
        if self._run is None:
            with require("TensorBoard()", "tensorboard", "tensorboard"):
                from torch.utils.tensorboard import SummaryWriter
            folder = self.folder or os.fspath((progress.folder or Path()) / "tensorboard")
            # After a resume, steps that run again replace those after the checkpoint.
            self._run = SummaryWriter(folder, purge_step=progress.step)
        for name, value in metrics.items():
            self._run.add_scalar(name, value, progress.step)

    def on_save(self, progress: Progress) -> None:  # noqa: ARG002
        """Write what is waiting."""
        if self._run is not None:
            self._run.flush()


class WandB(_Tracker):
    """Sends the metrics and the settings to Weights & Biases. A resumed run goes on as the same run.

    Args:
        options: Arguments of ``wandb.init``, such as ``project``, ``name`` and ``mode="offline"``.

    Example:
        >>> from sbert.training import WandB
        >>> WandB(project="cats", mode="offline").options["project"]
        'cats'
    """

    _end = "finish"

    def __init__(self, **options: Any) -> None:
        self.options: dict[str, Any] = options

    def state(self) -> CallbackState:
        """The id of the run."""
        return {"id": self._id}

    def restore(self, state: CallbackState) -> None:
        """Go on with the run of this id."""
        self._id = state["id"]

    def log(self, metrics: dict[str, float], progress: Progress) -> None:
        """Send metrics of this step."""
        if self._run is None:
            with require("WandB()", "wandb", "wandb"):
                import wandb
            same = {} if self._id is None else {"id": self._id, "resume": "allow"}
            self._run = wandb.init(config=dict(progress.settings), **{**self.options, **same})
            self._id = self._run.id
        self._run.log(metrics, step=progress.step)


def select_stateful(callbacks: Sequence[Callback]) -> list[Callback]:
    """The callbacks that have a state, which a resumed run must have, too."""
    return [callback for callback in callbacks if type(callback).state is not Callback.state]


def read_states(callbacks: Sequence[Callback]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the other values that a checkpoint holds of callbacks, by ``callback.NUMBER.NAME``."""
    tensors: dict[str, Tensor] = {}
    values: dict[str, Any] = {}
    for number, callback in enumerate(select_stateful(callbacks)):
        for key, value in callback.state().items():
            (tensors if isinstance(value, Tensor) else values)[f"callback.{number}.{key}"] = value
    return tensors, values


def restore_states(callbacks: Sequence[Callback], saved: Mapping[str, Any]) -> None:
    """Give each callback what ``read_states`` returned."""
    for number, callback in enumerate(select_stateful(callbacks)):
        prefix = f"callback.{number}."
        state = {name.removeprefix(prefix): value for name, value in saved.items() if name.startswith(prefix)}
        if state:
            callback.restore(state)
