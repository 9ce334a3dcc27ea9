"""Checkpoints: folders with a model that can be loaded as usual, and what training needs to resume."""

from __future__ import annotations

import json
import os
import platform
import re
import secrets
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sbert.backends.huggingface import find_adapters
from sbert.inputs.arguments import warn
from sbert.modules import Transformer
from sbert.saving.format import check_replaceable, find_foreign_file
from sbert.storage.atomic import remove, remove_left, replacing
from sbert.storage.files import UnreadableError, check_file, checksum, inside, read_object, reading, write_json
from sbert.storage.folders import check_local, read_whole, try_lock
from sbert.training.batches import Batches
from sbert.training.callbacks import Callback, select_stateful
from sbert.training.config import TrainingConfig
from sbert.training.sampling import name_of
from sbert.training.weights import Weights

# Settings that may change when training resumes, since they do not change the weights, or are compared otherwise:
# what is frozen by the weights, and prompts by their texts.
_FREE = {
    *("output", "keep", "log_every", "checkpoint_every", "evaluate_every", "evaluate_first", "metric", "minimize"),
    *("load_best", "merge_adapters", "timeout", "freeze", "prompts"),
}
RestoredState = tuple[dict[str, Any], dict[str, Tensor], dict[Path, str]]  # A state, its tensors, and what is damaged.
_NAME = re.compile(r"step-\d+")
_HALF = re.compile(r"\.(step-\d+)\.")
_FILES = "training/state.safetensors", "training/state.json", "training/checksums.json"
_TENSORS, _STATE, _CHECKSUMS = _FILES  # The last has the checksums of all other files of the checkpoint.
_check = partial(check_replaceable, also=_FILES)
_holders: dict[Path, tuple[int, int]] = {}  # By output folder: the process and the thread that write to it.


@contextmanager
def lock_output(output: str | os.PathLike[str]) -> Iterator[None]:
    """Keep other trainings out of an output folder; the thread that does may enter again. The lock ends with a process.

    Raises:
        RuntimeError: If there is another training; the message names its process.
    """
    check_local("output", output)
    path, holder = Path(output).resolve(), (os.getpid(), threading.get_ident())
    if _holders.get(path) == holder:
        yield
        return
    path.mkdir(parents=True, exist_ok=True)
    file = path / "training.lock"
    file.touch()
    with try_lock(file) as held:
        if held is False:
            who = "another process"
            with suppress(OSError):  # If that ends just now.
                who = file.read_text(encoding="utf-8") or who
            problem = f"{output} is the output folder of a training that runs in {who}"
            raise RuntimeError(f"{problem}; wait until that ends, or pass another output")
        file.write_text(f"process {holder[0]} on {platform.node()}", encoding="utf-8")
        _holders[path] = holder
        try:
            yield
        finally:
            del _holders[path]
            file.unlink(missing_ok=True)


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


def name_after(step: int) -> str:
    """The name of the checkpoint after this number of steps, in the output folder."""
    return f"checkpoints/step-{step:08}"


def write_checkpoint(path: Path, model: Any, tensors: Mapping[str, Tensor], state: dict[str, Any], keep: int) -> None:
    """Write a checkpoint atomically, and delete all but the newest ones beside it.

    Args:
        path: Folder of the checkpoint.
        model: A model with the method ``write(folder, name, path)``. Adapters are written without their base model.
        tensors: The tensors that training needs, such as the state of the optimizer.
        state: The other values that training needs, for a JSON file.
        keep: Number of checkpoints to keep.

    Raises:
        OSError: If it cannot be written; older checkpoints are not changed.
    """
    from safetensors.torch import save_file

    networks = [part.auto_model for part in model.modules() if isinstance(part, Transformer)]
    adapted = [network.name_or_path for network in networks if find_adapters(network)]
    # A base model that has no folder is saved with them.
    alone = {"merge_adapters": False} if adapted and all(adapted) else {}
    with replacing(path, _check) as work:
        model.write(work, None, path, **alone)
        (work / "training").mkdir()
        save_file({name: tensor.detach().contiguous() for name, tensor in tensors.items()}, work / _TENSORS)
        write_json(work / _STATE, state)
        files = sorted(file for file in work.rglob("*") if file.is_file())
        write_json(work / _CHECKSUMS, {file.relative_to(work).as_posix(): checksum(file) for file in files})
    for name in {match[1] for half in path.parent.glob(".step-*") if (match := _HALF.match(half.name))}:
        remove_left(path.parent / name, _check)
    for old in _checkpoints(path.parent)[:-keep]:
        if (foreign := find_foreign_file(old, _FILES)) is not None:
            warn(f"{old} is not removed: it holds {foreign!r}, which is not part of a checkpoint; move that elsewhere")
            continue
        with suppress(OSError, ValueError):
            remove(old, _check)


