"""The device that a caller names, and what it cannot compute."""

from __future__ import annotations

import torch
from torch import nn

from sbert.inputs.arguments import warn


def check_device(device: str | torch.device) -> torch.device:
    """The device, if torch runs on it here.

    Raises:
        TypeError: If it is something else, such as a list of devices.
        ValueError: If there is no such device.

    Example:
        >>> check_device("cpu")
        device(type='cpu')
    """
    if isinstance(device, bool) or not isinstance(device, (str, int, torch.device)):
        raise TypeError(
            f"device={device!r} is of type {type(device).__name__}; pass one device, such as {_usable()}: a model runs"
            " on one, and other devices take another process each"
        )
    try:
        found = torch.device(device)
    except RuntimeError as error:
        raise ValueError(f"device={device!r} is unknown; pass {_usable()}, or leave it out") from error
    try:
        torch.empty(0, device=found)
    except (AssertionError, RuntimeError, NotImplementedError) as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        if found.type == "cuda" and torch.version.cuda is None and torch.version.hip is None:
            reason = f"this build of torch, {torch.__version__}, has no CUDA"
        elif found.type == "cuda":
            reason = f"{reason}; there are {torch.cuda.device_count()} CUDA devices"
        raise ValueError(
            f"device={str(device)!r} cannot be used ({reason}); pass {_usable()}, or leave it out"
        ) from error
    return found


def _usable() -> str:
    """The devices that can be had here, as they are passed."""
    found = ["cpu", *(f"cuda:{number}" for number in range(torch.cuda.device_count()))]
    return " or ".join(map(repr, [*found, *(["mps"] if torch.backends.mps.is_available() else [])]))


def leave_float16(model: nn.Module, device: torch.device) -> None:
    """Make a model float32 where it is float16 and runs on a CPU, which emulates it a thousand times slower."""
    if device.type == "cpu" and model.dtype == torch.float16:
        warn("this CPU has no float16 arithmetic, so the weights become float32; pass dtype='bfloat16' for half")
        model.float()
