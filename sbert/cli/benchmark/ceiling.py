"""The maximum speed of the machine in arithmetic and copying, measured without a model."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import nn
from torch.utils.benchmark import Timer

from sbert.backends.linear import Linear


def ceilings(device: torch.device, threads: int) -> dict[str, float]:
    """Operations per second of the fastest matrix product, and on a GPU bytes per second of a large copy.

    A product of (n, k) by (k, m) has 2 n k m operations. On a CPU the sizes are those of a batch in BERT, and the
    weights are tried both plain and reordered; on a GPU the sizes are large.
    """
    found: dict[str, float] = {}
    rows, width, out = (2048, 768, 3072) if device.type == "cpu" else (8192, 8192, 8192)
    for dtype in (torch.float32, torch.bfloat16):
        layer = nn.Linear(width, out).to(device, dtype).requires_grad_(False)
        x = torch.randn(rows, width, device=device).to(dtype)
        best = _seconds(partial(layer, x), threads)
        if device.type == "cpu":
            best = min(best, _reordered(layer, x, threads))
        found[str(dtype).removeprefix("torch.")] = 2 * rows * width * out / best
    if device.type == "cuda":
        data = torch.empty(1 << 28, device=device)
        found["copy"] = 2 * data.nbytes / _seconds(data.clone, threads)
        del layer, x, data
        torch.cuda.empty_cache()  # The contenders need the memory.
    return found


def _reordered(layer: nn.Linear, x: torch.Tensor, threads: int) -> float:
    """Seconds per product with reordered weights; infinite if this CPU or this torch cannot reorder them."""
    try:
        linear = Linear([layer], x.dtype, True)
        return _seconds(partial(linear, x), threads)
    except (RuntimeError, AttributeError, NotImplementedError):
        return math.inf


def _seconds(run: Callable[[], object], threads: int) -> float:
    """Seconds of the fastest call; work on a GPU is waited for."""
    return min(Timer("run()", globals={"run": run}, num_threads=threads).blocked_autorange(min_run_time=0.5).times)
