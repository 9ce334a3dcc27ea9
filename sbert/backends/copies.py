"""The fused forward of a network, made of copies of its weights and kept until these change."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import nn

from sbert.backends.cuda_graphs import CudaGraphs
from sbert.backends.fused import Fused
from sbert.backends.parity import parity
from sbert.backends.weight_changes import Samples, state
from sbert.storage.processes import Lock

# A forward of copies, or the reason why there is none, so that the module runs.
Choice = Fused | CudaGraphs | str

lock = Lock()


class Kept(NamedTuple):
    """What was chosen, for which settings and weights, and samples of these; it must not refer to the network."""

    choice: Choice
    settings: object
    samples: Samples


_kept: WeakKeyDictionary[nn.Module, Kept] = WeakKeyDictionary()


def choose(network: Any, dtype: torch.dtype, compiling: dict[str, Any] | None = None) -> Choice:
    """The forward of a network for inference, made at its first use and again after its weights changed."""
    return keep(network, dtype, compiling).choice


def keep(network: Any, dtype: torch.dtype, compiling: dict[str, Any] | None) -> Kept:
    """The same, with samples of the weights: on a GPU, these have not been looked at."""
    settings = (dtype, compiling, torch.get_num_threads(), state(network))
    kept = _kept.get(network)
    if kept and kept.settings == settings and (kept.samples.deferred or kept.samples.start()()):
        return kept
    with lock:
        samples = Samples(network)
        kept = _kept[network] = Kept(_made(network, dtype, compiling), settings, samples)
    return kept


def _made(network: Any, dtype: torch.dtype, compiling: dict[str, Any] | None) -> Choice:
    device = network.device
    reason = Fused.supports(network, device, dtype)
    if reason is not None:
        return reason
    made = parity(partial(Fused, dtype=dtype, compiling=compiling), Fused.how, network, device, dtype)
    if isinstance(made, str) or compiling is not None or CudaGraphs.supports(network, device, dtype) is not None:
        return made
    return CudaGraphs(made)


def forget(network: nn.Module) -> None:
    """Make the forward anew at the next use."""
    _kept.pop(network, None)


def dismiss(network: nn.Module, reason: str) -> None:
    """Have the module run until the weights change."""
    with lock:
        if network in _kept:
            _kept[network] = _kept[network]._replace(choice=reason)


def carry_over(network: nn.Module, successor: nn.Module) -> None:
    """Keep what was chosen for a network that is replaced by another one with the same weights."""
    with lock:
        if network in _kept:
            _kept[successor] = _kept[network]
