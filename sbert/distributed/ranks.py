"""Ranks: the processes that train or evaluate one model together."""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

T = TypeVar("T")

# Devices of which a machine has several, and what connects them.
_NUMBERED = {"cuda": "nccl", "xpu": "xccl"}
# For the process group in use, one in which ranks wait for an action of another for as long as that runs.
_patient: dict[Any, dist.ProcessGroup] = {}


@dataclass(frozen=True)
class Ranks:
    """The rank of this process and the number of processes; one process by default.

    Row i of a batch belongs to rank i modulo the number of ranks.

    Args:
        rank: Rank of this process, from 0.
        world: Number of processes.
    """

    rank: int = 0
    world: int = 1

    @classmethod
    def join(cls, kind: str = "cpu", timeout: float = 600.0) -> Ranks:
        """Join the processes that ``torchrun`` started, or the process group of the caller.

        Args:
            kind: Device type of the model. On GPUs, each process uses the one given by ``LOCAL_RANK``.
            timeout: Seconds that a rank waits for the others. A process group that exists keeps its own timeout.
        """
        if not dist.is_available():
            return cls()
        if kind in _NUMBERED and "LOCAL_RANK" in os.environ:
            torch.accelerator.set_device_index(int(os.environ["LOCAL_RANK"]))
        if not dist.is_initialized() and int(os.environ.get("WORLD_SIZE", "1")) > 1:
            backend = f"cpu:gloo,{kind}:{_NUMBERED[kind]}" if kind in _NUMBERED else "gloo"
            dist.init_process_group(backend, timeout=timedelta(seconds=timeout))
            atexit.register(leave)  # Its threads must not outlive the interpreter.
        ranks = cls(dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else cls()
        if ranks.world > 1 and dist.group.WORLD not in _patient:
            _patient.clear()
            _patient[dist.group.WORLD] = dist.new_group(backend="gloo", timeout=timedelta(days=7))
        return ranks

    def place(self, model: Any) -> None:
        """Move a model on a GPU to the one given by ``LOCAL_RANK``; without that, it stays where the caller has it."""
        kind, index = model.device.type, os.environ.get("LOCAL_RANK")
        if self.world > 1 and kind in _NUMBERED and index is not None:
            model.to(torch.device(kind, int(index)))

    @property
    def first(self) -> bool:
        """Whether this is the main process, which writes files and logs."""
        return self.rank == 0

    def gather(self, columns: Tensor, rows: int) -> Tensor:
        """Gather the columns of a whole batch from all ranks; only those of this rank carry a gradient.

        Shape:
            columns: (own rows, columns, ...). Output: (rows, columns, ...), in the order of the batch.
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

    def start_sum(self, tensor: Tensor) -> Callable[[], object]:
        """Start to replace a tensor by its sum over all ranks. It holds the sum after the returned function was called.

        On a GPU the host does not wait there: what it computes next waits.
        """
        work: Any = dist.all_reduce(tensor, async_op=True)
        return work.wait  # type: ignore[no-any-return]

    def all_max(self, number: int, device: torch.device) -> int:
        """Maximum of an integer over all ranks."""
        if self.world == 1:
            return number
        tensor = torch.tensor(number, device=device)
        dist.all_reduce(tensor, dist.ReduceOp.MAX)
        return int(tensor)

    def broadcast(self, tensors: Iterable[Tensor]) -> None:
        """Overwrite the tensors of every rank with those of rank 0."""
        if self.world > 1:
            for tensor in tensors:
                dist.broadcast(tensor.detach(), 0)

    def together(self, action: Callable[[], T]) -> T:
        """Run an action on every rank, and wait for the others however long theirs takes.

        Raises:
            RuntimeError: If it fails on another rank (which raises its own error), or another process has ended.
        """
        if self.world == 1:
            return action()
        result, failure = None, None
        try:
            result = action()
        except BaseException as error:
            if hasattr(error, "known_to_all_ranks"):  # By an action within this one.
                raise
            failure = error
        failed = torch.tensor(int(failure is not None))
        dist.all_reduce(failed, dist.ReduceOp.MAX, group=_patient[dist.group.WORLD])
        if failed:
            reason = failure or RuntimeError("another process has failed; its own error gives the reason")
            reason.__dict__["known_to_all_ranks"] = True
            raise reason
        return result  # type: ignore[return-value]

    def run_on_main(self, action: Callable[[], object]) -> None:
        """Run an action on rank 0 while the others wait; if it fails there, it fails on all."""
        self.together(action if self.rank == 0 else bool)  # Which does nothing.


def leave() -> None:
    """Part from the others, as a process that ``Ranks.join`` has brought to them does when it ends."""
    _patient.clear()
    # gloo's thread lets go of the tensors of its last call, for which it needs the interpreter, while there is one.
    time.sleep(0.1)
    if dist.is_initialized():
        dist.destroy_process_group()


ALONE = Ranks()
