"""Checkpoints, folders with a model that can be loaded as usual and what training needs to resume; a run's output."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sbert.distributed.ranks import Ranks
from sbert.inputs.arguments import warn
from sbert.saving import check_replaceable, foreign_file
from sbert.storage.atomic import remove, remove_left, replacing
from sbert.storage.files import UnreadableError, check_file, read_object, reading, write_json
from sbert.storage.folders import read_whole
from sbert.training.callbacks import Callbacks
from sbert.training.config import TrainingConfig
from sbert.training.rows.batches import Batches
from sbert.training.rows.sampling import name_of
from sbert.training.run.report import Log, training_card
from sbert.training.run.weights import Weights, gather_whole

# Settings that may change when training resumes, since they do not change the weights, or are compared otherwise:
# what is frozen by the weights, and prompts by their texts.
_FREE = {
    *("output", "keep", "log_every", "checkpoint_every", "evaluate_every", "evaluate_first", "metric", "minimize"),
    *("timeout", "freeze", "prompts"),
}
_FOLDER = "step-{:08}"
_NAME = re.compile(r"step-\d+")
_HALF = re.compile(r"\.(step-\d+)\.")
_TENSORS, _STATE = _FILES = "training/state.safetensors", "training/state.json"
_REMEDY = "use an older checkpoint, or another output folder"


def newest(folder: Path) -> Path | None:
    """The checkpoint with the highest step in a folder, or None; incomplete ones, left by a crash, do not count."""
    return next(reversed(_checkpoints(folder)), None)


def _checkpoints(folder: Path) -> list[Path]:
    """The complete checkpoints in a folder, oldest first."""
    folders = [path for path in folder.glob("step-*") if path.is_dir() and _NAME.fullmatch(path.name)]
    return sorted(folders, key=lambda path: (int(path.name.removeprefix("step-")), path))


def last_good(output: Path | None) -> str:
    """Which checkpoint of an output folder to resume from, for errors."""
    path = None if output is None else newest(output / "checkpoints")
    return "there is no checkpoint yet" if path is None else f"the last good checkpoint is {path}"


def write(folder: Path, step: int, model: Any, tensors: Mapping[str, Tensor], state: dict[str, Any], keep: int) -> Path:
    """Write a checkpoint atomically, and delete all but the newest ones; return its folder.

    Args:
        folder: Folder of all checkpoints.
        step: Number of steps that are done.
        model: A model with the method ``write(folder, name)``.
        tensors: The tensors that training needs, such as the state of the optimizer.
        state: The other values that training needs, for a JSON file.
        keep: Number of checkpoints to keep.

    Raises:
        OSError: If it cannot be written; older checkpoints are not changed.
    """
    from safetensors.torch import save_file

    path = folder / _FOLDER.format(step)
    with replacing(path, _check) as work:
        model.write(work, path.name)
        (work / "training").mkdir()
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, work / _TENSORS)
        write_json(work / _STATE, state)
    for name in {match[1] for half in folder.glob(".step-*") if (match := _HALF.match(half.name))}:
        remove_left(folder / name, _check)
    for old in _checkpoints(folder)[:-keep]:
        if (foreign := foreign_file(old, _FILES)) is not None:
            warn(f"{old} is not removed: it holds {foreign!r}, which is not part of a checkpoint; move that elsewhere")
            continue
        with suppress(OSError, ValueError):
            remove(old, _check)
    return path


def _check(path: Path) -> None:
    check_replaceable(path, _FILES)


def read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the state of a checkpoint.

    Raises:
        ValueError: If a file is damaged; the message names it.
    """
    from safetensors.torch import load_file

    def both() -> tuple[dict[str, Tensor], dict[str, Any]]:
        state = read_object(path / _STATE)
        with reading(path / _TENSORS, "safetensors"):
            check_file(path / _TENSORS)
            return dict(load_file(path / _TENSORS)), state

    return read_whole(path, both)


