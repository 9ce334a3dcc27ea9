"""The fastest matrix product of this machine, which may be a low-precision one, and its rounding error."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache, partial
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sbert.backends.linear import linear

Product = Callable[[Tensor], Tensor]


@cache
def fastest(threads: int) -> tuple[torch.dtype, bool]:
    """The dtype of the fastest matrix product on this CPU, and whether oneDNN should repack the weights for it.

    This is measured: processors with AMX multiply bfloat16 ten times as fast as float32, others have no fast bfloat16,
    and MKL and oneDNN differ by a factor of two on some. The time includes the conversion to bfloat16.

    Args:
        threads: Number of threads of torch; a result is cached for each.
    """
    left, right = torch.full((1024, 384), 0.1), torch.full((128, 384), 0.1)
    seconds: dict[tuple[torch.dtype, bool], float] = {}
    with torch.autocast("cpu", enabled=False):
        for dtype, packed in ((torch.float32, False), (torch.float32, True), (torch.bfloat16, True)):
            try:
                if dtype == torch.bfloat16 and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
                    continue
                multiply = _linear(right.to(dtype), packed)
                seconds[dtype, packed] = min(_seconds(multiply, left, dtype) for _ in range(5))
            except (RuntimeError, AttributeError, NotImplementedError):
                continue
    return min(seconds, key=lambda way: seconds[way])


def _seconds(multiply: Product, left: Tensor, dtype: torch.dtype) -> float:
    start = time.perf_counter()
    multiply(left.to(dtype))
    return time.perf_counter() - start


def _linear(weights: Tensor, packed: bool) -> Product:
    layer = nn.Linear(weights.shape[1], len(weights), bias=False, device="meta")
    layer.weight = nn.Parameter(weights, requires_grad=False)
    return linear([layer], weights.dtype, packed)


def product_dtype(device: torch.device) -> torch.dtype:
    """The dtype of the fastest matrix product on a device; on a GPU, that of its tensor cores."""
    if device.type == "cpu":
        return fastest(torch.get_num_threads())[0]
    if device.type != "cuda" or torch.version.hip:  # ROCm has no product of half precision with sums in float32.
        return torch.float32
    capability = torch.cuda.get_device_capability(device)
    if capability >= (8, 0):
        return torch.bfloat16
    # The caller may have asked for sums in float16, whose error ``unit_roundoff`` does not bound.
    sums = torch.backends.cuda.matmul.allow_fp16_accumulation
    return torch.float16 if capability >= (7, 0) and not sums else torch.float32


def safe_lengths(dtype: torch.dtype) -> tuple[float, float]:
    """The lengths of vectors between which a product neither overflows nor loses more than ``unit_roundoff``."""
    return (2.0**-4, 2.0**15) if dtype == torch.float16 else (1e-14, 1e15)


def product(weights: Tensor) -> Product:
    """A function that multiplies rows by the transposed weights in the dtype of the weights.

    On a GPU the sums of half precision are returned in float32: it might otherwise round partial sums, too. Autocast is
    disabled inside: it would lower the precision below that of ``unit_roundoff``.

    Shape:
        weights: (queries, dim). The function maps (rows, dim) to (rows, queries).
    """
    kind, multiply = weights.device.type, cast(Product, lambda rows: F.linear(rows, weights))
    with torch.autocast(kind, enabled=False):
        if kind == "cpu" and fastest(torch.get_num_threads()) == (weights.dtype, True):
            multiply = _linear(weights, True)
        elif kind != "cpu" and weights.dtype != torch.float32:
            multiply = partial(torch.mm, mat2=weights.T, out_dtype=torch.float32)

    def multiply_without_autocast(rows: Tensor) -> Tensor:
        with torch.autocast(kind, enabled=False):
            return multiply(rows)

    return multiply_without_autocast


def unit_roundoff(dtype: torch.dtype, device: torch.device) -> float:
    """The maximum relative error of an input of a matrix product, by its conversion and by the product itself."""
    try:
        exact = torch.get_float32_matmul_precision() == "highest"
    except RuntimeError:  # It was set by the newer torch.backends.….fp32_precision, which this function cannot read.
        exact = False
    if dtype == torch.bfloat16 or not exact:
        return 2.0**-8
    if dtype == torch.float16:  # Half of it is for values below 2**-14, up to a dim of 2**20.
        return 2.0**-10
    # A GPU may compute float32 products in TF32, which has a mantissa of 10 bits.
    return 2.0**-24 if device.type == "cpu" else 2.0**-10
