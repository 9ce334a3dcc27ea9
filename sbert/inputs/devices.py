"""Check the device that the caller passes, and the dtype that it can compute with."""

from __future__ import annotations

import torch
from torch import nn

from sbert.inputs.arguments import warn


def check_device(device: str | torch.device) -> torch.device:
    """Return the device if torch can use it on this machine.

    Raises:
        TypeError: If it is not a device, such as a list of devices.
        ValueError: If there is no such device.

    Example:
        >>> check_device("cpu")
        device(type='cpu')
    """
    if isinstance(device, bool) or not isinstance(device, (str, int, torch.device)):
        raise TypeError(
            f"device={device!r} is of type {type(device).__name__}; pass one device, such as {_usable()}: a model runs"
            " on one device; use one process per device"
        )
    try:
        checked = torch.device(device)
    except RuntimeError as error:
        raise ValueError(f"device={device!r} is unknown; pass {_usable()}, or leave it out") from error
    try:
        torch.empty(0, device=checked)
    except (AssertionError, RuntimeError, NotImplementedError) as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        if checked.type == "cuda" and torch.version.cuda is None and torch.version.hip is None:
            reason = f"this build of torch, {torch.__version__}, has no CUDA"
        elif checked.type == "cuda":
            reason = f"{reason}; there are {torch.cuda.device_count()} CUDA devices"
        raise ValueError(
            f"device={str(device)!r} cannot be used ({reason}); pass {_usable()}, or leave it out"
        ) from error
    return checked


def _usable() -> str:
    """The devices of this machine, for error messages."""
    devices = ["cpu", *(f"cuda:{number}" for number in range(torch.cuda.device_count()))]
    return " or ".join(map(repr, [*devices, *(["mps"] if torch.backends.mps.is_available() else [])]))


def leave_float16(model: nn.Module, device: torch.device) -> None:
    """Convert a float16 model on a CPU to float32: CPUs emulate float16, about 1000 times slower."""
    if device.type == "cpu" and model.dtype == torch.float16:
        warn(
            "this CPU has no float16 arithmetic, so the weights are converted to float32; pass dtype='bfloat16' to"
            " halve their memory"
        )
        model.float()
