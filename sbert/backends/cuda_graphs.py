"""CUDA graphs for short texts and small batches: a forward of a hundred small kernels in one launch.

A graph is captured within a call of ``encode``, in the thread of the caller. In another thread, that would not be safe,
whatever ``capture_error_mode`` is: while a stream captures, ``torch.cuda.synchronize`` of any thread fails and breaks
the capture, ``empty_cache`` fails, torch's generator of random numbers is in a state of its own, and weights may
change. So nothing of the caller's own runs meanwhile, and calls of other threads go on without graphs.
"""

from __future__ import annotations

import threading
import warnings
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from sbert.backends.architectures import describe
from sbert.backends.attention import kernel_failures, one_kernel
from sbert.backends.fused import Fused
from sbert.backends.parity import gap, tolerance
from sbert.batch import TokenBatch
from sbert.storage.files import is_failure, is_out_of_memory, one_line
from sbert.storage.processes import Lock

# Numbers of tokens and of rows of the graphs; a smaller batch is completed with a row of filler tokens and empty rows.
_TOKENS = (16, 32, 64, 128, 256, 512, 768, 1024)
_ROWS = (1, 8, 64)
# A capture takes as long as a few forwards, so a size is captured at its second use.
_SEEN = 2
_Size = tuple[int, int]  # Tokens and rows.

# CUDA captures one graph at a time per process.
capturing: Lock = Lock()


