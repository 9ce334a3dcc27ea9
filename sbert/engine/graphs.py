"""CUDA graphs for single queries: a forward of a hundred small kernels, launched at once."""

from __future__ import annotations

import threading
from collections import Counter

import torch
from torch import Tensor

from sbert.batch import TokenBatch
from sbert.engine.fused import FusedEncoder

# A graph has one shape: so many tokens, of which the last are filler.
_TOKENS = (16, 32, 64, 128, 256, 512)
_ROWS = 8
# To capture takes as long as a few hundred queries, so a size is captured when it comes again.
_SEEN = 2


class Graphs:
    """A fused encoder that replays small batches.

    Its attention has to be one kernel for rows of any length, which takes their offsets from a tensor.

    Args:
        fused: The encoder, on a GPU.
    """

    def __init__(self, fused: FusedEncoder) -> None:
        self._fused = fused
        self._seen: Counter[int] = Counter()
        self._captured: dict[int, tuple[torch.cuda.CUDAGraph, TokenBatch, Tensor]] = {}
        self._lock = threading.Lock()

    def __call__(self, batch: TokenBatch) -> Tensor:
        tokens = len(batch.ids)
        size = next((size for size in _TOKENS if tokens <= size <= self._fused.longest), None)
        if size is None or batch.rows > _ROWS:
            return self._fused(batch)
        with self._lock:
            self._seen[size] += 1
            if self._seen[size] < _SEEN:
                return self._fused(batch)
            if size not in self._captured:
                self._captured[size] = self._capture(size, batch.ids.device)
            graph, static, output = self._captured[size]
            fill(static, batch)
            graph.replay()
            return output[:tokens].clone()

    def _capture(self, size: int, device: torch.device) -> tuple[torch.cuda.CUDAGraph, TokenBatch, Tensor]:
        static = empty(size, device)
        # A first run outside of the graph sets up the libraries.
        stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream):
            self._fused(static)
        torch.cuda.current_stream(device).wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            output = self._fused(static)
        return graph, static, output


def empty(size: int, device: torch.device) -> TokenBatch:
    """A batch of ``size`` tokens whose rows may be set anew; the last row holds the filler."""
    ids = torch.zeros(size, dtype=torch.int64, device=device)
    offsets = torch.zeros(_ROWS + 2, dtype=torch.int64, device=device)
    offsets[-1] = size
    return TokenBatch(ids, offsets, size)


def fill(static: TokenBatch, batch: TokenBatch) -> None:
    """Set the rows of ``static`` to those of ``batch``, then rows without tokens, then one of filler."""
    tokens, rows = len(batch.ids), batch.rows
    static.ids[:tokens] = batch.ids
    static.ids[tokens:] = 0
    static.offsets[: rows + 1] = batch.offsets
    static.offsets[rows + 1 : -1] = tokens
