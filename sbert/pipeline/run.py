"""Run batches through the modules."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import nn

from sbert.backends.cuda_graphs import capturing
from sbert.batch import TokenBatch
from sbert.pipeline.batching import Rows
from sbert.pipeline.tokenize import Tokens
from sbert.storage.files import is_out_of_memory

Output = TypeVar("Output")
Item = TypeVar("Item")
# Batches of the largest size that have to fit before twice that size is tried again; each refusal doubles the number.
_PATIENCE = 16


class TextTooLargeError(torch.OutOfMemoryError):
    """One text alone does not fit in memory."""


class Room:
    """The size of batches that fit in memory: half of what did not, until many of that size have fitted."""

    def __init__(self) -> None:
        self.tokens: float = math.inf
        self._fitted, self._patience = 0, _PATIENCE

    def refused(self, tokens: int) -> None:
        """A batch of this number of tokens, including padding, did not fit."""
        self.tokens = min(self.tokens, tokens // 2)
        self._fitted, self._patience = 0, 2 * self._patience

    def fitted(self, tokens: int) -> None:
        """A batch of this number of tokens did fit: what else filled the memory may be gone."""
        self._fitted += 2 * tokens > self.tokens
        if self._fitted >= self._patience:
            self.tokens, self._fitted = 2 * self.tokens, 0


_rooms: WeakKeyDictionary[nn.Module, dict[torch.device, Room]] = WeakKeyDictionary()


def room_of(model: nn.Module, device: torch.device) -> Room:
    """What is known about the memory beside a model on a device, for all its calls."""
    return _rooms.setdefault(model, {}).setdefault(device, Room())


def ahead(items: Iterable[Item], depth: int = 1) -> Generator[Item, None, None]:
    """The same items; the next ``depth`` of them are computed in a thread while the current one is in use."""
    source, end = iter(items), object()
    with ThreadPoolExecutor(1, "sbert-ahead") as pool:
        coming = deque(pool.submit(next, source, end) for _ in range(depth))
        try:
            while (item := coming.popleft().result()) is not end:
                coming.append(pool.submit(next, source, end))
                yield item  # type: ignore[misc]
        finally:
            pool.shutdown(cancel_futures=True)


def run(
    forward: Callable[[TokenBatch], Output],
    tokens: Tokens,
    batches: Iterable[Rows],
    device: torch.device,
    room: Room | None = None,
    name: Callable[[int], str] = "texts[{}]".format,
) -> Iterator[tuple[Rows, Output]]:
    """Yield the rows of each batch and the output of ``forward``. A batch that does not fit in memory is halved.

    Args:
        forward: The model, or some of its modules.
        tokens: The tokens of all texts.
        batches: The texts of each batch.
        device: Device of the model.
        room: The size of batches that fit, which is updated. Default: that of this call.
        name: Name of a text in an error.

    Raises:
        TextTooLargeError: If a batch of one text does not fit in memory. The message names the text.
    """
    room, lengths = room or Room(), tokens.lengths
    for batch in batches:
        waiting = [batch]
        while waiting:
            rows = waiting.pop()
            size = len(rows) * int(lengths[rows].max())
            output = None
            if size <= room.tokens or len(rows) == 1:
                output = _within_memory(forward, tokens, rows, device)
                if output is None and len(rows) == 1:
                    raise TextTooLargeError(too_large(name(int(rows[0])), size, device))
                if output is None:
                    room.refused(size)
            if output is None:
                waiting += [rows[len(rows) // 2 :], rows[: len(rows) // 2]]
            else:
                room.fitted(size)
                yield rows, output


def _within_memory(
    forward: Callable[[TokenBatch], Output], tokens: Tokens, rows: Rows, device: torch.device
) -> Output | None:
    """The output for a batch; None if it does not fit in memory."""
    try:
        return forward(tokens.batch(rows).to(device))
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
    if device.type != "cpu":  # Outside of the except clause, whose traceback holds the batch's memory.
        with capturing:  # While a graph is captured, it would fail.
            torch.get_device_module(device).empty_cache()
    return None


def too_large(name: str, tokens: int, device: torch.device) -> str:
    """The message about a text that does not fit in memory, with the remedies."""
    return (
        f"{name}, {tokens:,} tokens, does not fit in the free memory of {device}, even alone; split it, set a lower"
        " max_seq_length, or free memory"
    )
