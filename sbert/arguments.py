"""Arguments that several functions take, checked in one way."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
import torch
from torch import nn


def check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    """Raise a ValueError for a value that is none of the choices."""
    if value not in choices:
        raise ValueError(f"{name}={value!r} is unknown; pass one of {', '.join(map(repr, choices))}")


def check_positive(name: str, value: int | None) -> int | None:
    """The number if it is whole and at least 1, or None; else raise a TypeError or ValueError."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name} is {value!r}; pass a whole number")
    if value < 1:
        raise ValueError(f"{name}={value} is too small; pass at least 1")
    return int(value)


def check_count(name: str, value: int) -> int:
    """The number if it is whole and at least 1; else raise a TypeError or ValueError."""
    if value is None:
        raise TypeError(f"{name} is None; pass a whole number")
    return check_positive(name, value) or 1


def leave_float16(model: nn.Module, device: torch.device) -> None:
    """Make a model float32 where it is float16 and runs on a CPU, which emulates it a thousand times slower."""
    if device.type == "cpu" and model.dtype == torch.float16:
        warnings.warn(
            "this CPU has no float16 arithmetic, so the weights become float32; pass dtype='bfloat16' for half",
            stacklevel=3,
        )
        model.float()
