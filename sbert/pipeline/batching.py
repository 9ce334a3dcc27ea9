"""Which texts go through the model together."""

from __future__ import annotations

from typing import Any

import numpy as np


def plan(lengths: np.ndarray, batch_tokens: int, batch_size: int | None = None) -> list[np.ndarray]:
    """Cut the texts, longest first, into batches.

    A batch holds texts of like length: as many as fit the token budget when each counts as much as the
    longest, or ``batch_size`` of them. The longest come first, so that memory runs out at once or never.

    Args:
        lengths: Number of tokens of each text.
        batch_tokens: Tokens in a batch at most, if it holds more than one text.
        batch_size: Texts in a batch; takes the place of the budget.

    Shape:
        lengths: (texts,). Output: arrays of indices into ``lengths``, each index once.

    Example:
        >>> [batch.tolist() for batch in plan(np.array([3, 9, 3, 4]), batch_tokens=10)]
        [[1], [3, 0], [2]]
    """
    order = np.argsort(-lengths, kind="stable")
    batches = []
    start = 0
    while start < len(order):
        longest = max(1, int(lengths[order[start]]))
        rows = batch_size or max(1, batch_tokens // longest)
        batches.append(order[start : start + rows])
        start += rows
    return batches


def unique(texts: list[Any]) -> tuple[list[Any], np.ndarray, np.ndarray]:
    """Each different text, or pair, once; where it stands first; and for each text the index of its like among them."""
    index: dict[Any, int] = {}
    inverse = np.fromiter((index.setdefault(text, len(index)) for text in texts), np.int64, len(texts))
    highest = np.maximum.accumulate(inverse)
    first = np.flatnonzero(np.diff(highest, prepend=-1))  # Whatever is new has the next index.
    return list(index), first, inverse
