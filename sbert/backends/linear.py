"""Linear layers for inference, in the weight layout that is fastest on this CPU."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sbert.backends.activations import GELU, Activation

# Number of tokens for which oneDNN lays out weights; any number works.
_EXPECTED_TOKENS = 1024


class Linear:
    """x W' + b, followed by an activation or the addition of a residual, in one call with oneDNN.

    cuBLAS has ReLU and the tanh form of GELU at the end of a product. In bfloat16 that form is used for GELU, too: it
    changes the vectors of MiniLM by 1.1e-3 of their norm, and the rounding of bfloat16 by 9.3e-3.

    Args:
        layers: Linear layers with the same input; their outputs are concatenated.
        dtype: Dtype of the computation.
        packed: Whether to use a copy of the weights in the layout of oneDNN.
        epilogue: Whether an activation is the end of the product, as cuBLAS computes it.

    Shape:
        Input: (tokens, in). Output: (tokens, the sum of the layers' outs).
    """

    def __init__(self, layers: Sequence[nn.Linear], dtype: torch.dtype, packed: bool, epilogue: bool = False) -> None:
        weights = [layer.weight.detach().to(dtype) for layer in layers]
        weight = weights[0] if len(weights) == 1 else torch.cat(weights)
        biases = [layer.weight.new_zeros(len(layer.weight)) if layer.bias is None else layer.bias for layer in layers]
        self.bias: Tensor = torch.cat([bias.detach().to(dtype) for bias in biases])
        self.packed: bool = packed
        self.epilogue: bool = epilogue
        self.weight: Tensor = _ops()._reorder_linear_weight(weight.contiguous(), _EXPECTED_TOKENS) if packed else weight
        if packed:
            self._pointwise: Callable[..., Tensor] = _ops()._linear_pointwise.default
            self._binary: Callable[..., Tensor] = _ops()._linear_pointwise.binary

    def __call__(self, x: Tensor, activation: Activation | None = None, residual: Tensor | None = None) -> Tensor:
        if self.packed:
            if residual is not None:
                return self._binary(x, residual, self.weight, self.bias, "add")
            attribute, algorithm = activation.pointwise if activation else ("none", "")
            return self._pointwise(x, self.weight, self.bias, attribute, [], algorithm)
        if activation and self.epilogue:
            gelu = activation.pointwise[0] == "gelu"
            return torch._addmm_activation(self.bias, x, self.weight.t(), use_gelu=gelu)
        y = F.linear(x, self.weight, self.bias)
        if activation:
            y = activation.apply(y)
        return y if residual is None else y.add_(residual)

    def product(self, x: Tensor) -> Tensor:
        """The product x W', without the bias."""
        return F.linear(x, self.weight)


def rounded(tokens: int) -> int:
    """The next of at most 16 numbers per power of two.

    oneDNN compiles for each number of tokens, which takes as long as a small batch and memory that is not released.
    """
    return tokens + -tokens % (1 << max(0, tokens.bit_length() - 5))


def uses_onednn(dtype: torch.dtype) -> bool:
    """Whether ``product`` calls oneDNN: in float32 on processors of AMD, where MKL takes twice the time.

    It follows from the processor, not from a measurement, so that a run that is resumed computes the same bits.
    """
    return dtype == torch.float32 and _processor() == "AuthenticAMD" and torch._C._has_mkldnn


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """The product x W' + b, without a graph, of matrices that may be transposed views. Shape: (rows, outputs)."""
    if uses_onednn(x.dtype):
        result: Tensor = _ops()._linear_pointwise(x, weight, bias, "none", [], "")
        return result
    return x @ weight.t() if bias is None else torch.addmm(bias, x, weight.t())


@cache
def _processor() -> str:
    """The vendor's name as the processor gives it; empty if it is not known."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    return next((line.split(":")[1].strip() for line in lines if line.startswith("vendor_id")), "")


def _ops() -> Any:
    return torch.ops.mkldnn


@cache
def packing(dtype: torch.dtype, threads: int) -> tuple[bool, str]:
    """Whether weights in the layout of oneDNN are faster on this CPU with this number of threads, and the reason.

    The better of the two depends on the processor and on the libraries that torch was built with, so both are
    timed, at the sizes of a sentence and of a batch. The operations are torch's own but not public, so that any of
    them may be missing.
    """
    if dtype == torch.bfloat16 and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return False, "this CPU multiplies no bfloat16"
    layer = nn.Linear(384, 1536).to(dtype).requires_grad_(False)
    try:
        plain, packed = Linear([layer], dtype, False), Linear([layer], dtype, True)
        ratio = 1.0
        for tokens in (16, _EXPECTED_TOKENS):
            x = torch.zeros(tokens, 384, dtype=dtype)
            ratio *= _gain(plain, packed, x)
    except (RuntimeError, AttributeError, NotImplementedError) as error:
        return False, f"oneDNN's reordered weights do not work here ({str(error).splitlines()[0]})"
    ratio **= 0.5
    if ratio > 1.05:
        return True, f"oneDNN with reordered weights is {ratio:.2f} times as fast as F.linear with {threads} threads"
    return False, f"F.linear is no slower than oneDNN with reordered weights ({ratio:.2f}) with {threads} threads"


def _gain(plain: Linear, packed: Linear, x: Tensor) -> float:
    """Ratio of the best times of several short runs, taken in turns because the speed of a machine drifts."""
    times: list[tuple[float, float]] = []
    # Short, because the first sentence waits for it; several runs, because the first is cold.
    while len(times) < 3 or (len(times) < 8 and sum(map(sum, times)) < 0.04):
        times.append((_seconds(plain, x), _seconds(packed, x)))
    return min(first for first, _ in times) / min(second for _, second in times)


def _seconds(linear: Linear, x: Tensor) -> float:
    start = time.perf_counter()
    linear(x, activation=GELU)
    return time.perf_counter() - start
