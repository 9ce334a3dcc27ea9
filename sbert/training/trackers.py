"""Callbacks that send the figures of a training run to programs that draw them."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

from sbert.inputs.extras import require
from sbert.training.callbacks import Callback, Progress, State


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

    def state(self) -> State:
        """The id of the run."""
        return {"id": self._id}

    def restore(self, state: State) -> None:
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
