"""The sentences that a caller gives: checked, one by one, whatever holds them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Any

import numpy as np


def is_one(sentences: object) -> bool:
    """Whether this is one sentence and not several."""
    return isinstance(sentences, str)


def rows_of(sentences: Any) -> Iterator[str]:
    """The sentences in order; a single str is one sentence.

    Raises:
        TypeError: If this is no iterable of str, naming the row that is something else.
    """
    if is_one(sentences):
        sentences = [sentences]
    if isinstance(sentences, (bytes, bytearray, Mapping, Set)) or not isinstance(sentences, Iterable):
        raise TypeError(
            f"sentences is of type {type(sentences).__name__}; pass a str, or a list or another ordered iterable of str"
        )
    if isinstance(sentences, np.ndarray) and sentences.ndim != 1:
        raise TypeError(f"sentences is an array of shape {sentences.shape}; pass an array of one dimension")
    for row, text in enumerate(sentences):
        if not isinstance(text, str):
            raise TypeError(f"sentences[{row}] is of type {type(text).__name__} ({_short(text)}); pass only str")
        yield text


def _short(value: Any) -> str:
    try:
        text = repr(value)
    except Exception:
        return "no repr"
    return text if len(text) <= 40 else text[:37] + "..."
