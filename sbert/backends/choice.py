"""Which copies of its weights a transformer runs from inside of ``encode``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from sbert.backends.cuda_graphs import CudaGraphs
from sbert.backends.fused import Fused
from sbert.backends.half_precision import HalfPrecision
from sbert.backends.parity import parity, probe, twin
from sbert.backends.select import select
from sbert.backends.self_check import check
from sbert.backends.triton import remedy
from sbert.inputs.arguments import warn
from sbert.storage.files import is_failure, one_line

Compiling = dict[str, Any] | None
# A forward of copies, or the reason why there is none, so that the module runs.
Choice = Fused | CudaGraphs | str


def fastest(network: Any, dtype: torch.dtype, compiling: Compiling = None) -> Choice:
    """The forward of copies of the weights that is the fastest here, or the reason why there is none."""
    device = network.device
    reason = Fused.supports(network, device, dtype)
    if reason is not None:
        return reason
    make = partial(Fused, dtype=dtype, compiling=compiling)
    if device.type == "cuda" and compiling is None:
        found = check(network, dtype)
        if found.parts is None:
            return found.refusals.get(Fused.name) or f"the plain forward is faster on this GPU: {found.why}"
        make = partial(make, parts=_that_run(make, network, found.parts))
    made = parity(make, Fused.how, network, device, dtype)
    if isinstance(made, str) or compiling is not None or CudaGraphs.supports(network, device, dtype) is not None:
        return made
    return CudaGraphs(made)


def _that_run(make: Callable[..., Fused], network: Any, parts: frozenset[str]) -> frozenset[str]:
    """The parts, or none if they fail here: another process, with a compiler for them, may have found them right."""
    failure = _failure(partial(make, parts=parts), network) if parts else None
    if failure is None or _failure(partial(make, parts=frozenset()), network):  # Then it is not their fault.
        return parts
    warn(f"{type(network).__name__} does without its kernels on this GPU: they fail ({failure}); {remedy(failure)}")
    return frozenset()


def _failure(make: Callable[[Any], Fused], network: Any) -> str | None:
    try:
        with torch.no_grad():
            make(twin(network)).forward(probe(network, network.device))
    except Exception as error:
        if not is_failure(error):
            raise
        return one_line(error)
    return None


# Cosine 0.9999 of a row's vectors to those of float32; beyond, autocast keeps the sums of the layers in float32.
_DIFFERENCE_OF_HALF = 0.014


def halved(network: Any, dtype: torch.dtype, compiling: Compiling = None) -> HalfPrecision | None:
    """The module with copies of its weights in half precision, if it can run so and gives the same vectors."""
    device = network.device
    if HalfPrecision.supports(network, device, dtype) is not None:
        return None
    make = partial(HalfPrecision, kind=type(select(network, device)), dtype=dtype, compiling=compiling)
    try:
        made = parity(make, HalfPrecision.how, network, device, dtype, _DIFFERENCE_OF_HALF)
        if isinstance(made, str):
            made = parity(partial(make, autocast=True), HalfPrecision.how, network, device, dtype)
    except torch.OutOfMemoryError:  # The module itself needs no second copy of its weights.
        return None
    return None if isinstance(made, str) else made