@cache
def capture_stream(device: torch.device) -> torch.cuda.Stream:
    """The stream of all captures on a device: cuBLAS keeps memory for each stream on which it has run."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


class _Shared(NamedTuple):
    """What the graphs of a model share: memory, the stream of captures, and an event recorded after their last use."""

    pool: Any
    stream: torch.cuda.Stream
    free: torch.cuda.Event


class _Captured(NamedTuple):
    """A graph, its static input and its output."""

    graph: torch.cuda.CUDAGraph
    static: TokenBatch
    output: Tensor
    shared: _Shared


class CudaGraphs:
    """The fused forward, with CUDA graphs that are replayed for small batches.

    Its attention has to be one kernel for variable lengths, which reads the offsets of the rows from a tensor. The
    output of a new graph is compared with that of the forward. After a difference or a failed capture, no graph is
    used, and ``failure`` gives the reason.

    Args:
        fused: The forward, on a GPU.
    """

    name: ClassVar[str] = "cuda_graphs"

    def __init__(self, fused: Fused) -> None:
        self._fused = fused
        self._seen: Counter[_Size] = Counter()
        self._captured: dict[_Size, _Captured] = {}
        self._shared: _Shared | None = None
        self._lock = threading.Lock()
        self._busy = False
        self.failure: str | None = None

    @staticmethod
    def supports(network: Any, device: torch.device, dtype: torch.dtype) -> str | None:
        """Why the fused forward of a model cannot be captured; None if it can."""
        backbone = describe(network)
        if isinstance(backbone, str):
            return backbone
        if one_kernel(dtype, device, backbone.head_dim):
            return None
        failure = kernel_failures.get((dtype, device, backbone.head_dim))
        why = f"varlen_attn {failure}" if failure else "that takes half precision and a recent NVIDIA GPU"
        return f"attention is not one kernel: {why}"

    @property
    def why(self) -> str:
        """How it runs, in words."""
        failure = f", which are not used: {self.failure}" if self.failure else ""
        return f"{self._fused.why}, CUDA graphs for short texts{failure}"

    def forward(self, batch: TokenBatch) -> Tensor:
        """Vectors of all tokens from the last layer. Shape: (tokens, dim)."""
        size = None if self.failure or self._busy else self._size(batch)
        if size is None:
            return self._fused.forward(batch)
        with self._lock, torch.cuda.device(batch.ids.device):
            if size in self._captured:
                return self._replay(self._captured[size], batch)
        vectors = self._fused.forward(batch)
        with self._lock, torch.cuda.device(batch.ids.device):
            self._seen[size] += 1
            if self._seen[size] >= _SEEN and size not in self._captured and not self.failure:
                self._busy = True  # Calls of other threads do not wait for the capture.
                try:
                    self._try_to_capture(size, batch, vectors)
                finally:
                    self._busy = False
        return vectors

    def _size(self, batch: TokenBatch) -> _Size | None:
        """The smallest size that a batch fits into, if there is one."""
        tokens = next((size for size in _TOKENS if len(batch.ids) <= size), None)
        rows = next((size for size in _ROWS if batch.rows <= size), None)
        if tokens is None or rows is None or batch.types is not None:
            return None
        # The filler is one row, and the model has no more positions than its longest.
        return (tokens, rows) if tokens - len(batch.ids) <= self._fused.longest else None

    def _replay(self, captured: _Captured, batch: TokenBatch) -> Tensor:
        free = captured.shared.free
        stream = torch.cuda.current_stream(batch.ids.device)
        stream.wait_event(free)  # The previous caller may use another stream.
        fill(captured.static, batch)
        captured.graph.replay()
        output = captured.output[: len(batch.ids)].clone()
        free.record(stream)
        return output

    def _try_to_capture(self, size: _Size, batch: TokenBatch, expected: Tensor) -> None:
        """Capture a graph and compare its output for a batch with the expected one, or record the failure."""
        device = batch.ids.device
        try:
            with capturing:
                captured = self._capture(size, device)
            difference = gap(self._replay(captured, batch), expected, batch)
            # From vectors that are not finite nothing can be concluded.
            if difference <= tolerance(self._fused.dtype, device) or not expected.isfinite().all():
                self._captured[size] = captured
                return
            self.failure = f"its output differs by {difference:.1e} of the norm of the vectors"
        except Exception as error:
            if not is_failure(error) and not is_out_of_memory(error):
                raise
            self.failure = f"a capture failed ({one_line(error)})"
            self._end_of_capture(device)
        self._captured.clear()
        warnings.warn(f"short texts are encoded without CUDA graphs: {self.failure}; please report it", stacklevel=2)

    def _end_of_capture(self, device: torch.device) -> None:
        """What torch leaves undone if the end of a capture fails: no memory would be returned, no dropout could run."""
        with suppress(Exception):
            torch._C._cuda_endAllocateToPool(device.index, self._shared.pool)  # type: ignore[union-attr]
        with suppress(Exception):
            generator: Any = torch.cuda.default_generators[device.index]
            generator.graphsafe_set_state(generator.clone_state())  # A clone takes no part in a capture.

    def _capture(self, size: _Size, device: torch.device) -> _Captured:
        if self._shared is None:
            free = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._shared = _Shared(torch.cuda.graph_pool_handle(), capture_stream(device), free)
        pool, stream, free = self._shared
        stream.wait_stream(torch.cuda.current_stream(device))
        stream.wait_event(free)
        # The outer context is left even if the end of a capture fails; torch's own is not.
        with torch.cuda.stream(stream):
            static = empty(*size, min(size[0], self._fused.longest), device)
            # A first run outside of the graph initializes the libraries. It has rows of its own: what these keep of
            # their offsets would not be computed in the graph.
            self._fused.forward(replace(static))
            graph = torch.cuda.CUDAGraph()
            # With a stream of another device, the graph would be empty.
            with torch.cuda.graph(graph, pool=pool, stream=stream, capture_error_mode="thread_local"):
                output = self._fused.forward(static)
            free.record(stream)
        return _Captured(graph, static, output, self._shared)


def empty(tokens: int, rows: int, longest: int, device: torch.device) -> TokenBatch:
    """A batch for ``fill``, of ``rows`` rows and one for the filler; none of them has more tokens than the longest."""
    ids = torch.zeros(tokens, dtype=torch.int64, device=device)
    offsets = torch.arange(rows + 2, device=device) * tokens // (rows + 1)
    return TokenBatch(ids, offsets, longest)


def fill(static: TokenBatch, batch: TokenBatch) -> None:
    """Set the first rows of ``static`` to those of ``batch``; one row of filler and empty rows follow.

    The filler is what the batches before have left.
    """
    static.ids[: len(batch.ids)] = batch.ids
    static.offsets[: batch.rows + 1] = batch.offsets
    static.offsets[batch.rows + 1 :] = len(static.ids)
