"""Destination of vectors: rows of a tensor."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from sbert.batch import move, start_to_host
from sbert.pipeline.batching import Rows

# Elements collected on a GPU before they are copied to the host: one large copy is cheaper than many waits.
_GATHERED = 1 << 22


class RowsOfTensor:
    """A tensor that is filled a few rows at a time, in any order.

    If the tensor is on the host, vectors on a GPU are collected there and copied while the next ones are computed.

    Args:
        shape: (rows, dim).
        device: Device of the tensor.
    """

    def __init__(self, shape: tuple[int, int], device: torch.device) -> None:
        self._tensor = torch.empty(shape, device=device)
        self._gathered: list[tuple[Rows, Tensor]] = []
        self._copying: tuple[Rows, Tensor, Callable[[], object]] | None = None

    def put(self, rows: Rows, vectors: Tensor) -> None:
        """Set ``rows``, (n,), to ``vectors``, (n, dim)."""
        if vectors.device.type != "cpu" and self._tensor.device.type == "cpu":
            self._gathered.append((rows, vectors))
            if sum(some.numel() for _, some in self._gathered) >= _GATHERED:
                self._copy()
        else:
            self._tensor[move(torch.from_numpy(rows), self._tensor.device)] = vectors.to(self._tensor.device)

    def _copy(self) -> None:
        """Start to copy the collected vectors; store those of the copy before."""
        gathered, copying = self._gathered, self._copying
        self._gathered, self._copying = [], None
        if gathered:
            vectors = torch.cat([some for _, some in gathered])
            self._copying = np.concatenate([rows for rows, _ in gathered]), *start_to_host(vectors)
        if copying:
            rows, host, wait = copying
            wait()
            self._tensor[torch.from_numpy(rows)] = host

    def complete(self) -> Tensor:
        """The tensor, after every row was set."""
        while self._gathered or self._copying:
            self._copy()
        return self._tensor
