"""The weights of a training run by name, those of the model and of the losses, with their optimizer."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sbert.losses.signature import Loss
from sbert.training import checkpoint
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

    def optimizer(self, weight_decay: float, tensors: Mapping[str, Tensor]) -> torch.optim.Optimizer:
        """AdamW over all parameters that are not frozen, with its state from the tensors of a checkpoint.

        Raises:
            ValueError: If all parameters are frozen.
        """
        trained = {name: value for name, value in self._both.named_parameters() if value.requires_grad}
        if not trained:
            raise ValueError("nothing is trained: no weight of the model or the loss has requires_grad=True")
        groups: dict[tuple[str, float], list[nn.Parameter]] = {}
        for name, parameter in trained.items():
            decay = weight_decay if parameter.ndim > 1 else 0.0
            groups.setdefault((name.partition(".")[0], decay), []).append(parameter)
        optimizer = torch.optim.AdamW(
            [{"params": group, "weight_decay": decay} for (_, decay), group in groups.items()], fused=True
        )
        for key, value in tensors.items():
            name, _, state = key.removeprefix("optimizer.").rpartition(".")
            if key.startswith("optimizer.") and name in trained:
                optimizer.state[trained[name]][state] = like(value, trained[name])
        return optimizer

    def tensors(self, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
        """All tensors of a checkpoint, unsharded: the weights, and the optimizer's state as ``optimizer.NAME.KEY``."""
        states = {
            f"optimizer.{name}.{key}": value
            for name, parameter in self._both.named_parameters()
            for key, value in optimizer.state.get(parameter, {}).items()
        }
        return {name: whole(value) for name, value in (states | self.changing()).items()}

    def restore(self, path: Path, tensors: Mapping[str, Tensor]) -> None:
        """Copy the weights of a checkpoint into the model and the losses.

        Raises:
            ValueError: If a name or a shape differs.
        """
        present = self.changing()
        saved = {name: value for name, value in tensors.items() if not name.startswith("optimizer.")}
        shapes = [{name: list(value.shape) for name, value in weights.items()} for weights in (saved, present)]
        checkpoint.check_same(path, "weight", *shapes)
        with torch.no_grad():
            for name, value in present.items():
                value.copy_(saved[name])
