"""Gradients of large embedding tables, of which a batch reaches few rows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

# Numbers from which on filling a gradient with zeros takes a noticeable part of a step.
_LARGE = 1 << 20
# Gradients of fewer numbers are measured together.
_SMALL = 1 << 16


class Tables:
    """Embedding tables on a CPU whose gradients are kept from step to step, and written where a batch has reached them.

    Autograd would fill a new gradient with zeros for every batch, of which BERT's has 23 million numbers.

    Args:
        modules: Whose tables these are.
    """

    def __init__(self, modules: list[nn.Module]) -> None:
        self._modules = [
            part
            for module in modules
            for part in module.modules()
            if type(part) is nn.Embedding
            and part.weight.device.type == "cpu"
            and part.weight.requires_grad
            and part.weight.numel() >= _LARGE
            and not (part.sparse or part.scale_grad_by_freq)
        ]
        self._kept = {part.weight: torch.zeros_like(part.weight) for part in self._modules}
        self._reached: dict[Tensor, Tensor] = {}

    @contextmanager
    def sparse(self) -> Iterator[None]:
        """Within this, autograd gives the gradients of the tables as rows; behind it they are whole again.

        It is for one step, from no gradients to all of them.
        """
        for part in self._modules:
            part.sparse = True
        try:
            yield
        finally:
            for part in self._modules:
                part.sparse = False
        for weight, kept in self._kept.items():
            if weight in self._reached:
                kept.index_fill_(0, self._reached.pop(weight), 0)
            gradient = weight.grad
            if gradient is not None and gradient.is_sparse:
                rows, values = gradient._indices()[0], gradient._values()
                self._reached[weight] = torch.unique(rows)
                weight.grad = kept.index_add_(0, rows, values)

    def norm(self, parameters: list[nn.Parameter]) -> float:
        """The norm of the gradients of these parameters, those of tables by the rows that were reached."""
        large: list[Tensor] = []
        small: list[Tensor] = []
        for parameter in parameters:
            gradient = parameter.grad
            if gradient is None:
                continue
            if parameter in self._reached:
                gradient = gradient.index_select(0, self._reached[parameter])
            (large if gradient.numel() > _SMALL else small).append(gradient.flatten())
        if small:
            large.append(torch.cat(small))
        return math.sqrt(sum(float(torch.dot(flat, flat)) for flat in large))
