"""The weights of a training run, by name: those of the model and of the losses."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from sbert.losses.signature import Loss
from sbert.training import checkpoint


class Weights:
    """The parameters and buffers of a model and its losses, with the names that a checkpoint gives them.

    Args:
        model: The model to train.
        losses: The losses by data set. Those that are modules have weights of their own, such as a classifier.
    """

    def __init__(self, model: Any, losses: Mapping[str, Loss]) -> None:
        self.model = model
        # A loss of several data sets is registered once. The prefix avoids names of methods, such as "train".
        first: dict[int, str] = {}
        self.heads = nn.ModuleDict(
            {
                "of_" + name.replace(".", "_"): loss
                for name, loss in losses.items()
                if isinstance(loss, nn.Module) and first.setdefault(id(loss), name) == name
            }
        ).to(model.device)

    def parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """All parameters by name, frozen ones included."""
        for prefix, module in (("model", self.model), ("loss", self.heads)):
            for name, parameter in module.named_parameters():
                yield f"{prefix}.{name}", parameter

    def changing(self) -> dict[str, Tensor]:
        """What training changes: parameters that are not frozen, and the buffers that a model folder stores."""
        weights: dict[str, Tensor] = {name: value for name, value in self.parameters() if value.requires_grad}
        for prefix, module in (("model", self.model), ("loss", self.heads)):
            saved = module.state_dict()
            for name, value in module.named_buffers():
                if name in saved:
                    weights[f"{prefix}.{name}"] = value
        return weights

    def frozen_digest(self) -> str:
        """A digest of the frozen parameters, from the first 64 numbers of each."""
        digest = hashlib.blake2b(digest_size=16)
        for name, parameter in self.parameters():
            if not parameter.requires_grad:
                digest.update(name.encode() + parameter.detach().flatten()[:64].float().cpu().numpy().tobytes())
        return digest.hexdigest()

    def restore(self, path: Path, tensors: Mapping[str, Tensor]) -> None:
        """Copy the weights of a checkpoint into the model and the losses.

        Raises:
            ValueError: If a name or a shape differs.
        """
        present = self.changing()
        saved = {name: value for name, value in tensors.items() if not name.startswith("optimizer.")}
        shapes = [{name: list(value.shape) for name, value in weights.items()} for weights in (saved, present)]
        checkpoint.check_same(path, "weight", *shapes)
        for name, value in present.items():
            checkpoint.assign(value, saved[name])
