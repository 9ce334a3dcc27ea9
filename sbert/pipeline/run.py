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
_PATIENCE, _MOST_PATIENCE = 16, 1024


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
        self._fitted, self._patience = 0, min(2 * self._patience, _MOST_PATIENCE)

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
                output = within_memory(forward, tokens, rows, device)
                if output is None and len(rows) == 1:
                    output = alone(forward, tokens, rows, device, name)
                if output is None:
                    room.refused(size)
            if output is None:
                waiting += [rows[len(rows) // 2 :], rows[: len(rows) // 2]]
            else:
                room.fitted(size)
                yield rows, output


def within_memory(
    forward: Callable[[TokenBatch], Output], tokens: Tokens, rows: Rows, device: torch.device
) -> Output | None:
    """The output for a batch; None, after memory was given back, if it does not fit."""
    try:
        return forward(tokens.batch(rows).to(device))
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
    if device.type != "cpu":  # Outside of the except clause, whose traceback holds the batch's memory.
        with capturing:  # While a graph is captured, it would fail.
            torch.get_device_module(device).empty_cache()
    return None


def alone(
    forward: Callable[[TokenBatch], Output],
    tokens: Tokens,
    rows: Rows,
    device: torch.device,
    name: Callable[[int], str],
) -> Output:
    """The output for a batch that cannot be halved, tried once more: the memory may be full for a moment only.

    Raises:
        TextTooLargeError: If it does not fit now either.
    """
    output = within_memory(forward, tokens, rows, device)
    if output is None:
        what = f"{name(int(rows[0]))}, {tokens.lengths[rows[0]]:,} tokens"
        raise TextTooLargeError(
            f"{what}, does not fit in the free memory of {device}, even alone; split it, set a lower max_seq_length, or"
            " free memory"
        )
    return output