def check_same(path: Path, what: str, saved: Any, expected: Any) -> None:
    """Raise a ValueError if a checkpoint belongs to a different training; the message names the first difference."""
    if saved == expected:
        return
    if isinstance(saved, dict) and isinstance(expected, dict):
        name = next(key for key in {**expected, **saved} if saved.get(key) != expected.get(key))
        what, saved, expected = f"{what} {name}", saved.get(name), expected.get(name)
    reason = f"belongs to a different training: {what} was {saved!r}, but is now {expected!r}"
    raise UnreadableError(path, reason, _REMEDY)


@dataclass(eq=False, repr=False)
class Output:
    """The files of a run: checkpoints, the best and the last model, and the history.

    Args:
        weights: The weights in training.
        batches: The data sets and their losses.
        config: The settings.
        callbacks: The names of the callbacks that a checkpoint has a state of.
        ranks: The processes that train together; the first one writes.
        resume: Whether to continue from the newest checkpoint, if there is one.

    Raises:
        ValueError: If there is a checkpoint and ``resume`` is false, or there is no folder and it is true.
    """

    weights: Weights
    batches: Batches
    config: TrainingConfig
    callbacks: list[str]
    ranks: Ranks
    resume: bool

    def __post_init__(self) -> None:
        model, output = self.weights.model, self.config.output
        self.folder: Path | None = None if output is None else Path(output)
        if self.resume and self.folder is None:
            raise ValueError("resume=True, but TrainingConfig has no output; pass the folder of the checkpoints")
        self.resumed: Path | None = None if self.folder is None else newest(self.folder / "checkpoints")
        if self.resumed is not None and not self.resume:
            raise ValueError(f"{self.resumed} exists already; pass resume=True to continue, or another output")
        self._base = getattr(model, "name_or_path", "")
        # The files of a model hold whole weights.
        self.model: Any = copy.deepcopy(model).to("cpu") if self.config.sharded else model
        self.setup: dict[str, Any] = _describe_setup(self.weights, self.batches, self.config)
        self.setup["callbacks"] = self.callbacks

    def restore(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Restore the weights from the checkpoint, if there is one; return its state and tensors.

        Raises:
            ValueError: If the checkpoint belongs to a different training, or ranks have different checkpoints.
        """
        tensors: dict[str, Tensor] = {}
        state: dict[str, Any] = {"step": 0, "waiting": [], "best": None, "stopped": False}
        state |= {"optimizer": {}, "callback": {}}
        if self.resumed is not None:
            tensors, state = read(self.resumed)
            for what, expected in self.setup.items():
                check_same(self.resumed, what, state.get(what), expected)
            present = self.weights.changing()
            saved = {name: value for name, value in tensors.items() if name.startswith(("model.", "loss."))}
            shapes = [{name: list(value.shape) for name, value in each.items()} for each in (saved, present)]
            check_same(self.resumed, "weight", *shapes)
            with torch.no_grad():
                for name, value in present.items():
                    value.copy_(saved[name])
        if self.ranks.world > 1:
            step, model = int(state["step"]), self.weights.model
            if self.ranks.all_max(step, model.device) != -self.ranks.all_max(-step, model.device):
                raise ValueError("the processes found different checkpoints; give them one output folder on one disk")
            self.ranks.broadcast([*model.parameters(), *model.buffers(), *self.weights.heads.parameters()])
        return state, tensors

    def open_log(self, total: int, state: Mapping[str, Any], show_progress_bar: bool | None) -> Log:
        """The history of the run, up to the step of a checkpoint; and the file of the names of classes."""
        config, path = self.config, None
        if self.folder is not None and self.ranks.first:
            path = self.folder / "history.jsonl"
            datasets = self.batches.datasets.items()
            if names := {name: each.rows.class_names for name, each in datasets if each.rows.class_names}:
                self.folder.mkdir(parents=True, exist_ok=True)
                write_json(self.folder / "labels.json", names)
        every, start = config.log_every, int(state["step"])
        return Log(path, total, start, every, state["waiting"], show_progress_bar, config.metric)

    @contextmanager
    def explain_failure(self, name: str) -> Iterator[None]:
        """Turn a failed write of a file into an OSError that names it and the last good checkpoint."""
        try:
            yield
        except Exception as error:
            if self.folder is None or not (isinstance(error, OSError) or type(error).__name__ == "SafetensorError"):
                raise
            given = f"{self.folder / name} cannot be written ({error}); {last_good(self.folder)}"
            raise OSError(f"{given}; free some disk space, and resume") from error

    def update_model(self) -> Any:
        """The model that is saved and evaluated, brought up to date if it is a whole copy of sharded weights."""
        if self.config.sharded:
            state = self.weights.model.state_dict().items()
            self.model.load_state_dict({name: gather_whole(value) for name, value in state})
        return self.model

    def _describe(self, history: Sequence[Mapping[str, Any]]) -> None:
        about = self._base, self.batches.datasets, self.config, history
        self.model.trained = training_card(*about, self.weights.model.device, self.ranks.world)

    def save_model(self, name: str, history: Sequence[Mapping[str, Any]]) -> None:
        """Write the model with its card, if there is a folder."""
        self._describe(history)
        if self.folder is not None:
            with self.explain_failure(name):
                self.model.save(self.folder / name)

    def save_final(self, history: Sequence[Mapping[str, Any]]) -> Path | None:
        """Write the model of the end, on all ranks together; return its folder, if there is one."""
        self.update_model()
        self.ranks.run_on_main(lambda: self.save_model("final", history))
        return None if self.folder is None else self.folder / "final"

    def save_checkpoint(
        self,
        state: dict[str, Any],
        optimizers: Sequence[torch.optim.Optimizer],
        callbacks: Callbacks,
        history: Sequence[Mapping[str, Any]],
    ) -> Path:
        """Write a checkpoint, on all ranks together, and return its folder.

        Args:
            state: The step, and other values for a JSON file.
            optimizers: Whose state it holds.
            callbacks: Whose state it holds.
            history: What the card tells.
        """
        self.update_model()
        tensors, numbers = self.weights.optimizer_state(optimizers)
        tensors |= self.weights.tensors()
        folder = Path(self.config.output or "") / "checkpoints"

        def save() -> None:
            self._describe(history)
            more, of_callbacks = callbacks.state()
            values = {**self.setup, **state, "stopped": callbacks.progress.stopped}
            values |= {"optimizer": numbers, "callback": of_callbacks}
            with self.explain_failure(f"checkpoints/{_FOLDER.format(state['step'])}"):
                write(folder, state["step"], self.model, tensors | more, values, self.config.keep)

        self.ranks.run_on_main(save)
        return folder / _FOLDER.format(state["step"])


def _describe_setup(weights: Weights, batches: Batches, config: TrainingConfig) -> dict[str, Any]:
    """What must be the same when training resumes, as JSON stores it."""
    settings = {name: value for name, value in asdict(config).items() if name not in _FREE}
    for name in ("optimizer", "schedule", "sampler"):
        value = settings[name]
        settings[name] = {k: name_of(v) for k, v in value.items()} if isinstance(value, Mapping) else name_of(value)
    losses, data, prompts = {}, {}, {}
    for name, dataset in batches.datasets.items():
        rows = dataset.rows
        details = repr(rows.loss) if isinstance(rows.loss, nn.Module) else ""
        losses[name] = f"{rows.signature.name}({rows.signature}){details}"
        data[name] = [len(rows), rows.fingerprint]
        prompts[name] = dataset.prompts
    model = {"model": repr(weights.model), "frozen weights": weights.frozen_digest()}
    setup = {"settings": settings, **model, "losses": losses, "data": data, "prompts": prompts}
    stored: dict[str, Any] = json.loads(json.dumps(setup))
    return stored
