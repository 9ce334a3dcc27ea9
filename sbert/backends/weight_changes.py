"""A few numbers of each weight, by which changes are seen that leave no other trace."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

# Numbers of each weight, at most of a matrix.
_FEW = 16


class Samples:
    """A few numbers of each weight of a model, at even distances, as they were and as they are.

    Weights that are edited through ``.data`` (merged adapters, moving averages) count no version. Whatever changes a
    weight as a whole is seen, and so is a change of more than a sixteenth of a matrix's rows that follow each other;
    one of fewer rows may not be.

    Args:
        model: On one device.
    """

    def __init__(self, model: nn.Module) -> None:
        views = [_view(parameter.detach()) for parameter in model.parameters() if parameter.numel()]
        self.deferred = bool(views) and _is_deferred(views[0].device)
        self._views = views if self.deferred else []
        self._numbers = [] if self.deferred else [_array(view) for view in views]
        self._before = self._read()()

    def start(self) -> Callable[[], bool]:
        """Begin to look, and return what says whether all is as it was: it waits for no work that comes later."""
        read = self._read()
        return lambda: read() == self._before

    def _read(self) -> Callable[[], bytes]:
        if not self._views:
            return lambda: b"".join(numbers.tobytes() for numbers in self._numbers)
        numbers = torch.cat([view.reshape(-1) for view in self._views])
        if not numbers.is_cuda:
            return lambda: _array(numbers.cpu()).tobytes()
        host = torch.empty(numbers.shape, dtype=numbers.dtype, pin_memory=True).copy_(numbers, non_blocking=True)
        copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
        copied.record(torch.cuda.current_stream(numbers.device))

        def read() -> bytes:
            copied.synchronize()
            return _array(host).tobytes()

        return read


def _view(weight: Tensor) -> Tensor:
    """Some of a weight's numbers in its own memory, however it lies there: those of a diagonal with large steps."""
    if min(weight.shape, default=1) < _FEW:
        return weight[tuple(slice(None, None, max(1, size // 4)) for size in weight.shape)]
    step = sum(size // _FEW * stride for size, stride in zip(weight.shape, weight.stride(), strict=True))
    return weight.as_strided((_FEW,), (step,))


def _is_deferred(device: torch.device) -> bool:
    """Whether numbers on a device take so long to be had that something else should be done meanwhile."""
    return device.type != "cpu"


def _array(numbers: Tensor) -> np.ndarray:
    array: np.ndarray = (numbers.view(torch.int16) if numbers.element_size() == 2 else numbers).numpy()
    return array
