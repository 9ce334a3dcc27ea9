"""What is given to metrics and evaluators, checked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Sized

import numpy as np

from sbert.inputs.texts import texts_of

Numbers = np.ndarray | Sequence[float]


def rows(least: int, **given: Numbers) -> list[np.ndarray]:
    """The arrays, if each is a row of as many numbers, none of which is NaN."""
    arrays = {name: np.asarray(values) for name, values in given.items()}
    shapes = [array.shape for array in arrays.values()]
    if len(set(shapes)) > 1 or len(shapes[0]) != 1:
        said = " and ".join(str(shape) for shape in shapes)
        raise ValueError(f"the shapes {said} do not fit; pass two rows of as many numbers")
    if shapes[0][0] < least:
        raise ValueError(f"{shapes[0][0]} numbers have nothing to compare; pass at least {least} on each side")
    for name, values in arrays.items():
        missing = np.flatnonzero(values != values)
        if len(missing):
            raise ValueError(f"{name}[{missing[0]}] is NaN, which has no place among numbers; leave that row out")
    return list(arrays.values())


def binary(name: str, values: np.ndarray) -> np.ndarray:
    """(rows,) bool, of zeros and ones."""
    wrong = np.flatnonzero((values != 0) & (values != 1))
    if len(wrong):
        raise ValueError(f"{name}[{wrong[0]}] is {values[wrong[0]]}; pass 1 for what is true, and 0 for what is not")
    return values.astype(bool)


def finite(name: str, values: np.ndarray) -> None:
    """Raise a ValueError that names the first number that is infinite."""
    endless = np.flatnonzero(np.isinf(values))
    if len(endless):
        raise ValueError(f"{name}[{endless[0]}] is {values[endless[0]]}; pass finite numbers")


def texts(name: str, given: Iterable[str]) -> list[str]:
    """The texts as a list.

    Raises:
        TypeError: If they are a single str, or a table of columns; or one of them is none, naming it.
    """
    return texts_of(given, name)


def names(argument: str, given: Iterable[str]) -> list[str]:
    """Names, each once; a TypeError if they are one string, which would be taken for its letters."""
    if isinstance(given, str):
        raise TypeError(f"{argument}={given!r} is one string; pass a list of names")
    return list(dict.fromkeys(given))


def as_many(least: int, **given: Sized) -> None:
    """Raise a ValueError unless there are as many of each, and enough."""
    counts = {name: len(values) for name, values in given.items()}
    if len(set(counts.values())) > 1 or min(counts.values()) < least:
        said = ", ".join(f"{count} {name}" for name, count in counts.items())
        raise ValueError(f"there are {said}; pass as many of each, and at least {least}")


def whole(name: str, given: Iterable[float]) -> np.ndarray:
    """Labels as whole numbers from 0.

    Shape:
        Output: (rows,) int64.

    Raises:
        TypeError: If one is no number, naming it.
        ValueError: If one is no whole number, or less than 0.
    """
    listed = list(given)
    for row, label in enumerate(listed):
        if not isinstance(label, (int, float, np.number, np.bool_)):
            raise TypeError(f"{name}[{row}] is {label!r}; number the classes from 0, as read_rows(classes=...) does")
        if not (label >= 0 and label == np.floor(label) and label < 2**31):
            raise ValueError(f"{name}[{row}] is {label}; pass whole numbers from 0, and leave out rows without a label")
    return np.array(listed, np.int64)
