"""Checkpoints: a folder each, with a model that anybody can load, and beside it what training needs to go on."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sbert.saving import check_replaceable, foreign_file
from sbert.storage.atomic import remove, remove_left, replacing
from sbert.storage.files import UnreadableError, check_file, read_object, reading, write_json
from sbert.storage.folders import read_whole

_NAME = re.compile(r"step-(\d+)")
_HALF = re.compile(r"\.(step-\d+)\.")
_TENSORS, _STATE = _FILES = "training/state.safetensors", "training/state.json"
_REMEDY = "take an older checkpoint, or train anew"


def newest(folder: Path) -> Path | None:
    """The checkpoint of the last step in a folder, if there is one; what a crash left half is none."""
    found = sorted((int(match[1]), path) for path in _folders(folder) if (match := _NAME.fullmatch(path.name)))
    return found[-1][1] if found else None


def _folders(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.is_dir()] if folder.is_dir() else []


@contextmanager
def naming(path: Path, good: Path | None) -> Iterator[None]:
    """Turn a failure to write something into one that says so, and names the last good checkpoint."""
    try:
        yield
    except Exception as error:
        if not isinstance(error, OSError) and type(error).__name__ != "SafetensorError":
            raise
        where = f"the last good checkpoint is {good}" if good is not None else "there is no checkpoint yet"
        raise OSError(f"{path} cannot be written ({error}); {where}; free some space, and resume") from error


def write(folder: Path, step: int, model: Any, tensors: Mapping[str, Tensor], state: dict[str, Any], keep: int) -> Path:
    """Write a checkpoint under a temporary name, rename it, and delete all but the newest.

    Args:
        folder: Of the checkpoints.
        step: How many steps are done.
        model: Something with ``write(folder, name)``.
        tensors: What training needs beside the model's weights.
        state: The same, of what fits JSON.
        keep: How many checkpoints stay.

    Raises:
        OSError: If it cannot be written; older checkpoints stay as they are.
    """
    from safetensors.torch import save_file

    path = folder / f"step-{step:08}"
    with naming(path, newest(folder)), replacing(path, _check) as work:
        model.write(work, path.name)
        (work / "training").mkdir()
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, work / _TENSORS)
        write_json(work / _STATE, state)
    for name in {match[1] for half in folder.glob(".step-*") if (match := _HALF.match(half.name))}:
        remove_left(folder / name, _check)
    for _, old in sorted((int(m[1]), p) for p in _folders(folder) if (m := _NAME.fullmatch(p.name)))[:-keep]:
        foreign = foreign_file(old, _FILES)
        if foreign is not None:
            warnings.warn(
                f"{old} is not removed: it holds {foreign!r}, no part of a checkpoint; move that elsewhere",
                stacklevel=2,
            )
            continue
        with suppress(OSError, ValueError):
            remove(old, _check)
    return path


def _check(path: Path) -> None:
    check_replaceable(path, _FILES)


def read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the state of a checkpoint.

    Raises:
        ValueError: If a file of it is damaged, with its name.
    """
    from safetensors.torch import load_file

    def both() -> tuple[dict[str, Tensor], dict[str, Any]]:
        state = read_object(path / _STATE)
        with reading(path / _TENSORS, "safetensors"):
            check_file(path / _TENSORS)
            return dict(load_file(path / _TENSORS)), state

    return read_whole(path, both)


def check_same(path: Path, what: str, found: Any, expected: Any) -> None:
    """Raise a ValueError if a checkpoint was made by other training, naming the first difference."""
    if found == expected:
        return
    if isinstance(found, dict) and isinstance(expected, dict):
        name = next(key for key in {**expected, **found} if found.get(key) != expected.get(key))
        what, found, expected = f"{what} {name}", found.get(name), expected.get(name)
    raise UnreadableError(path, f"belongs to other training: {what} was {found!r}, and is {expected!r}", _REMEDY)


def whole(tensor: Tensor) -> Tensor:
    """A tensor that may be spread over ranks, in one piece on the CPU; all ranks have to ask for it together."""
    full: Tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return full.detach().cpu()


@torch.no_grad()
def assign(live: Any, value: Tensor) -> None:
    """Copy a whole tensor into one that may be spread over ranks."""
    if hasattr(live, "full_tensor"):
        from torch.distributed.tensor import distribute_tensor

        value = distribute_tensor(value.to(live.device), live.device_mesh, live.placements)
    live.copy_(value)


def optimizer_tensors(optimizer: torch.optim.Optimizer, names: Mapping[Any, str]) -> dict[str, Tensor]:
    """The state of each parameter, whole, by its name and that of the state."""
    return {
        f"optimizer.{names[parameter]}.{key}": whole(value)
        for parameter, state in optimizer.state.items()
        for key, value in state.items()
    }


def restore_optimizer(
    optimizer: torch.optim.Optimizer, names: Mapping[nn.Parameter, str], tensors: Mapping[str, Tensor]
) -> None:
    """Put back what ``optimizer_tensors`` gave."""
    parameters = {f"optimizer.{name}": parameter for parameter, name in names.items()}
    for key, value in tensors.items():
        name, _, state = key.rpartition(".")
        if (parameter := parameters.get(name)) is None:
            continue
        if value.ndim:
            live = torch.zeros_like(parameter)
            assign(live, value)
        else:
            live = value.to(parameter.device)
        optimizer.state[parameter][state] = live
