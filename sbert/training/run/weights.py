"""The weights of a training run by name, those of the model and of the losses: which are trained, sharded and saved."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from sbert.distributed.ranks import Ranks
from sbert.losses.signature import Loss
from sbert.modules import Transformer
from sbert.training import optimizers
from sbert.training.config import TrainingConfig


class Weights:
    """The parameters and buffers of a model and its losses, with the names that a checkpoint gives them.

    Args:
        model: The model to train.
        losses: The losses by data set. Those that are modules have weights of their own, such as a classifier.
    """

    def __init__(self, model: Any, losses: Mapping[str, Loss]) -> None:
        self.model: Any = model
        # A loss of several data sets is registered once. The prefix avoids names of methods, such as "train";
        # a name with a dot is written without it, in a way of which each name has its own.
        first: dict[int, str] = {}
        self.heads: nn.ModuleDict = nn.ModuleDict(
            {
                "of_" + name.replace("_", "__").replace(".", "_d"): loss
                for name, loss in losses.items()
                if isinstance(loss, nn.Module) and first.setdefault(id(loss), name) == name
            }
        ).to(model.device)
        self._both = nn.ModuleDict({"model": model, "loss": self.heads})

    def named(self) -> dict[str, nn.Parameter]:
        """The parameters: those of the model by their names there, those of losses as ``loss.…``."""
        return {name.removeprefix("model."): value for name, value in self._both.named_parameters()}

    @property
    def trained(self) -> list[nn.Parameter]:
        """The parameters that are not frozen."""
        return [parameter for parameter in self._both.parameters() if parameter.requires_grad]

    def changing(self) -> dict[str, Tensor]:
        """What training changes: parameters that are not frozen, and the buffers that a model folder stores."""
        saved = self._both.state_dict()
        weights = {name: value for name, value in self._both.named_parameters() if value.requires_grad}
        return weights | {name: value for name, value in self._both.named_buffers() if name in saved}

    def tensors(self) -> dict[str, Tensor]:
        """The weights of a checkpoint, unsharded."""
        return {name: gather_whole(value) for name, value in self.changing().items()}

    def frozen_digest(self) -> str:
        """A digest of the frozen parameters, from the first 64 numbers of each."""
        digest = hashlib.blake2b(digest_size=16)
        for name, parameter in self._both.named_parameters():
            if not parameter.requires_grad:
                digest.update(name.encode() + parameter.detach().flatten()[:64].float().cpu().numpy().tobytes())
        return digest.hexdigest()

    def optimizers(
        self, config: TrainingConfig, tensors: Mapping[str, Tensor], values: Mapping[str, Any]
    ) -> list[torch.optim.Optimizer]:
        """The optimizers of all parameters that are not frozen, with their state from a checkpoint.

        Args:
            config: The settings.
            tensors: Tensors of the checkpoint.
            values: Numbers of the checkpoint.

        Raises:
            ValueError: If all parameters are frozen.
        """
        parameters = {name: value for name, value in self.named().items() if value.requires_grad}
        if not parameters:
            raise ValueError("nothing is trained: no weight of the model or the loss has requires_grad=True")
        new = optimizers.create(config, optimizers.group_parameters(config, self._both, parameters))
        for place, group in _name_groups(new):
            group.setdefault("peak", group["lr"])
            group |= {key: values[f"{place}.{key}"] for key in _numbers(group) if f"{place}.{key}" in values}
        owner = {part: each for each in new for group in each.param_groups for part in group["params"]}
        for key, value in {**tensors, **values}.items():
            name, _, state = key.removeprefix("optimizer.").rpartition(".")
            part = parameters.get(name.removeprefix("model.")) if key.startswith("optimizer.") else None
            if part is not None:
                owner[part].state[part][state] = _place_like(value, part) if isinstance(value, Tensor) else value
        return new

    def optimizer_state(self, given: Sequence[torch.optim.Optimizer]) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The state of the optimizers as ``optimizer.NAME.KEY``: tensors, unsharded, and numbers.

        Raises:
            TypeError: If a value is neither.
        """
        tensors: dict[str, Tensor] = {}
        groups = _name_groups(given)
        values = {f"{place}.{key}": value for place, group in groups for key, value in _numbers(group).items()}
        for name, parameter in self._both.named_parameters():
            for each in given:
                for key, value in each.state.get(parameter, {}).items():
                    if isinstance(value, Tensor):
                        tensors[f"optimizer.{name}.{key}"] = gather_whole(value)
                    elif value is None or isinstance(value, (bool, int, float)):
                        values[f"optimizer.{name}.{key}"] = value
                    else:
                        what = f"the optimizer's state {key!r} of {name} is of type {type(value).__name__}"
                        raise TypeError(f"{what}; use an optimizer whose state is tensors and numbers")
        return tensors, values


