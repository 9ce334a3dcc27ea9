"""Which texts form a batch, as pure functions of their numbers of tokens; and items that are prepared ahead."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import torch

Item = TypeVar("Item")
# Attention on a GPU pads their number to a power of two, and the grids of its kernels have less than twice as many.
_MOST_ROWS = 1 << 15
# Texts that are tokenized and sorted together, at first and at most: enough for batches of equal length, and little
# beside the vectors. An accelerator waits for the first of them, and is faster than the tokenizer.
_WINDOWS, _WINDOWS_ACCELERATOR = {"cpu": (8192, 8192)}, (1024, 65536)
# Indices of texts, or their numbers of tokens.
Indices = npt.NDArray[np.int64]


def plan(
    lengths: Indices, batch_tokens: int, batch_size: int | None = None, padded: int | None = None
) -> list[Indices]:
    """Divide texts into batches of similar length, the longest first.

    A batch holds as many texts as fit into ``batch_tokens`` if each is as long as the longest of them, or
    ``batch_size`` texts. The longest come first, so that an out-of-memory error occurs in the first batch or never.

    With ``padded``, what fits is the sum of their lengths. So most batches have nearly the same number of tokens: the
    allocator uses the same memory again, which it splits for other sizes, and oneDNN compiles for few numbers.

    Args:
        lengths: Number of tokens of each text.
        batch_tokens: Maximum number of tokens of a batch of more than one text.
        batch_size: Number of texts per batch, instead of a maximum of tokens.
        padded: Maximum number of tokens if each text is as long as the longest. Default: ``batch_tokens``.

    Shape:
        lengths: (texts,). Output: arrays of indices into ``lengths``, each index once.

    Example:
        >>> import numpy as np
        >>> from sbert.pipeline.batching import plan
        >>> [batch.tolist() for batch in plan(np.array([3, 9, 3, 4]), batch_tokens=10)]
        [[1], [3, 0], [2]]
        >>> [batch.tolist() for batch in plan(np.array([3, 9, 3, 4]), batch_tokens=10, padded=12)]
        [[1], [3, 0, 2]]
    """
    if len(lengths) == 1:
        return [np.zeros(1, np.int64)]
    order = np.argsort(-lengths, kind="stable")
    ends = np.cumsum(lengths[order])
    batches = []
    start = 0
    while start < len(order):
        longest = max(1, int(lengths[order[start]]))
        rows = (padded or batch_tokens) // longest
        if padded:
            most = ends[start] - lengths[order[start]] + batch_tokens
            rows = min(rows, int(np.searchsorted(ends, most, side="right")) - start)
        rows = min(batch_size or max(1, rows), _MOST_ROWS)
        batches.append(order[start : start + rows])
        start += rows
    return batches


def windows(texts: int, device: torch.device) -> list[slice]:
    """Runs of texts that are tokenized and sorted together; each has four times those of the one before, up to a limit.

    Args:
        texts: Number of texts.
        device: Device of the model.

    Example:
        >>> import torch
        >>> from sbert.pipeline.batching import windows
        >>> [run.stop - run.start for run in windows(30_000, torch.device("cpu"))]
        [8192, 8192, 8192, 5424]
    """
    start, (size, most) = 0, _WINDOWS.get(device.type, _WINDOWS_ACCELERATOR)
    runs = []
    while start < texts:
        runs.append(slice(start, min(texts, start + size)))
        start, size = start + size, min(4 * size, most)
    return runs


def unique(texts: list[Item]) -> tuple[list[Item], Indices, Indices]:
    """Distinct texts or pairs; the index of the first occurrence of each; for each input, its index among them."""
    if len(set(texts)) == len(texts):
        return texts, np.arange(len(texts)), np.arange(len(texts))
    index: dict[Item, int] = {}
    inverse = np.fromiter((index.setdefault(text, len(index)) for text in texts), np.int64, len(texts))
    highest = np.maximum.accumulate(inverse)
    first = np.flatnonzero(np.diff(highest, prepend=-1))  # A new text has the next index.
    return list(index), first, inverse


def prefetch(items: Iterable[Item], depth: int = 1) -> Generator[Item, None, None]:
    """The same items; the next ``depth`` of them are computed in a thread while the current one is in use."""
    source, end = iter(items), object()
    with ThreadPoolExecutor(1, "sbert-prefetch") as pool:
        coming = deque(pool.submit(next, source, end) for _ in range(depth))
        try:
            while (item := coming.popleft().result()) is not end:
                coming.append(pool.submit(next, source, end))
                yield item  # type: ignore[misc]
        finally:
            pool.shutdown(cancel_futures=True)
