"""Several processes that train one model."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn

# Numbers of the gradient that travel together.
_BUCKET = 1 << 23


@dataclass(frozen=True)
class Ranks:
    """The place of this process among those that train together; alone by default.

    Row i of a batch belongs to rank i modulo the number of ranks.

    Args:
        rank: Of this process, from 0.
        world: How many there are.
    """

    rank: int = 0
    world: int = 1

    @classmethod
    def join(cls) -> Ranks:
        """The processes that ``torchrun`` started, or that the caller's process group has."""
        if not dist.is_available():
            return cls()
        if not dist.is_initialized() and int(os.environ.get("WORLD_SIZE", "1")) > 1:
            if torch.cuda.is_available():
                torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
            dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
        return cls(dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else cls()

    @property
    def first(self) -> bool:
        """Whether this is the one that writes and speaks."""
        return self.rank == 0

    def gather(self, columns: Tensor, rows: int) -> Tensor:
        """The columns of a whole batch from those of each rank's rows; only this rank's carry a gradient.

        Shape:
            columns: (own rows, columns, dim). Output: (rows, columns, dim), in the order of the batch.
        """
        if self.world == 1:
            return columns
        most = -(-rows // self.world)
        sent = columns.new_zeros(most, *columns.shape[1:])
        sent[: len(columns)] = columns.detach()
        parts = [torch.empty_like(sent) for _ in range(self.world)]
        dist.all_gather(parts, sent)
        parts[self.rank] = torch.cat([columns, sent[len(columns) :]])
        return torch.stack(parts, dim=1).flatten(0, 1)[:rows]  # Row i stands at (i // world, i % world).

    def reduce(self, parameters: Iterable[nn.Parameter], mean: bool) -> None:
        """Replace each gradient by the sum, or the mean, of all ranks'."""
        if self.world == 1:
            return
        waiting: list[Tensor] = []
        for parameter in parameters:
            if parameter.grad is None:  # No row of this rank's has reached it, but others' may have.
                parameter.grad = torch.zeros_like(parameter)
            waiting.append(parameter.grad)
            if sum(gradient.numel() for gradient in waiting) >= _BUCKET:
                self._reduce(waiting, mean)
                waiting = []
        self._reduce(waiting, mean)

    def _reduce(self, gradients: list[Tensor], mean: bool) -> None:
        if not gradients:
            return
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        dist.all_reduce(flat)
        if mean:
            flat /= self.world
        for gradient, reduced in zip(gradients, torch.split(flat, [g.numel() for g in gradients]), strict=True):
            gradient.copy_(reduced.view_as(gradient))

    def most(self, number: int, device: torch.device) -> int:
        """The greatest of all ranks' numbers."""
        if self.world == 1:
            return number
        tensor = torch.tensor(number, device=device)
        dist.all_reduce(tensor, dist.ReduceOp.MAX)
        return int(tensor)

    def same(self, tensors: Iterable[Tensor]) -> None:
        """Overwrite every rank's tensors with those of the first."""
        if self.world > 1:
            for tensor in tensors:
                dist.broadcast(tensor.detach(), 0)

    def wait(self) -> None:
        """Until all ranks are here."""
        if self.world > 1:
            dist.barrier()


ALONE = Ranks()
