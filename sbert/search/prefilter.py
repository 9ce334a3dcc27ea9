"""The fastest matrix product of this machine, in few bits, and how far it is off."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sbert.backends.linear import Linear

Product = Callable[[Tensor], Tensor]


@cache
def fastest(threads: int) -> tuple[torch.dtype, bool]:
    """The dtype of the fastest product on this CPU with so many threads, and whether oneDNN is to reorder the weights.

    Processors with AMX multiply bfloat16 ten times as fast as float32, others not at all; MKL and oneDNN differ by
    two on some. So all are timed, with the conversion that bfloat16 costs.
    """
    left, right = torch.full((1024, 384), 0.1), torch.full((128, 384), 0.1)
    seconds: dict[tuple[torch.dtype, bool], float] = {}
    with torch.autocast("cpu", enabled=False):
        for dtype, packed in ((torch.float32, False), (torch.float32, True), (torch.bfloat16, True)):
            try:
                if dtype == torch.bfloat16 and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
                    continue
                multiply = _multiplied(right.to(dtype), packed)
                seconds[dtype, packed] = min(_seconds(multiply, left, dtype) for _ in range(5))
            except (RuntimeError, AttributeError, NotImplementedError):
                continue
    return min(seconds, key=lambda way: seconds[way])


def _seconds(multiply: Product, left: Tensor, dtype: torch.dtype) -> float:
    start = time.perf_counter()
    multiply(left.to(dtype))
    return time.perf_counter() - start


def _multiplied(weights: Tensor, packed: bool) -> Product:
    layer = nn.Linear(weights.shape[1], len(weights), bias=False, device="meta")
    layer.weight = nn.Parameter(weights, requires_grad=False)
    return Linear([layer], weights.dtype, packed)


def rough_dtype(device: torch.device) -> torch.dtype:
    """In which vectors are multiplied to see which are worth an exact comparison."""
    return fastest(torch.get_num_threads())[0] if device.type == "cpu" else torch.float32


def product(weights: Tensor) -> Product:
    """What multiplies rows with the weights: (rows, dim) and (weights, dim) make (rows, weights).

    Not in fewer bits than theirs, whatever the caller's autocast, of which the bound knows nothing.
    """
    kind = weights.device.type
    with torch.autocast(kind, enabled=False):
        packed = kind == "cpu" and fastest(torch.get_num_threads()) == (weights.dtype, True)
        multiply: Product = _multiplied(weights, True) if packed else lambda rows: F.linear(rows, weights)

    def multiplied(rows: Tensor) -> Tensor:
        with torch.autocast(kind, enabled=False):
            return multiply(rows)

    return multiplied


def unit(dtype: torch.dtype, device: torch.device) -> float:
    """How much a number may change, as a part of it, before it is multiplied."""
    try:
        exact = torch.get_float32_matmul_precision() == "highest"
    except RuntimeError:  # It was set as torch.backends.….fp32_precision, of which this older function knows nothing.
        exact = False
    if dtype == torch.bfloat16 or not exact:
        return 2.0**-8
    # A GPU may take float32 as TF32, with ten bits.
    return 2.0**-24 if device.type == "cpu" else 2.0**-10
