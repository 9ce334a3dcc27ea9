"""Sparse gradients for large embedding tables, of which a batch uses only few rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

# Size of a table from which filling its gradient with zeros takes a noticeable part of a step.
_LARGE = 1 << 20
# The norm of gradients up to this size is computed on their concatenation, which is faster.
_SMALL = 1 << 16


class EmbeddingGradients:
    """Gradients of large embedding tables on a CPU, reused from step to step: only the used rows are written.

    Autograd would fill a new gradient with zeros for every batch: 23 million numbers for BERT.

    Args:
        modules: Modules, of which the embedding tables are handled.
    """

    def __init__(self, modules: Iterable[nn.Module]) -> None:
        self._modules = [
            part
            for part in modules
            if type(part) is nn.Embedding
            and part.weight.device.type == "cpu"
            and part.weight.requires_grad
            and part.weight.numel() >= _LARGE
            and not (part.sparse or part.scale_grad_by_freq)
        ]
        self._buffers = {part.weight: torch.zeros_like(part.weight) for part in self._modules}
        self._used: dict[Tensor, Tensor] = {}  # For each table, the rows of its buffer that are not 0.

    @contextmanager
    def sparse(self) -> Iterator[None]:
        """Around all backward passes of one step: autograd makes sparse gradients, which are dense afterwards."""
        for part in self._modules:
            part.sparse = True
        try:
            yield
        finally:
            for part in self._modules:
                part.sparse = False
        for weight, buffer in self._buffers.items():
            if weight in self._used:
                buffer.index_fill_(0, self._used.pop(weight), 0)
            gradient = weight.grad
            if gradient is not None and gradient.is_sparse:
                rows, values = gradient._indices()[0], gradient._values()
                self._used[weight] = torch.unique(rows)
                weight.grad = buffer.index_add_(0, rows, values)

    def norm(self, parameters: list[nn.Parameter]) -> float:
        """The norm of all gradients of these parameters; of the tables, only the used rows are read."""
        large: list[Tensor] = []
        small: list[Tensor] = []
        for parameter in parameters:
            gradient = parameter.grad
            if gradient is None:
                continue
            if parameter in self._used:
                gradient = gradient.index_select(0, self._used[parameter])
            (large if gradient.numel() > _SMALL else small).append(gradient.flatten())
        if small:
            large.append(torch.cat(small))
        return math.sqrt(sum(float(torch.dot(flat, flat)) for flat in large))
