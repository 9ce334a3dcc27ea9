"""Checkpoints: folders with a model that can be loaded as usual, and the state that training needs to resume."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from torch import Tensor

from sbert.inputs.arguments import warn
from sbert.saving import check_replaceable, foreign_file
from sbert.storage.atomic import remove, remove_left, replacing
from sbert.storage.files import UnreadableError, check_file, read_object, reading, write_json
from sbert.storage.folders import read_whole

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


def last_good(path: Path | None) -> str:
    """Which checkpoint to resume from, for errors."""
    return "there is no checkpoint yet" if path is None else f"the last good checkpoint is {path}"


@contextmanager
def naming_last_good(path: Path, good: Path | None) -> Iterator[None]:
    """Turn a failed write into an OSError that names the path and the last good checkpoint."""
    try:
        yield
    except Exception as error:
        if not isinstance(error, OSError) and type(error).__name__ != "SafetensorError":
            raise
        remedy = "free some disk space, and resume"
        raise OSError(f"{path} cannot be written ({error}); {last_good(good)}; {remedy}") from error


def write(folder: Path, step: int, model: Any, tensors: Mapping[str, Tensor], state: dict[str, Any], keep: int) -> Path:
    """Write a checkpoint atomically, and delete all but the newest ones.

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

    path = folder / f"step-{step:08}"
    with naming_last_good(path, newest(folder)), replacing(path, _check) as work:
        model.write(work, path.name)
        (work / "training").mkdir()
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, work / _TENSORS)
        write_json(work / _STATE, state)
    for name in {match[1] for half in folder.glob(".step-*") if (match := _HALF.match(half.name))}:
        remove_left(folder / name, _check)
    for old in _checkpoints(folder)[:-keep]:
        foreign = foreign_file(old, _FILES)
        if foreign is not None:
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


def check_same(path: Path, what: str, found: Any, expected: Any) -> None:
    """Raise a ValueError if a checkpoint belongs to a different training; the message names the first difference."""
    if found == expected:
        return
    if isinstance(found, dict) and isinstance(expected, dict):
        name = next(key for key in {**expected, **found} if found.get(key) != expected.get(key))
        what, found, expected = f"{what} {name}", found.get(name), expected.get(name)
    reason = f"belongs to a different training: {what} was {found!r}, but is now {expected!r}"
    raise UnreadableError(path, reason, _REMEDY)
