"""Products of matrices: by a table of processors, those of oneDNN, with reordered weights in inference, or F.linear."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sbert.backends.architectures import GELU, Pointwise

Product = Callable[..., Tensor]


def linear(
    layers: Sequence[nn.Linear],
    dtype: torch.dtype,
    reordered: bool,
    activation: Pointwise | None = None,
    combine: Literal["add", "mul"] | None = None,
    rows: slice = slice(None),
) -> Product:
    """The function x W' + b from copies of weights, followed by an activation, or combined with another tensor.

    With oneDNN, all of it is one call. Its arguments have no names: they would take a single sentence longer.

    Args:
        layers: Linear layers with the same input, whose outputs stand side by side; the weights of a single one in
            this dtype are not copied, unless they are reordered.
        dtype: Dtype of the computation.
        reordered: Whether to use a copy of the weights in the layout of oneDNN.
        activation: Applied to the output.
        combine: How the output is combined with a second argument of the function, if it takes one.
        rows: Which of the outputs of each layer are computed.

    Shape:
        Input: (tokens, in). Second argument, output: (tokens, the sum of the layers' outs, or as many as ``rows``).

    Example:
        >>> import torch
        >>> from torch import nn
        >>> from sbert.backends.linear import linear
        >>> double = linear([nn.Linear(1, 1, bias=False)], torch.float32, reordered=False, combine="add")
        >>> double(torch.zeros(2, 1), torch.ones(2, 1))
        tensor([[1.],
                [1.]])
    """
    weight = _side_by_side([layer.weight for layer in layers], dtype, rows)
    biases = [layer.weight.new_zeros(len(layer.weight)) if layer.bias is None else layer.bias for layer in layers]
    has_bias = any(layer.bias is not None for layer in layers)
    bias = _side_by_side(biases, dtype, rows) if has_bias else None
    if reordered:
        # Laid out for 1,024 tokens; any number works.
        weight = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), 1024)
        binary, unary = torch.ops.mkldnn._linear_pointwise.binary, torch.ops.mkldnn._linear_pointwise.default
        if combine is not None:
            return lambda x, other: binary(x, other, weight, bias, combine)
        attribute, algorithm = activation.pointwise if activation else ("none", "")
        return lambda x: unary(x, weight, bias, attribute, [], algorithm)
    product = partial(F.linear, weight=weight, bias=bias)
    if combine is not None:
        in_place = Tensor.add_ if combine == "add" else Tensor.mul_
        return lambda x, other: in_place(product(x), other)
    return product if activation is None else lambda x: activation.apply(product(x))


def _side_by_side(tensors: Sequence[Tensor], dtype: torch.dtype, rows: slice) -> Tensor:
    """The rows of all tensors in a dtype; those of a single one that has this dtype are no copy."""
    parts = [tensor.detach()[rows].to(dtype) for tensor in tensors]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


class Products(NamedTuple):
    """The fastest products of a kind of processor, as they were measured there.

    Args:
        reordered_below: Number of tokens from which ``F.linear`` is faster than weights in the layout of oneDNN.
        by_onednn: Whether oneDNN is faster than ``F.linear`` for two matrices of float32, none of which was reordered,
            as in training and search.
    """

    reordered_below: float
    by_onednn: bool


# By vendor, and instruction set as torch names it. GFLOP/s are those of MiniLM's products in float32, on two cores.
_PRODUCTS = {
    # Zen 4, for 16, 128, 256, 2,048 tokens: oneDNN with GELU 117, 194, 191, 204; F.linear and F.gelu 57, 116, 137, 169.
    # Two matrices: 0.77 of F.linear's time for 100 queries and 16,384 vectors of 384 dims, 0.95 for 1,000 queries.
    ("AuthenticAMD", "AVX512"): Products(math.inf, True),
    # Zen 3, for 16, 64, 256, 2,048 tokens: oneDNN 69, 117, 141, 143; F.linear 43, 88, 132, 153. For 2,048 tokens, the
    # first product of the feed-forward network takes 26.3 ms with oneDNN's GELU, 18.9 ms with F.linear and F.gelu.
    # Two matrices: 0.70 of F.linear's time for 100 queries and 1,000,000 vectors of 384 dims.
    ("AuthenticAMD", "AVX2"): Products(128, True),
    # Xeon with AMX: oneDNN reaches 89 % of the peak in float32.
    ("GenuineIntel", "AVX512"): Products(math.inf, False),
}


@cache
def products() -> Products:
    """The line of the table for this CPU; plain products for one that was not measured."""
    path, kind = Path("/proc/cpuinfo"), torch.backends.cpu.get_cpu_capability()
    about = path.read_bytes() if os.access(path, os.R_OK) else platform.processor().encode()  # The latter on Windows.
    lines = [line for (vendor, name), line in _PRODUCTS.items() if vendor.encode() in about and name == kind]
    return lines[0] if lines and torch._C._has_mkldnn else Products(0, False)


def matrix_product(dtype: torch.dtype, device_type: str = "cpu") -> Product:
    """The function x W' + b of x, W and b or None, without a graph, of matrices that may be transposed views."""
    if device_type != "cpu" or dtype != torch.float32 or not products().by_onednn:
        return F.linear
    return partial(torch.ops.mkldnn._linear_pointwise.default, attr="none", scalars=[], algorithm="")


@cache
def choose_weight_layout(dtype: torch.dtype) -> tuple[float, str]:
    """The number of tokens below which weights in the layout of oneDNN are used on this CPU, and the reason.

    The operations are torch's own but not public, so that any of them may be missing.

    Args:
        dtype: Of the computation.
    """
    if not (few := products().reordered_below):
        return 0, "F.linear, since oneDNN was not measured on this kind of CPU"
    try:
        if dtype == torch.bfloat16 and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
            return 0, "this CPU multiplies no bfloat16"
        linear([nn.Linear(16, 32, dtype=dtype)], dtype, True, GELU)(torch.zeros(16, 16, dtype=dtype))
    except (RuntimeError, AttributeError, NotImplementedError) as error:
        return 0, f"oneDNN's reordered weights do not work here ({str(error).splitlines()[0]})"
    return few, "oneDNN with reordered weights" + (f" below {few} tokens, else F.linear" if few < math.inf else "")
