"""Labels of rows: words and numbers from files, as the numbers that losses take."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

from sbert.data.records import kind

# Converts a label to a number; the first argument is its location, for errors.
Convert = Callable[[str, Any], Any]
WHOLE = re.compile(r"\s*[+-]?[0-9]+\s*")
# Number of classes that an error lists.
_LISTED = 20


def as_word(value: object) -> str:
    """A label as it is written in CSV and TSV, so that JSON's 1 and a table's "1" are the same word."""
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def conversion(classes: Sequence[str] | None, scale: tuple[float, float] | None) -> Convert:
    """The function that converts labels: to class indices, to the range 0 to 1, or to plain numbers."""
    if classes is None:
        return _number if scale is None else _scaled(scale)
    if scale is not None:
        raise ValueError("classes= is for labels that are words, scale= for labels that are numbers; pass one of them")
    words = [as_word(word) for word in classes]
    if not words or len(set(words)) < len(words):
        raise ValueError(f"classes={list(classes)}; pass one or more words, each once")
    index = {word: i for i, word in enumerate(words)}
    known = ", ".join(words[:_LISTED]) + (f" and {len(words) - _LISTED} more" if len(words) > _LISTED else "")

    def convert(where: str, value: Any) -> int:
        place = index.get(as_word(value))
        if place is None:
            raise ValueError(f"{where}: the label {value!r} is not one of the classes {known}; add or drop it")
        return place

    return convert


def _scaled(scale: tuple[float, float]) -> Convert:
    low, high = scale
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ValueError(f"scale={scale}; pass the lowest and the highest label, such as (0, 5)")

    def convert(where: str, value: Any) -> float:
        number = _number(where, value)
        if isinstance(number, list):
            raise ValueError(f"{where}: the label is a list, which scale= does not support; leave scale= out")
        if not low <= number <= high:
            raise ValueError(
                f"{where}: the label {number} is not within scale={low:g} to {high:g}; correct one of them"
            )
        return (number - low) / (high - low)

    return convert


def _number(where: str, value: Any) -> int | float | list[float]:
    """The label as a number; an int if it is written as one."""
    if isinstance(value, list):
        for part in value:
            if isinstance(part, bool) or not _fits(part):
                raise ValueError(f"{where}: the label's list contains {part!r}; use finite numbers only")
        return value
    number = _parsed(value) if isinstance(value, str) else value
    if number is None:
        raise ValueError(f"{where}: the label {value!r} is not a number; if labels are words, list them as classes")
    if not isinstance(number, (int, float)):
        raise ValueError(f"{where}: the label is {kind(value)}; make it a number, a word or a list of numbers")
    if not _fits(number):
        raise ValueError(f"{where}: the label {value!r} is not finite, or too large; fix or remove the line")
    return int(number) if isinstance(number, bool) else number


def _parsed(text: str) -> int | float | None:
    try:
        # Python accepts underscores between digits; here they are an error.
        return int(text) if WHOLE.fullmatch(text) else float(text.replace("_", "?"))
    except ValueError:
        return None


def _fits(number: object) -> bool:
    """Whether it is a finite number in the range of int64 and float32."""
    return isinstance(number, (int, float)) and abs(number) < 2**63
