"""Checks of the arguments of metrics and evaluators."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Sized

import numpy as np
import numpy.typing as npt

from sbert.inputs.texts import texts_of

# Of the rows of readers, which zip(*rows) gives in place of their values.
_KEYS = ("first", "second", "label", "anchor", "positive", "negative")
Numbers = npt.NDArray[np.generic] | Sequence[float]


def check_numbers(least: int, finite: bool = False, /, **arguments: Numbers) -> list[np.ndarray]:
    """Check that the arguments are one-dimensional, of the same length and not NaN, or finite; return arrays."""
    arrays = {name: np.asarray(values) for name, values in arguments.items()}
    for name, values in arrays.items():
        if values.ndim != 1:
            raise ValueError(f"{name} has the shape {values.shape}; pass one-dimensional arguments")
        missing = np.flatnonzero(values != values)
        if len(missing):
            raise ValueError(f"{name}[{missing[0]}] is NaN, which cannot be compared; leave that row out")
        if finite:
            check_finite_values(name, values)
    check_lengths(least, **arrays)
    return list(arrays.values())


def check_binary(name: str, values: np.ndarray) -> np.ndarray:
    """Check that all values are 0 or 1, and return them as bool."""
    wrong = np.flatnonzero((values != 0) & (values != 1))
    if len(wrong):
        raise ValueError(f"{name}[{wrong[0]}] is {values[wrong[0]]}; pass 1 for positive and 0 for negative")
    return values.astype(bool)


def check_finite_values(name: str, values: np.ndarray) -> None:
    """Raise a ValueError that names the first value that is NaN or infinite, if there is one."""
    wrong = np.flatnonzero(~np.isfinite(values))
    if len(wrong):
        raise ValueError(f"{name}[{wrong[0]}] is {values[wrong[0]]}; pass finite numbers, and leave out other rows")


def check_name_list(argument: str, names: Iterable[str] | None, default: Sequence[str]) -> list[str]:
    """The names without repetitions, by default all of ``default``.

    Raises:
        TypeError: If they are a single string, which would be read as a list of letters.
        ValueError: If there are none.
    """
    if isinstance(names, str):
        raise TypeError(f"{argument}={names!r} is one string; pass a list of names")
    listed = list(dict.fromkeys(default if names is None else names))
    if not listed:
        raise ValueError(f"{argument} is empty; pass some of {', '.join(default)}, or leave it out")
    return listed


def check_lengths(least: int, **arguments: Sized) -> None:
    """Raise a ValueError unless all arguments have the same length, at least ``least``."""
    counts = {name: len(values) for name, values in arguments.items()}
    if len(set(counts.values())) > 1 or min(counts.values()) < least:
        listed = ", ".join(f"{count} {name}" for name, count in counts.items())
        raise ValueError(f"there are {listed}; pass as many of each, and at least {least}")


def check_labels(name: str, labels: Iterable[float]) -> npt.NDArray[np.int64]:
    """Labels as integers from 0.

    Shape:
        Output: (rows,) int64.

    Raises:
        ValueError: If a label is not an integer, or below 0; the message names it.
    """
    listed = list(labels)
    for row, label in enumerate(listed):
        if not isinstance(label, (int, float, np.number, np.bool_)) or not (0 <= label < 2**31 and label == int(label)):
            raise ValueError(f"{name}[{row}] is {label!r}; number the classes from 0, as read_rows(classes=...) does")
    return np.array(listed, np.int64)


def check_text_columns(least: int, columns: Mapping[str, Iterable[str]], **others: Sized) -> list[list[str]]:
    """Columns of texts as lists, as long as the other arguments, at least ``least``; an error names the text."""
    lists = {name: texts_of(texts, name) for name, texts in columns.items()}
    check_lengths(least, **lists, **others)
    if all(len(set(texts)) == 1 < len(texts) and texts[0] in _KEYS for texts in lists.values()):
        raise TypeError("the texts are the keys of dicts; pass rows of dicts to from_rows(rows)")
    return list(lists.values())
