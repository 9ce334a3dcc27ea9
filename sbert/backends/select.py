"""Which backend runs a transformer: the first of a list that supports it and gives the vectors of the padded module."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Protocol
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from sbert.backends.bert.model import BertModel
from sbert.backends.cpu_training import CpuTraining
from sbert.backends.fused import Fused
from sbert.backends.packed import Packed
from sbert.backends.padded import Padded
from sbert.backends.parity import parity
from sbert.batch import TokenBatch
from sbert.storage.processes import Lock

Mode = Literal["inference", "training", "module"]


class Backend(Protocol):
    """A way to run a transformer, made for one network.

    ``how`` says it in words, as in "without padding its vectors differ".
    """

    name: ClassVar[str]
    how: ClassVar[str]

    def __init__(self, network: Any) -> None: ...

    @staticmethod
    def supports(network: Any, device: torch.device, dtype: torch.dtype) -> str | None:
        """None, or the reason in words why it cannot run a network, as far as that can be seen without trying."""
        ...

    def forward(self, batch: TokenBatch) -> Tensor:
        """Vectors of all tokens from the last layer. Shape: (tokens, dim)."""
        ...


# In order of preference. ``inference`` is a call of ``encode``: no weight changes meanwhile, so they may be copied.
# ``training`` is a forward with a gradient or in training mode, ``module`` any other.
BACKENDS: dict[Mode, tuple[type[Backend], ...]] = {
    "inference": (Fused, Packed, Padded),  # CudaGraphs wraps Fused where it can.
    "training": (CpuTraining, Packed, Padded),
    "module": (Packed, Padded),
}

lock: Lock = Lock()
# For each network, by backend, kind of device and dtype: why it does not run as the padded module does.
_compared: WeakKeyDictionary[nn.Module, dict[tuple[type[Backend], str, torch.dtype], str | None]] = WeakKeyDictionary()


def select(network: Any, device: torch.device) -> Backend:
    """The backend that runs a network in its present state, with the weights that it has at each forward."""
    mode: Mode = "training" if network.training or torch.is_grad_enabled() else "module"
    return next(kind(network) for kind in BACKENDS[mode] if refusal(kind, network, device, network.dtype) is None)


def refusal(kind: type[Backend], network: Any, device: torch.device, dtype: torch.dtype) -> str | None:
    """Why a backend does not run a network; it is compared with the padded module before its first use."""
    reason = kind.supports(network, device, dtype)
    if reason is not None or kind is Padded or torch.compiler.is_compiling():
        return reason
    key = kind, device.type, dtype
    known = _compared.get(network)
    if known is None or key not in known:
        with lock:
            known = _compared.setdefault(network, {})
            if key not in known:
                made = parity(kind, kind.how, network, device, dtype)
                known[key] = made if isinstance(made, str) else None
    return known[key]


def padding_reason(network: Any) -> str | None:
    """Why batches of a network are padded, if they are; the first batch may show a reason that was not known before."""
    if isinstance(network, BertModel):
        return None
    tried = [reason for (kind, _, _), reason in _compared.get(network, {}).items() if kind is Packed and reason]
    return Packed.supports(network, network.device, network.dtype) or next(iter(tried), None)
