"""Run batches through the modules."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

from sbert.backends.cuda_graphs import capturing
from sbert.batch import TokenBatch
from sbert.pipeline.batching import Rows
from sbert.pipeline.tokenize import Tokens
from sbert.storage.files import is_out_of_memory

Output = TypeVar("Output")
Item = TypeVar("Item")


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
    forward: Callable[[TokenBatch], Output], tokens: Tokens, batches: Iterable[Rows], device: torch.device
) -> Iterator[tuple[Rows, Output]]:
    """Yield the rows of each batch and the output of ``forward``. A batch that does not fit in memory is halved."""
    for batch in batches:
        waiting = [batch]
        while waiting:
            rows = waiting.pop()
            try:
                output = forward(tokens.batch(rows).to(device))
            except RuntimeError as error:
                if len(rows) == 1 or not is_out_of_memory(error):
                    raise
                output = None
            if output is None:  # Outside of the except clause, whose traceback holds the batch's memory.
                if device.type != "cpu":
                    with capturing:  # While a graph is captured, it would fail.
                        torch.get_device_module(device).empty_cache()
                waiting += [rows[len(rows) // 2 :], rows[: len(rows) // 2]]
            else:
                yield rows, output