def read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the state of a checkpoint.

    Raises:
        UnreadableError: If it is damaged; the message names the file.
    """
    from safetensors.torch import load_file

    def read_all() -> tuple[dict[str, Tensor], dict[str, Any]]:
        checksums = read_object(path / _CHECKSUMS)
        for name in [_STATE, _TENSORS, *checksums]:
            file = inside(path, name, path / _CHECKSUMS)
            with reading(file, "part of a checkpoint"):
                check_file(file)
                if checksum(file) != checksums.get(name):
                    raise UnreadableError(file, "cannot be read as it was written: its checksum differs")
        with reading(path / _TENSORS, "safetensors"):
            return dict(load_file(path / _TENSORS)), read_object(path / _STATE)

    return read_whole(path, read_all)


def check_same(path: Path, what: str, saved: Any, expected: Any) -> None:
    """Raise a ValueError if a checkpoint belongs to a different training; the message names the first difference."""
    if saved == expected:
        return
    if isinstance(saved, dict) and isinstance(expected, dict):
        name = next(key for key in {**expected, **saved} if saved.get(key) != expected.get(key))
        what, saved, expected = f"{what} {name}", saved.get(name), expected.get(name)
    reason = f"belongs to a different training: {what} was {saved!r}, but is now {expected!r}"
    raise ValueError(f"{path} {reason}; use an older checkpoint, or another output folder")


def restore(folder: Path, setup: Mapping[str, Any], weights: Weights) -> RestoredState:
    """Set the weights to those of the newest checkpoint that is not damaged.

    Args:
        folder: The folder of the checkpoints.
        setup: What must be as it was, of ``describe_setup``.
        weights: The weights.

    Returns:
        Its state and tensors, which are empty if there is none; and the damaged checkpoints, each with the reason.

    Raises:
        ValueError: If the checkpoint belongs to a different training, or all are damaged.
    """
    damaged: dict[Path, str] = {}
    for path in reversed(_checkpoints(folder)):
        try:
            tensors, state = read(path)
            for what, expected in setup.items():
                check_same(path, what, state.get(what), expected)
        except UnreadableError as error:
            damaged[path] = str(error).rpartition("; ")[0]
            continue
        present = weights.select_changing()
        saved = {name: value for name, value in tensors.items() if name.startswith(("model.", "loss."))}
        shapes = [{name: list(value.shape) for name, value in tensors.items()} for tensors in (saved, present)]
        check_same(path, "weight", *shapes)
        with torch.no_grad():
            for name, value in present.items():
                value.copy_(saved[name])
        return state, tensors, damaged
    if damaged:
        remedy = "pass another output, or delete them, to start from scratch"
        raise ValueError(f"{'; '.join(damaged.values())}: no checkpoint in {folder} can be read; {remedy}")
    return {}, {}, {}


def set_aside(damaged: Mapping[Path, str]) -> None:
    """Rename damaged checkpoints, so that they neither count as checkpoints nor are replaced; warn of them."""
    for path in damaged:
        path.rename(path.with_name(f"{path.name}.damaged-{secrets.token_hex(4)}"))
    if damaged:
        after = f"training goes on from {newest(path.parent)}, and what is damaged was renamed to step-….damaged-…"
        warn(f"{'; '.join(damaged.values())}: {after}")


@contextmanager
def explain_failure(output: Path, name: str) -> Iterator[None]:
    """Turn a failed write of a file in the output folder into an OSError that names it and the last good checkpoint."""
    try:
        yield
    except Exception as error:
        if not (isinstance(error, OSError) or type(error).__name__ == "SafetensorError"):
            raise
        problem = f"{output / name} cannot be written ({error}); {last_good(output)}"
        raise OSError(f"{problem}; free some disk space, and resume") from error


def describe_setup(
    weights: Weights, batches: Batches, config: TrainingConfig, callbacks: Sequence[Callback]
) -> dict[str, Any]:
    """What must be the same when training resumes, as JSON stores it."""
    losses, data, prompts = {}, {}, {}
    for name, dataset in batches.datasets.items():
        rows = dataset.rows
        losses[name] = f"{rows.loss_name} of {rows.signature}"
        data[name] = [len(rows), rows.fingerprint]
        prompts[name] = dataset.prompts
    setup = {"settings": describe_settings(config), "model": repr(weights.model)}
    setup |= {"frozen weights": weights.digest_frozen(), "losses": losses, "data": data, "prompts": prompts}
    if adapters := find_adapters(weights.model).values():  # Their shapes do not show it.
        setup["scaling of adapters"] = sorted({repr(getattr(layer, "scaling", None)) for layer in adapters})
    setup["callbacks"] = [type(callback).__name__ for callback in select_stateful(callbacks)]
    stored: dict[str, Any] = json.loads(json.dumps(setup))
    return stored


def describe_settings(config: TrainingConfig) -> dict[str, Any]:
    """The settings that must be the same when training resumes; functions by their names."""
    settings = {name: value for name, value in asdict(config).items() if name not in _FREE}
    for name in ("optimizer", "schedule", "sampler"):
        value = settings[name]
        settings[name] = {k: name_of(v) for k, v in value.items()} if isinstance(value, Mapping) else name_of(value)
    return settings
