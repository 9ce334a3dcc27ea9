"""The one door to the backends: the forward of a transformer, which may copy its weights inside of ``encode``."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from contextvars import ContextVar
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from sbert.backends.choice import Choice, Compiling, fastest, halved
from sbert.backends.cuda_graphs import CudaGraphs
from sbert.backends.fused import Fused
from sbert.backends.half_precision import HalfPrecision
from sbert.backends.hooks import watched
from sbert.backends.parity import slower
from sbert.backends.select import BACKENDS, lock, refusal, select
from sbert.backends.threads import with_fitting_threads
from sbert.backends.weight_changes import Samples, state
from sbert.batch import TokenBatch
from sbert.storage.files import is_failure, is_out_of_memory, one_line

Output = TypeVar("Output")


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
        copies: Whether copies of the weights may be made and kept for the next call.
    """

    def __init__(self, dtype: torch.dtype, compiling: Compiling = None, copies: bool = True) -> None:
        self.dtype: torch.dtype = dtype
        self._compiling, self._copies = compiling, copies
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
            self._running[network] = _Running(network, self.dtype, self._compiling, self._copies)
        return with_fitting_threads(self._running[network].forward, batch)


_inference: ContextVar[Inference | None] = ContextVar("sbert_inference", default=None)


class _Running:
    """A network in one call of ``encode``: the forward of copies, and the module once that has failed."""

    def __init__(self, network: Any, dtype: torch.dtype, compiling: Compiling, copies: bool) -> None:
        self._network, self._dtype, self._compiling = network, dtype, compiling
        self._weights: torch.dtype = network.dtype
        kept = _keep_if_it_fits(network, dtype, compiling) if copies else None
        self._copies = kept.copies if kept else None
        # What has to be waited for is asked for now, and looked at once the first batch is under way.
        self._unchanged = kept.samples.start() if kept and kept.samples.deferred and self._copies else None
        self._module: Callable[[TokenBatch], Tensor] | None = None

    def forward(self, batch: TokenBatch) -> Tensor:
        vectors, unchanged = self._by_copies(batch), self._unchanged
        self._unchanged = None
        if unchanged is None or unchanged():
            return vectors
        _kept.pop(self._network, None)
        self._copies = _keep(self._network, self._dtype, self._compiling).copies
        return self._by_copies(batch)

    def _by_copies(self, batch: TokenBatch) -> Tensor:
        if self._copies is None:
            return self._by_module(batch)
        kind = batch.ids.device.type
        try:
            with torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else nullcontext():
                return self._copies.forward(batch).to(self._weights)
        except Exception as error:
            if not is_failure(error):
                raise
            how = HalfPrecision.how if isinstance(self._copies, HalfPrecision) else Fused.how
            reason = f"it fails {how} ({one_line(error)})"
        vectors = self._by_module(batch)  # Where this fails, too, it is not the forward's fault.
        self._copies = None
        slower(self._network, reason)
        with lock:  # Until the weights change.
            if self._network in _kept:
                _kept[self._network] = _kept[self._network]._replace(choice=reason, half=None)
        return vectors

    def _by_module(self, batch: TokenBatch) -> Tensor:
        """The module, seen by its hooks."""
        device, weights = batch.ids.device, self._weights
        if self._module is None:
            self._module = select(self._network, device).forward
            if self._compiling is not None and not watched(self._network):
                self._module = torch.compile(self._module, **self._compiling)
        with torch.autocast(device.type, self._dtype) if self._dtype != weights else nullcontext():
            return self._module(batch).to(weights)


class _Kept(NamedTuple):
    """What was chosen, for which settings and weights, and samples of these; it must not refer to the network."""

    choice: Choice
    settings: object
    samples: Samples
    half: HalfPrecision | None

    @property
    def copies(self) -> Fused | CudaGraphs | HalfPrecision | None:
        """What computes from copies of the weights, if anything does."""
        return self.half if isinstance(self.choice, str) else self.choice

    def serves(self, network: nn.Module, settings: object) -> bool:
        """Whether nothing has changed, as far as that can be seen without a wait."""
        unchanged = self.settings == settings and (self.samples.deferred or self.samples.start()())
        return unchanged and (self.half is None or self.half.is_current(network))


_kept: WeakKeyDictionary[nn.Module, _Kept] = WeakKeyDictionary()


def choose(network: Any, dtype: torch.dtype, compiling: Compiling = None) -> Choice:
    """The forward of a network for inference, made at its first use and again after its weights changed."""
    return _keep(network, dtype, compiling).choice


def _keep(network: Any, dtype: torch.dtype, compiling: Compiling) -> _Kept:
    settings = (dtype, compiling, torch.get_num_threads(), state(network))
    kept = _kept.get(network)
    if kept and kept.serves(network, settings):
        return kept
    with lock:
        _kept.pop(network, None)  # Its copies are not needed while others are made.
        samples, choice = Samples(network), fastest(network, dtype, compiling)
        half = halved(network, dtype, compiling) if isinstance(choice, str) else None
        kept = _kept[network] = _Kept(choice, settings, samples, half)
    return kept


def _keep_if_it_fits(network: Any, dtype: torch.dtype, compiling: Compiling) -> _Kept | None:
    """None if there is no memory for copies: the module needs none, and the next call tries again."""
    try:
        return _keep(network, dtype, compiling)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
    return None


def carry_over(network: nn.Module, successor: nn.Module) -> None:
    """Keep what was chosen for a network that is replaced by another one with the same weights."""
    with lock:
        if network in _kept:
            _kept[successor] = _kept[network]


def reasons(network: Any, device: torch.device, dtype: torch.dtype) -> dict[str, str]:
    """Why each backend does not run a network that would be preferred to the one that does, by its name.

    Args:
        network: A Hugging Face model, or a minimal BERT.
        device: Of the network.
        dtype: Of the arithmetic of ``encode``.
    """
    choice = choose(network, dtype)
    fused = choice if isinstance(choice, str) else None
    graphs = choice.failure if isinstance(choice, CudaGraphs) else CudaGraphs.supports(network, device, dtype)
    found = {} if graphs is None else {CudaGraphs.name: graphs}
    for kinds in (BACKENDS["inference"], BACKENDS["training"]):
        for kind in kinds:
            reason = fused if kind is Fused else refusal(kind, network, device, network.dtype)
            if reason is None:
                break
            found[kind.name] = reason
    return found
