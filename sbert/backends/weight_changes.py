"""Whether the weights of a model have changed: by what torch counts, and by samples of their values."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook

from sbert.backends.hooks import tree
from sbert.batch import start_to_host

_version = attrgetter("_version")
# Elements sampled from each matrix.
_SAMPLES = 16


def state(network: nn.Module) -> object:
    """What changes when weights are assigned or stepped, modules replaced, or hooks registered or removed."""
    found = tree(network)
    weights = found.tensors()
    try:
        versions = list(map(_version, weights))
    except RuntimeError:  # Tensors that were made in inference mode have none.
        versions = [-1 if weight.is_inference() else weight._version for weight in weights]
    everywhere: bool = _has_any_global_hook()  # type: ignore[no-untyped-call]
    return everywhere or found.watched, list(map(Tensor.data_ptr, weights)), versions


class Samples:
    """Samples of each weight of a model at equal distances, compared with their current values.

    Edits through ``.data`` (merged adapters, moving averages) do not increase the version of a tensor. A change of a
    whole weight is detected, and so is one of more than a sixteenth of the consecutive rows of a matrix; a change of
    fewer rows may be missed.

    Args:
        model: A model on one device.
    """

    def __init__(self, model: nn.Module) -> None:
        views = [_view(parameter.detach()) for parameter in model.parameters() if parameter.numel()]
        self.deferred: bool = bool(views) and _is_deferred(views[0].device)
        self._lines = [line for view in views for line in _lines(view)] if self.deferred else []
        self._numbers = [] if self.deferred else [_array(view) for view in views]
        self._before = self._read()()

    def start(self) -> Callable[[], bool]:
        """Start reading the samples; the result tells whether they are unchanged, without waiting for later work."""
        read = self._read()
        return lambda: read() == self._before

    def _read(self) -> Callable[[], bytes]:
        if not self._lines:
            return lambda: np.concatenate(self._numbers, axis=None).tobytes() if self._numbers else b""
        host, wait = start_to_host(torch.cat(self._lines))

        def read() -> bytes:
            wait()
            return _array(host).tobytes()

        return read


def _view(weight: Tensor) -> Tensor:
    """A strided view of some elements of a weight, in any memory layout: a diagonal with large steps."""
    if min(weight.shape, default=1) < _SAMPLES:
        return weight[tuple(slice(None, None, max(1, size // 4)) for size in weight.shape)]
    step = sum(size // _SAMPLES * stride for size, stride in zip(weight.shape, weight.stride(), strict=True))
    return weight.as_strided((_SAMPLES,), (step,))


def _lines(view: Tensor) -> list[Tensor]:
    """Views of one dimension of the same elements: to make them at each use takes as long as to read them."""
    return [view.reshape(-1)] if view.dim() <= 1 else [line for part in view.unbind() for line in _lines(part)]


def _is_deferred(device: torch.device) -> bool:
    """Whether reading from a device is so slow that other work should run meanwhile."""
    return device.type != "cpu"


def _array(numbers: Tensor) -> npt.NDArray[np.generic]:
    array: npt.NDArray[np.generic] = (numbers.view(torch.int16) if numbers.element_size() == 2 else numbers).numpy()
    return array
