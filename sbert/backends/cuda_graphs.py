"""CUDA graphs for single queries: a forward of a hundred small kernels in one launch."""

from __future__ import annotations

import threading
import warnings
from collections import Counter
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from sbert.backends.architectures import describe
from sbert.backends.attention import kernel_failures, one_kernel
from sbert.backends.fused import Fused
from sbert.backends.parity import gap, probe_of, tolerance
from sbert.batch import TokenBatch
from sbert.storage.files import is_failure, one_line
from sbert.storage.processes import Lock

# Numbers of tokens of the graphs; a smaller batch is completed with filler tokens.
_TOKENS = (16, 32, 64, 128, 256, 512)
_ROWS = 8
# A capture takes as long as a few hundred queries, so a size is captured at its second use.
_SEEN = 2

# CUDA captures one graph at a time per process.
_capturing = Lock()


class _Captured(NamedTuple):
    """A graph, its static input and output, and an event recorded after their last use."""

    graph: torch.cuda.CUDAGraph
    static: TokenBatch
    output: Tensor
    free: torch.cuda.Event


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
        self._seen: Counter[int] = Counter()
        self._captured: dict[int, _Captured] = {}
        self._lock = threading.Lock()
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
        tokens = len(batch.ids)
        size = next((size for size in _TOKENS if tokens <= size <= self._fused.longest), None)
        if size is None or batch.rows > _ROWS or batch.types is not None or self.failure:
            return self._fused.forward(batch)
        with self._lock, torch.cuda.device(batch.ids.device):
            self._seen[size] += 1
            if self._seen[size] >= _SEEN and size not in self._captured and not self.failure:
                self._try_to_capture(size, batch.ids.device)
            if size in self._captured:
                return self._replay(self._captured[size], batch)
        return self._fused.forward(batch)

    def _replay(self, captured: _Captured, batch: TokenBatch) -> Tensor:
        stream = torch.cuda.current_stream(batch.ids.device)
        stream.wait_event(captured.free)  # The previous caller may use another stream.
        fill(captured.static, batch)
        captured.graph.replay()
        output = captured.output[: len(batch.ids)].clone()
        captured.free.record(stream)
        return output

    def _try_to_capture(self, size: int, device: torch.device) -> None:
        """Capture a graph and compare its output, or record the failure."""
        try:
            with _capturing:
                captured = self._capture(size, device)
            probe = probe_of((size // 2, size // 4, 1), self._fused.vocab_size, device)
            difference = gap(self._replay(captured, probe), self._fused.forward(probe), probe)
            if difference <= tolerance(self._fused.dtype, device):
                self._captured[size] = captured
                return
            self.failure = f"its output differs by {difference:.1e} of the norm of the vectors"
        except Exception as error:
            if not is_failure(error) and not isinstance(error, torch.OutOfMemoryError):
                raise
            self.failure = f"a capture failed ({one_line(error)})"
        warnings.warn(f"short texts are encoded without CUDA graphs: {self.failure}; please report it", stacklevel=2)

    def _capture(self, size: int, device: torch.device) -> _Captured:
        static = empty(size, device)
        # A first run outside of the graph initializes the libraries. It has rows of its own: what these keep of their
        # offsets would not be computed in the graph.
        stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream):
            self._fused.forward(replace(static))
        torch.cuda.current_stream(device).wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        # With a stream of another device, the graph would be empty.
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            output = self._fused.forward(static)
        return _Captured(graph, static, output, torch.cuda.Event())  # type: ignore[no-untyped-call]


def empty(size: int, device: torch.device) -> TokenBatch:
    """A batch of ``size`` tokens whose rows can be overwritten; the last row holds the filler."""
    ids = torch.zeros(size, dtype=torch.int64, device=device)
    offsets = torch.zeros(_ROWS + 2, dtype=torch.int64, device=device)
    offsets[-1] = size
    return TokenBatch(ids, offsets, size)


def fill(static: TokenBatch, batch: TokenBatch) -> None:
    """Set the rows of ``static`` to those of ``batch``, then empty rows, then one row of filler."""
    tokens, rows = len(batch.ids), batch.rows
    static.ids[:tokens] = batch.ids
    static.ids[tokens:] = 0
    static.offsets[: rows + 1] = batch.offsets
    static.offsets[rows + 1 : -1] = tokens
