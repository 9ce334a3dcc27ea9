"""Callbacks: what a trainer calls at the steps, evaluations and checkpoints of a run, and some that are ready."""

from __future__ import annotations

import copy
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from sbert.inputs.arguments import check_count, warn
from sbert.inputs.extras import require

# What a checkpoint holds of a callback: tensors, and values that JSON can hold.
CallbackState = dict[str, Any]


@dataclass
class Progress:
    """Where a training run is, as its callbacks see it.

    Args:
        model: The model in training; with ``sharded=True`` a copy, as of the last evaluation or checkpoint.
        total: Number of steps of the whole run.
        settings: The settings of the run, as JSON stores them.
        folder: The output folder, if there is one.
        step: Number of finished steps.
        figures: After a step: ``loss``, ``learning_rate``, ``gradient_norm`` and ``sentences_per_second``; after an
            evaluation: its scores; else none.
        path: The folder that was written: a checkpoint, or the model of the end.
        improved: Whether the evaluation was the best so far.
        stopped: Whether the run ends after this step.
    """

    model: Any
    total: int
    settings: Mapping[str, Any] = field(default_factory=dict)
    folder: Path | None = None
    step: int = 0
    figures: Mapping[str, float] = field(default_factory=dict)
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
        >>> class Print(Callback):
        ...     def on_step(self, progress):
        ...         print(progress.step, "of", progress.total)
        >>> rows = [("A cat sleeps.", "A kitten naps."), ("Taxes rise.", "Taxes go up.")]
        >>> def loss(anchor, positive): return 1 - torch.cosine_similarity(anchor, positive).mean()
        >>> trainer = Trainer(SentenceEncoder(minilm), rows, loss, callbacks=[Print()])
        >>> _ = trainer.fit(show_progress_bar=False)
        1 of 1
    """

    def on_begin(self, progress: Progress) -> None:
        """Called before the first step, and before ``restore``: forget an earlier run."""

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


class AveragedWeights(Callback):
    r"""A second model, whose weights are an exponential moving average of those in training.

    .. math:: a_t = d_t\, a_{t-1} + (1 - d_t)\, w_t, \quad d_t = \min(d, (1 + t) / (10 + t))

    The average is saved in ``output/averaged`` at the end, and is ``model`` afterwards.

    Args:
        decay: The factor d; closer to 1 for a longer memory.

    References:
        Polyak and Juditsky, 1992, Acceleration of Stochastic Approximation by Averaging. The smaller factor of the
        first steps is that of TensorFlow's ``ExponentialMovingAverage``.

    Example:
        >>> AveragedWeights(decay=0.99).decay
        0.99
    """

    def __init__(self, decay: float = 0.999) -> None:
        if not 0 <= decay < 1:
            raise ValueError(f"decay={decay} is not a factor of an average; pass a number from 0 to below 1")
        self.decay: float = decay
        self.model: Any = None
        self._restored: CallbackState = {}

    def on_begin(self, progress: Progress) -> None:  # noqa: ARG002
        """Begin a new average."""
        self.model, self._restored = None, {}

    def on_step(self, progress: Progress) -> None:
        """Move the average towards the weights of this step."""
        if self.model is None:
            self.model = copy.deepcopy(progress.model).requires_grad_(False).eval()
            for name, value in self._restored.items():
                self._tensors()[name].copy_(value)
            if not self._restored:
                return
        factor = min(self.decay, (1 + progress.step) / (10 + progress.step))
        current = dict([*progress.model.named_parameters(), *progress.model.named_buffers()])
        for name, average in self._tensors().items():
            if average.is_floating_point():
                average.lerp_(current[name].detach(), 1 - factor)
            else:
                average.copy_(current[name])

    def _tensors(self) -> dict[str, Tensor]:
        return dict([*self.model.named_parameters(), *self.model.named_buffers()])

    def on_end(self, progress: Progress) -> None:
        """Save the average."""
        if progress.folder is not None and self.model is not None:
            self.model.trained = getattr(progress.model, "trained", None)
            self.model.save(progress.folder / "averaged")

    def state(self) -> CallbackState:
        """The average."""
        return {} if self.model is None else self._tensors()

    def restore(self, state: CallbackState) -> None:
        """Keep the average for the first step, which makes the model."""
        self._restored = state


class PushToHub(Callback):
    """Uploads the model to the Hugging Face hub: at the end, and after each checkpoint if that is wanted.

    Args:
        repo_id: Repository, as ``"name/model"``; created if it does not exist.
        checkpoints: Whether to upload after each checkpoint, too.
        private: Whether a new repository is private.

    Example:
        >>> PushToHub("me/my-model").repo_id
        'me/my-model'
    """

    def __init__(self, repo_id: str, *, checkpoints: bool = False, private: bool | None = None) -> None:
        self.repo_id: str = repo_id
        self._checkpoints, self._private = checkpoints, private

    def on_save(self, progress: Progress) -> None:
        """Upload the model of a checkpoint."""
        if self._checkpoints:
            try:
                self._push(progress, f"Step {progress.step}")
            except Exception as error:  # A network that fails for a moment must not end a training.
                warn(f"{self.repo_id}: the upload of step {progress.step} failed, and training goes on: {error}")

    def on_end(self, progress: Progress) -> None:
        """Upload the final model."""
        self._push(progress, f"The model after {progress.step} steps")

    def _push(self, progress: Progress, message: str) -> None:
        progress.model.push_to_hub(self.repo_id, private=self._private, commit_message=message)


class _Figures(Callback):
    """Sends the figures of steps and evaluations to a program that draws them."""

    _run: Any = None  # What takes them: a writer, a run, or the module of its functions; made at the first figures.
    _id: str | None = None  # Of the run, with which a resumed training goes on.
    _end: str  # The name of its function that ends it.

    def on_begin(self, progress: Progress) -> None:  # noqa: ARG002
        """Begin anew at the first figures."""
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
        finite = {f"{group}/{name}": value for name, value in progress.figures.items() if math.isfinite(value)}
        self.log(finite, progress)

    def log(self, figures: dict[str, float], progress: Progress) -> None:
        """Send figures by name."""
        raise NotImplementedError


class TensorBoard(_Figures):
    """Writes the figures for TensorBoard; see them with ``tensorboard --logdir FOLDER``.

    Args:
        folder: Where to write. Default: ``tensorboard`` in the output folder.

    Example:
        >>> TensorBoard("runs/first").folder
        'runs/first'
    """

    _end = "close"

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        self.folder: str | None = None if folder is None else os.fspath(folder)

    def log(self, figures: dict[str, float], progress: Progress) -> None:
        """Write figures of this step."""
        if self._run is None:
            with require("TensorBoard()", "tensorboard", "tensorboard"):
                from torch.utils.tensorboard import SummaryWriter
            folder = self.folder or os.fspath((progress.folder or Path()) / "tensorboard")
            # After a resume, steps that run again replace those after the checkpoint.
            self._run = SummaryWriter(folder, purge_step=progress.step)
        for name, value in figures.items():
            self._run.add_scalar(name, value, progress.step)

    def on_save(self, progress: Progress) -> None:  # noqa: ARG002
        """Write what is waiting."""
        if self._run is not None:
            self._run.flush()


class _WithRun(_Figures):
    """Sends them to a run, with which a resumed training goes on."""

    def __init__(self, **options: Any) -> None:
        self.options: dict[str, Any] = options

    def state(self) -> CallbackState:
        """The id of the run."""
        return {"id": self._id}

    def restore(self, state: CallbackState) -> None:
        """Go on with the run of this id."""
        self._id = state["id"]


class WandB(_WithRun):
    """Sends the figures and the settings to Weights & Biases. A resumed run goes on as the same run.

    Args:
        options: Arguments of ``wandb.init``, such as ``project``, ``name`` and ``mode="offline"``.

    Example:
        >>> WandB(project="cats", mode="offline").options["project"]
        'cats'
    """

    _end = "finish"

    def log(self, figures: dict[str, float], progress: Progress) -> None:
        """Send figures of this step."""
        if self._run is None:
            with require("WandB()", "wandb", "wandb"):
                import wandb
            same = {} if self._id is None else {"id": self._id, "resume": "allow"}
            self._run = wandb.init(config=dict(progress.settings), **{**self.options, **same})
            self._id = self._run.id
        self._run.log(figures, step=progress.step)


class MLflow(_WithRun):
    """Sends the figures and the settings to MLflow. A resumed run goes on as the same run.

    Args:
        options: Arguments of ``mlflow.start_run``, such as ``run_name`` and ``experiment_id``.

    Example:
        >>> MLflow(run_name="cats").options["run_name"]
        'cats'
    """

    _end = "end_run"

    def log(self, figures: dict[str, float], progress: Progress) -> None:
        """Send figures of this step."""
        if self._run is None:
            with require("MLflow()", "mlflow", "mlflow"):
                import mlflow
            same = {} if self._id is None else {"run_id": self._id}
            started = mlflow.start_run(**{**self.options, **same})
            if self._id is None:
                mlflow.log_params({name: str(value)[:500] for name, value in progress.settings.items()})
            self._id, self._run = started.info.run_id, mlflow
        self._run.log_metrics(figures, step=progress.step)


def select_stateful(callbacks: Sequence[Callback]) -> list[Callback]:
    """The callbacks that have a state, which a resumed run must have, too."""
    return [each for each in callbacks if type(each).state is not Callback.state]


def read_states(callbacks: Sequence[Callback]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the other values that a checkpoint holds of callbacks, by ``callback.NUMBER.NAME``.

    Raises:
        TypeError: If a value is neither a tensor nor one that JSON can hold.
    """
    tensors: dict[str, Tensor] = {}
    values: dict[str, Any] = {}
    for number, callback in enumerate(select_stateful(callbacks)):
        for key, value in callback.state().items():
            name = f"callback.{number}.{key}"
            (tensors if isinstance(value, Tensor) else values)[name] = value
            try:
                json.dumps(values.get(name))
            except TypeError as error:
                raise TypeError(f"{name}: {error}; a state is tensors, and values that JSON can hold") from error
    return tensors, values


def restore_states(callbacks: Sequence[Callback], saved: Mapping[str, Any]) -> None:
    """Give each callback what ``read_states`` returned."""
    for number, callback in enumerate(select_stateful(callbacks)):
        prefix = f"callback.{number}."
        state = {name.removeprefix(prefix): value for name, value in saved.items() if name.startswith(prefix)}
        if state:
            callback.restore(state)


def as_callbacks(given: Any) -> list[Callback]:
    """A list of callbacks.

    Raises:
        TypeError: If an element is not a ``Callback``.
    """
    listed = list(given or ()) if isinstance(given, Iterable | None) else [given]
    for number, each in enumerate(listed):
        if not isinstance(each, Callback):
            what = each.__name__ if isinstance(each, type) else type(each).__name__
            where = "whose method on_step(self, progress) is called after each step"
            raise TypeError(f"callbacks[{number}] is {what}; pass instances of sbert.training.Callback, {where}")
    return listed
