"""Arguments that several functions take, checked in one way."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


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
