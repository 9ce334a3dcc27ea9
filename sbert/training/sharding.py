"""Weights that are sharded over several processes (FSDP2), and the whole tensors that files hold."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from sbert.distributed.ranks import Ranks


def shard(model: nn.Module, ranks: Ranks) -> None:
    """Distribute the weights of a model over the ranks, layer by layer.

    Raises:
        ValueError: If there is one process only.
    """
    from torch.distributed.fsdp import fully_shard

    if ranks.world == 1:
        raise ValueError("sharded=True spreads the weights over several processes; start the program with torchrun")
    for module in model.modules():
        if isinstance(module, nn.ModuleList):
            for layer in module:
                fully_shard(layer)
    fully_shard(model)


def whole(tensor: Tensor) -> Tensor:
    """Copy a tensor to the CPU, gathered if it is sharded; then all ranks must call this together."""
    full: Tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return full.detach().cpu()


def like(value: Tensor, live: Any) -> Tensor:
    """The value on the device of ``live``, and sharded as it is; a number, such as a count of steps, stays whole."""
    value = value.to(live.device, copy=True)
    if not value.ndim or not hasattr(live, "full_tensor"):
        return value
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(value, live.device_mesh, live.placements)