def _name_groups(given: Sequence[torch.optim.Optimizer]) -> list[tuple[str, dict[str, Any]]]:
    """The groups of parameters, with a name for checkpoints."""
    return [(f"group.{i}.{j}", group) for i, each in enumerate(given) for j, group in enumerate(each.param_groups)]


def _numbers(group: Mapping[str, Any]) -> dict[str, Any]:
    """What some optimizers count or adapt in a group; the trainer itself sets the learning rate."""
    return {key: value for key, value in group.items() if type(value) in (int, float) and key not in ("lr", "peak")}


@contextmanager
def prepare_model(model: Any, losses: Mapping[str, Loss], config: TrainingConfig) -> Iterator[Weights]:
    """Around a run: freeze weights, and checkpoint or compile layers. All but the weights is restored at the end.

    Raises:
        ValueError: If a pattern of frozen weights matches none, or a transformer cannot be checkpointed.
    """
    networks: list[Any] = [part.materialize() for part in list(model.modules()) if isinstance(part, Transformer)]
    weights = Weights(model, losses)
    named, modes = weights.named(), [(module, module.training) for module in model.modules()]
    with ExitStack() as undo:
        for name in optimizers.match_names(config.freeze or (), list(named), "freeze"):
            undo.callback(named[name].requires_grad_, named[name].requires_grad)
            named[name].requires_grad_(False)
        for network in networks:
            if config.gradient_checkpointing:
                _checkpoint(network, undo)
            if config.compile:
                lists = [module for module in network.modules() if isinstance(module, nn.ModuleList)]
                for layer in max(lists, key=len, default=()):
                    layer.compile()
                    undo.callback(setattr, layer, "_compiled_call_impl", None)
        try:
            yield weights
        finally:
            for parameter in weights.trained:
                parameter.grad = None
            for module, mode in modes:
                module.training = mode


def _checkpoint(network: Any, undo: ExitStack) -> None:
    if not getattr(network, "supports_gradient_checkpointing", False):
        raise ValueError(f"{type(network).__name__} has no gradient checkpointing; pass chunk_tokens= to save memory")
    if not any(getattr(module, "gradient_checkpointing", False) for module in network.modules()):
        # Older releases of transformers call it gradient checkpointing.
        kind = "activation" if hasattr(network, "activation_checkpointing_enable") else "gradient"
        getattr(network, f"{kind}_checkpointing_enable")({"use_reentrant": False})
        undo.callback(getattr(network, f"{kind}_checkpointing_disable"))


def shard(model: nn.Module, ranks: Ranks) -> None:
    """Distribute the weights of a model over the ranks, layer by layer (FSDP2).

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


def gather_whole(tensor: Tensor) -> Tensor:
    """Copy a tensor to the CPU, gathered if it is sharded; then all ranks must call this together."""
    full: Tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return full.detach().cpu()


def _place_like(value: Tensor, live: Any) -> Tensor:
    """The value on the device of ``live``, and sharded as it is; a number, such as a count of steps, stays whole."""
    value = value.to(live.device, copy=True)
    if not value.ndim or not hasattr(live, "full_tensor"):
        return value
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(value, live.device_mesh, live.placements)
