"""The weights of a training run by name, those of the model and of the losses, with their optimizers."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sbert.losses.signature import Loss
from sbert.training import checkpoint, optimizers
from sbert.training.config import TrainingConfig
from sbert.training.sharding import like, whole


class Weights:
    """The parameters and buffers of a model and its losses, with the names that a checkpoint gives them.

    Args:
        model: The model to train.
        losses: The losses by data set. Those that are modules have weights of their own, such as a classifier.
    """

    def __init__(self, model: Any, losses: Mapping[str, Loss]) -> None:
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

    def changing(self) -> dict[str, Tensor]:
        """What training changes: parameters that are not frozen, and the buffers that a model folder stores."""
        saved = self._both.state_dict()
        weights = {name: value for name, value in self._both.named_parameters() if value.requires_grad}
        return weights | {name: value for name, value in self._both.named_buffers() if name in saved}

    def frozen_digest(self) -> str:
        """A digest of the frozen parameters, from the first 64 numbers of each."""
        digest = hashlib.blake2b(digest_size=16)
        for name, parameter in self._both.named_parameters():
            if not parameter.requires_grad:
                digest.update(name.encode() + parameter.detach().flatten()[:64].float().cpu().numpy().tobytes())
        return digest.hexdigest()

    def named(self) -> dict[str, nn.Parameter]:
        """The parameters: those of the model by their names there, those of losses as ``loss.…``."""
        return {name.removeprefix("model."): value for name, value in self._both.named_parameters()}

    def trained(self) -> dict[str, nn.Parameter]:
        """The parameters that are not frozen.

        Raises:
            ValueError: If all parameters are frozen.
        """
        found = {name: value for name, value in self.named().items() if value.requires_grad}
        if not found:
            raise ValueError("nothing is trained: no weight of the model or the loss has requires_grad=True")
        return found

    def optimizers(
        self, config: TrainingConfig, tensors: Mapping[str, Tensor], values: Mapping[str, Any]
    ) -> list[torch.optim.Optimizer]:
        """The optimizers of all parameters that are not frozen, with their state from a checkpoint.

        Args:
            config: The settings.
            tensors: Tensors of the checkpoint.
            values: Numbers of the checkpoint.
        """
        parameters = self.trained()
        made = optimizers.make(config, optimizers.groups(config, self._both, parameters))
        owner = {part: each for each in made for group in each.param_groups for part in group["params"]}
        for source in (tensors, values):
            for key, value in source.items():
                name, _, state = key.removeprefix("optimizer.").rpartition(".")
                if key.startswith("optimizer.") and (part := parameters.get(name.removeprefix("model."))) is not None:
                    found = like(value, part) if isinstance(value, Tensor) else value
                    owner[part].state[part][state] = found
        return made

    def optimizer_state(self, made: Sequence[torch.optim.Optimizer]) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The state of the optimizers as ``optimizer.NAME.KEY``: tensors, unsharded, and numbers.

        Raises:
            TypeError: If a value is neither.
        """
        tensors, values = {}, {}
        for name, parameter in self._both.named_parameters():
            for each in made:
                for key, value in each.state.get(parameter, {}).items():
                    if isinstance(value, Tensor):
                        tensors[f"optimizer.{name}.{key}"] = whole(value)
                    elif value is None or isinstance(value, (bool, int, float)):
                        values[f"optimizer.{name}.{key}"] = value
                    else:
                        raise TypeError(
                            f"the optimizer's state {key!r} of {name} is of type {type(value).__name__}, which no"
                            " checkpoint can hold; use an optimizer whose state is tensors and numbers"
                        )
        return tensors, values

    def tensors(self) -> dict[str, Tensor]:
        """The weights of a checkpoint, unsharded."""
        return {name: whole(value) for name, value in self.changing().items()}

    def restore(self, path: Path, tensors: Mapping[str, Tensor]) -> None:
        """Copy the weights of a checkpoint into the model and the losses.

        Raises:
            ValueError: If a name or a shape differs.
        """
        present = self.changing()
        saved = {name: value for name, value in tensors.items() if name.startswith(("model.", "loss."))}
        shapes = [{name: list(value.shape) for name, value in weights.items()} for weights in (saved, present)]
        checkpoint.check_same(path, "weight", *shapes)
        with torch.no_grad():
            for name, value in present.items():
                value.copy_(saved[name])
