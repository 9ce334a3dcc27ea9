"""Run batches through a model: within memory, and back to the order of the texts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from sbert.batch import TokenBatch, move, start_to_host
from sbert.pipeline.batching import Rows
from sbert.pipeline.tokenize import Tokens
from sbert.storage.files import is_out_of_memory

Output = TypeVar("Output")
# Batches of the largest size that have to fit before twice that size is tried again; each refusal doubles the number.
_PATIENCE, _MOST_PATIENCE = 16, 1024
# Elements collected on a GPU before they are copied to the host: one large copy is cheaper than many waits.
_GATHERED = 1 << 22


class TextTooLargeError(torch.OutOfMemoryError):
    """One text alone does not fit in memory."""


class MemoryLimit:
    """The size of batches that fit in memory: half of what did not, until many of that size have fitted."""

    def __init__(self) -> None:
        self.tokens: float = math.inf
        self._fitted, self._patience = 0, _PATIENCE

    def lower(self, tokens: int) -> None:
        """A batch of this number of tokens, including padding, did not fit."""
        self.tokens = min(self.tokens, tokens // 2)
        self._fitted, self._patience = 0, min(2 * self._patience, _MOST_PATIENCE)

    def confirm(self, tokens: int) -> None:
        """A batch of this number of tokens did fit: what else filled the memory may be gone."""
        self._fitted += 2 * tokens > self.tokens
        if self._fitted >= self._patience:
            self.tokens, self._fitted = 2 * self.tokens, 0


@dataclass(frozen=True)
class Runner(Generic[Output]):
    """Runs batches of texts within the memory of a device.

    Args:
        forward: The model, or some of its modules; its output has one entry per row.
        tokens: The tokens of all texts.
        device: Device of the model.
        name: Name of a text in an error.
    """

    forward: Callable[[TokenBatch], Output]
    tokens: Tokens
    device: torch.device
    name: Callable[[int], str] = "texts[{}]".format

    def run(self, batches: Iterable[Rows], limit: MemoryLimit) -> Iterator[tuple[Rows, Output]]:
        """Yield the rows of each batch and the output of ``forward``. A batch that does not fit in memory is halved.

        Args:
            batches: The texts of each batch.
            limit: The size of batches that fit, which is updated.

        Raises:
            TextTooLargeError: If a batch of one text does not fit in memory. The message names the text.
        """
        lengths = self.tokens.lengths
        for batch in batches:
            waiting = [batch]
            while waiting:
                rows = waiting.pop()
                size = len(rows) * int(lengths[rows].max())
                output = None
                if len(rows) == 1:
                    output = self.run_single(rows)
                elif size <= limit.tokens:
                    output = self.run_within_memory(rows)
                    if output is None:
                        limit.lower(size)
                if output is None:
                    waiting += [rows[len(rows) // 2 :], rows[: len(rows) // 2]]
                else:
                    limit.confirm(size)
                    yield rows, output

    def run_within_memory(self, rows: Rows) -> Output | None:
        """The output for a batch; None, after memory was given back, if it does not fit."""
        try:
            return self.forward(self.tokens.batch(rows).to(self.device))
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
        if self.device.type != "cpu":  # Outside of the except clause, whose traceback holds the batch's memory.
            torch.get_device_module(self.device).empty_cache()
        return None

    def run_single(self, rows: Rows) -> Output:
        """The output for a batch that cannot be halved, tried twice: the memory may be full for a moment only.

        Raises:
            TextTooLargeError: If it does not fit.
        """
        for _ in range(2):
            if (output := self.run_within_memory(rows)) is not None:
                return output
        raise TextTooLargeError(
            f"{self.name(int(rows[0]))}, {self.tokens.lengths[rows[0]]:,} tokens, does not fit in the free memory of"
            f" {self.device}, even alone; split it, set a lower max_seq_length, or free memory"
        )


class RowsOfTensor:
    """A tensor that is filled a few rows at a time, in any order.

    If the tensor is on the host, vectors on a GPU are collected there and copied while the next ones are computed.

    Args:
        rows: Number of rows, of the dimension of the first vectors.
        device: Device of the tensor.
    """

    def __init__(self, rows: int, device: torch.device) -> None:
        self._tensor = torch.empty(rows, 0, device=device)
        self._gathered: list[tuple[Rows, Tensor]] = []
        self._copying: tuple[Rows, Tensor, Callable[[], object]] | None = None

    def put(self, rows: Rows, vectors: Tensor) -> None:
        """Set ``rows``, (n,), to ``vectors``, (n, dim)."""
        if not self._tensor.shape[1]:
            self._tensor = self._tensor.new_empty(len(self._tensor), vectors.shape[1])
        if vectors.device.type != "cpu" and self._tensor.device.type == "cpu":
            self._gathered.append((rows, vectors))
            if sum(some.numel() for _, some in self._gathered) >= _GATHERED:
                self._copy()
        else:
            self._tensor[move(torch.from_numpy(rows), self._tensor.device)] = vectors.to(self._tensor.device)

    def _copy(self) -> None:
        """Start to copy the collected vectors; store those of the copy before."""
        copying, self._copying = self._copying, None
        if self._gathered:
            gathered, vectors = zip(*self._gathered, strict=True)
            self._copying = np.concatenate(gathered), *start_to_host(torch.cat(vectors))
            self._gathered = []
        if copying:
            rows, host, wait = copying
            wait()
            self._tensor[torch.from_numpy(rows)] = host

    def complete(self) -> Tensor:
        """The tensor, after every row was set."""
        while self._gathered or self._copying:
            self._copy()
        return self._tensor
