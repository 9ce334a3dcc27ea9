"""Optional kernels of the fused forward on GPUs; without them, torch's own operations compute the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib.util import find_spec

import torch

from sbert.backends.activations import GELU
from sbert.backends.architectures import Backbone

_DTYPES = (torch.bfloat16, torch.float16, torch.float32)
# The largest head, and the widest layer norm, whose row fits into one program.
_HEAD, _WIDTH = 128, 8192


@cache
def _installed() -> bool:
    return find_spec("triton") is not None


def refusal(device: torch.device, dtype: torch.dtype) -> str | None:
    """Why Triton's kernels cannot run on a device; None if they can. They are not compiled before their first use."""
    if device.type != "cuda" or torch.version.cuda is None:
        return "it runs on NVIDIA GPUs only"
    if torch.cuda.get_device_capability(device) < (8, 0):
        return "it is for GPUs of capability 8.0 and higher"
    if not _installed():
        return "triton is not installed"
    return None if dtype in _DTYPES else f"it does not compute in {dtype}"


def remedy(failure: str) -> str:
    """What to do about a kernel that fails."""
    return "install gcc, or set CC" if "C compiler" in failure else "please report it"


def _norm(device: torch.device, dtype: torch.dtype, backbone: Backbone) -> str | None:
    width = max(backbone.norm.normalized_shape[0], *(layer.norm.normalized_shape[0] for layer in backbone.layers))
    return refusal(device, dtype) or (f"its layers are too wide ({width} dimensions)" if width > _WIDTH else None)


def _attention(device: torch.device, dtype: torch.dtype, backbone: Backbone) -> str | None:
    if dtype == torch.float32:
        return "its products take half precision"
    dim = backbone.head_dim
    return refusal(device, dtype) or (f"its heads are too large ({dim} dimensions)" if dim > _HEAD else None)


def _activation(device: torch.device, dtype: torch.dtype, backbone: Backbone) -> str | None:
    if device.type != "cuda":
        return "it is for CUDA devices"
    # The tanh form differs from GELU by less than bfloat16 rounds, but not float16.
    return f"in {dtype} GELU is not its tanh form" if backbone.activation is GELU and dtype != torch.bfloat16 else None


# Each part by its name, with the function that says why it cannot be used; it returns None if it can.
PARTS: Mapping[str, Callable[[torch.device, torch.dtype, Backbone], str | None]] = {
    "embed_norm": _norm,
    "short_attention": _attention,
    "add_norm": _norm,
    "activation": _activation,
}


def supported(device: torch.device, dtype: torch.dtype, backbone: Backbone) -> frozenset[str]:
    """Names of the parts that a model can use on a device."""
    return frozenset(name for name, refuses in PARTS.items() if refuses(device, dtype, backbone) is None)
