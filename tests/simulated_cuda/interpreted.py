"""Kernels in Triton's language on the simulated device: Triton's interpreter runs them, on the memory of the device.

Each launch is one operation of the device, which counts it, knows its stream, and captures and replays it::

    with simulated((9, 0)) as gpu, interpreted():
        SentenceEncoder(device="cuda").encode(texts)
        assert gpu.count("kernel add_norm") == 2 * layers
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from importlib.util import find_spec
from typing import Any

import pytest
import torch

from sbert.backends.triton import launches

needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")
NAMES = ("add_norm", "embed_norm", "short_attention", "mean_rows")
_calls: list[tuple[tuple[int, ...], tuple[Any, ...], dict[str, Any]]] = []


@cache
def _round_as_gpus() -> None:
    """The interpreter has no products of bfloat16, and cuts it off where GPUs round."""
    import numpy as np
    import triton.language as tl
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    cast, dot = InterpreterBuilder.cast_impl, InterpreterBuilder.create_dot

    def rounding(self: Any, handle: Any, to: Any) -> Any:
        if (handle.dtype.scalar, to.scalar) != (tl.float32, tl.bfloat16):
            return cast(self, handle, to)
        half = torch.from_numpy(np.array(handle.data)).bfloat16()
        return TensorHandle(half.view(torch.int16).numpy().view(np.uint16), tl.bfloat16)

    def wide(self: Any, handle: Any) -> Any:
        return cast(self, handle, tl.float32) if handle.dtype.scalar == tl.bfloat16 else handle

    InterpreterBuilder.cast_impl = rounding
    InterpreterBuilder.create_dot = lambda self, a, b, *more: dot(self, wide(self, a), wide(self, b), *more)


def _run(name: str, call: int, out: torch.Tensor, others: list[torch.Tensor]) -> torch.Tensor:
    """A launch on the host, whose memory is that of the device."""
    from sbert.backends.triton import kernels

    grid, given, constants = _calls[call]
    tensors = iter(others)
    arguments = [next(tensors) if x == "tensor" else out if x == "out" else x for x in given]
    getattr(kernels, name)[grid](*arguments, **constants)
    return out


@cache
def _operations() -> Any:
    _round_as_gpus()
    library = torch.library.Library("simulated_triton", "DEF")
    for name in NAMES:
        library.define(f"{name}(int call, Tensor(a!) out, Tensor[] others) -> Tensor(a!)")
        library.impl(name, partial(_run, name), "CPU")
    return library, torch.ops.simulated_triton


def launch(name: str, grid: tuple[int, ...], warps: int, device: torch.device, *given: Any, **constants: Any) -> None:
    from sbert.backends.triton import kernels

    assert warps in (1, 2, 4, 8)
    names = list(inspect.signature(getattr(kernels, name).fn).parameters)
    out = given[names.index("out")]
    others = [x for x in given if isinstance(x, torch.Tensor) and x is not out]
    form = tuple("out" if x is out else "tensor" if isinstance(x, torch.Tensor) else x for x in given)
    _calls.append((grid, form, constants))
    getattr(_operations()[1], name)(len(_calls) - 1, out, others)


@contextmanager
def interpreted(run: Callable[..., None] = launch) -> Iterator[None]:
    """Within ``simulated``: the device has Triton."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launches, "launch", run)
        patch.setattr(torch.version, "cuda", "12.8")
        yield
