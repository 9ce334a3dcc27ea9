"""A Hugging Face module in half precision on a GPU, with copies of its weights instead of casts at every batch."""

from __future__ import annotations

from types import MethodType
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from sbert.backends.backend import Backend, Compiling
from sbert.backends.network import has_hooks, snapshot, walk
from sbert.backends.parity import copy_without_hooks
from sbert.batch import TokenBatch


class HalfPrecision(Backend):
    """A copy of the module with weights in half precision.

    Without autocast, all arithmetic is in half precision, except what the module itself does in float32, such as the
    sums of norms. With it, only the weights of linear layers are converted: the vectors are those of the module under
    autocast, which keeps the sums of its layers in float32. Nothing here refers to the network, which can be freed.

    Args:
        network: A Hugging Face model on a GPU, in float32, which is not modified.
        kind: The backend that runs the copy.
        dtype: float16 or bfloat16.
        compiling: Options of ``torch.compile``; None to run without it.
        autocast: Whether activations are cast by autocast.

    Shape:
        Input: TokenBatch of (tokens,) ids. Output: (tokens, dim).
    """

    name: ClassVar[str] = "half_precision"
    how: ClassVar[str] = "with weights in half precision"

    def __init__(
        self, network: Any, kind: type[Backend], dtype: torch.dtype, compiling: Compiling = None, autocast: bool = False
    ) -> None:
        self._dtype, self._autocast = dtype, autocast
        run = kind(cast_weights(network, dtype, only_linear=autocast)).forward
        self._run = run if compiling is None else torch.compile(run, **compiling)

    @staticmethod
    def supports(network: Any, device: torch.device, dtype: torch.dtype) -> str | None:
        """Why autocast is needed, as far as that can be seen without trying; None if it is not."""
        if device.type != "cuda" or dtype == network.dtype:
            return "the arithmetic has the dtype of the weights"
        if has_hooks(network):
            return "forward hooks are registered"
        # A method of the module, or a function in the place of its forward, would run with the weights of the module.
        bound = any(isinstance(value, MethodType) for module in walk(network) for value in vars(module).values())
        return "parts of it were replaced" if bound or snapshot(network).has_own_forward else None

    def forward(self, batch: TokenBatch) -> Tensor:
        """Vectors of all tokens from the last layer. Shape: (tokens, dim)."""
        with torch.autocast(batch.ids.device.type, self._dtype, enabled=self._autocast):
            return self._run(batch)


def cast_weights(network: Any, dtype: torch.dtype, only_linear: bool = False) -> Any:
    """A copy of a network with weights of a dtype; buffers, such as rotary frequencies, keep theirs."""
    copied = copy_without_hooks(network)
    in_float32 = set(getattr(network, "_keep_in_fp32_modules_strict", None) or ())
    if dtype == torch.float16:  # For T5, whose feed-forward networks may exceed its range.
        in_float32 |= set(getattr(network, "_keep_in_fp32_modules", None) or ())
    casts: dict[nn.Parameter, nn.Parameter] = {}  # Modules may share a weight.
    for name, module in copied.named_modules():
        if only_linear and not isinstance(module, nn.Linear):
            continue
        weights = dict(module._parameters)
        for key, weight in weights.items():
            if weight is not None and weight.is_floating_point() and not in_float32 & {*name.split("."), key}:
                weights[key] = casts.setdefault(weight, nn.Parameter(weight.detach().to(dtype), False))
        module._parameters = weights
    return copied
