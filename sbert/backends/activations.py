"""The activations of feed-forward layers: how each is computed, and what configurations and oneDNN call it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


class Activation(NamedTuple):
    """An elementwise function.

    Args:
        apply: The function.
        backward: The gradient at its input, from the gradient at its output and the input.
        pointwise: What oneDNN calls it: attribute and algorithm.
    """

    apply: Callable[[Tensor], Tensor]
    backward: Callable[[Tensor, Tensor], Tensor]
    pointwise: tuple[str, str]


def _gelu(approximate: str) -> Activation:
    def backward(gradient: Tensor, x: Tensor) -> Tensor:
        result: Tensor = torch.ops.aten.gelu_backward(gradient, x, approximate=approximate)
        return result

    return Activation(partial(F.gelu, approximate=approximate), backward, ("gelu", approximate))


GELU, GELU_TANH = _gelu("none"), _gelu("tanh")
RELU = Activation(F.relu, lambda gradient, x: gradient * (x > 0), ("relu", ""))

# By the names that configurations give them.
ACTIVATIONS = {
    "gelu": GELU,
    "gelu_new": GELU_TANH,
    "gelu_fast": GELU_TANH,
    "gelu_pytorch_tanh": GELU_TANH,
    "relu": RELU,
}
