"""The one door to the backends: the forward of a transformer, which runs faster inside of ``encode``."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from contextvars import ContextVar
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from sbert.backends import copies
from sbert.backends.fused import Fused
from sbert.backends.hooks import watched
from sbert.backends.parity import slower
from sbert.backends.select import select
from sbert.batch import TokenBatch
from sbert.storage.files import is_failure, one_line

Output = TypeVar("Output")

_inference: ContextVar[Inference | None] = ContextVar("sbert_inference", default=None)


def forward(network: Any, batch: TokenBatch) -> Tensor:
    """The last layer's vectors of all tokens, by the backend that is the fastest here.

    Args:
        network: A Hugging Face model, or a minimal BERT.
        batch: At least one token.

    Shape:
        Output: (tokens, dim), of the network's dtype or that of autocast.
    """
    inference = _inference.get()
    if inference is None or network.training or torch.is_grad_enabled():
        return select(network, batch.ids.device).forward(batch)
    return inference.forward(network, batch)


class Inference:
    """One call of ``encode``, in which weights do not change: what was chosen for its first batch serves all.

    Args:
        dtype: Of the arithmetic; vectors come in the dtype of the weights.
        compiling: Options of ``torch.compile``, if that is wanted.
    """

    def __init__(self, dtype: torch.dtype, compiling: dict[str, Any] | None = None) -> None:
        self._dtype, self._compiling = dtype, compiling
        self._running: dict[nn.Module, _Running] = {}

    def running(self, call: Callable[[TokenBatch], Output]) -> Callable[[TokenBatch], Output]:
        """The same function, in which transformers run for inference."""

        def run(batch: TokenBatch) -> Output:
            token = _inference.set(self)
            try:
                return call(batch)
            finally:
                _inference.reset(token)

        return run

    def forward(self, network: Any, batch: TokenBatch) -> Tensor:
        """The tokens' vectors. Shape: (tokens, dim)."""
        if network not in self._running:
            self._running[network] = _Running(network, self._dtype, self._compiling)
        return self._running[network].forward(batch)


class _Running:
    """A network in one call of ``encode``: the forward of copies, and the module once that has failed."""

    def __init__(self, network: Any, dtype: torch.dtype, compiling: dict[str, Any] | None) -> None:
        self._network, self._dtype, self._compiling = network, dtype, compiling
        self._choice, _, samples = copies.keep(network, dtype, compiling)
        # What has to be waited for is asked for now, and looked at once the first batch is under way.
        deferred = samples.deferred and not isinstance(self._choice, str)
        self._unchanged = samples.start() if deferred else None
        self._module: Callable[[TokenBatch], Tensor] | None = None

    def forward(self, batch: TokenBatch) -> Tensor:
        vectors, unchanged = self._by_copies(batch), self._unchanged
        self._unchanged = None
        if unchanged is None or unchanged():
            return vectors
        copies.forget(self._network)
        self._choice = copies.choose(self._network, self._dtype, self._compiling)
        return self._by_copies(batch)

    def _by_copies(self, batch: TokenBatch) -> Tensor:
        if isinstance(self._choice, str):
            return self._by_module(batch)
        try:
            with torch.autocast(batch.ids.device.type, enabled=False):
                return self._choice.forward(batch).to(self._network.dtype)
        except Exception as error:
            if not is_failure(error):
                raise
            reason = f"it fails {Fused.how} ({one_line(error)})"
        vectors = self._by_module(batch)  # Where this fails, too, it is not the forward's fault.
        self._choice = slower(self._network, reason)
        copies.dismiss(self._network, reason)
        return vectors

    def _by_module(self, batch: TokenBatch) -> Tensor:
        """The module, seen by its hooks."""
        device, weights = batch.ids.device, self._network.dtype
        if self._module is None:
            self._module = select(self._network, device).forward
            if self._compiling is not None and not watched(self._network):
                self._module = torch.compile(self._module, **self._compiling)
        with torch.autocast(device.type, self._dtype) if self._dtype != weights else nullcontext():
            return self._module(batch).to(weights)
