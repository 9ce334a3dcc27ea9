"""The maximum speed of the machine in arithmetic and copying, measured without a model."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import torch
from torch import nn

from sbert.backends.linear import Linear


def ceilings(device: torch.device, threads: int) -> dict[str, float]:
    """Operations per second of the fastest matrix product, and on a GPU bytes per second of a large copy.

    A product of (n, k) by (k, m) has 2 n k m operations. On a CPU the sizes are those of a batch in BERT, and the
    weights are tried both plain and reordered; on a GPU the sizes are large.
    """
    torch.set_num_threads(threads)
    found: dict[str, float] = {}
    rows, width, out = (2048, 768, 3072) if device.type == "cpu" else (8192, 8192, 8192)
    for dtype in (torch.float32, torch.bfloat16):
        layer = nn.Linear(width, out).to(device, dtype).requires_grad_(False)
        x = torch.randn(rows, width, device=device).to(dtype)
        ways = (False, True) if device.type == "cpu" else (False,)
        best = min(_product(layer, x, packed, device) for packed in ways)
        found[str(dtype).removeprefix("torch.")] = 2 * rows * width * out / best
    if device.type == "cuda":
        data = torch.empty(1 << 28, device=device)
        found["copy"] = 2 * data.nbytes / _seconds(data.clone, device)
        del layer, x, data
        torch.cuda.empty_cache()  # The contenders need the memory.
    return found


def _product(layer: nn.Linear, x: torch.Tensor, packed: bool, device: torch.device) -> float:
    """Seconds per product; infinite if this CPU or this torch cannot reorder weights."""
    try:
        linear = Linear([layer], x.dtype, packed)
        return _seconds(lambda: linear(x), device)
    except (RuntimeError, AttributeError, NotImplementedError):
        if packed:
            return math.inf
        raise


def _seconds(run: Callable[[], object], device: torch.device) -> float:
    times = []
    for _ in range(12):
        start = time.perf_counter()
        run()
        if device.type != "cpu":  # On other devices the call returns before the work is done.
            torch.accelerator.synchronize(device)
        times.append(time.perf_counter() - start)
        if sum(times) > 5:  # A CPU that emulates bfloat16 is slow.
            break
    return min(times)
