"""Optimizers by name, which weights have which learning rate, and the gradients of large tables."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn

from sbert.inputs.extras import needed
from sbert.training.config import Groups, TrainingConfig

# Size of a table from which filling its gradient with zeros takes a noticeable part of a step.
_LARGE = 1 << 20
# The norm of gradients up to this size is computed on their concatenation, which is faster.
_SMALL = 1 << 16


def match_names(patterns: Iterable[str], names: Sequence[str], setting: str) -> dict[str, str]:
    """For each name that matches a pattern, the last such pattern; ``*`` matches any characters.

    Raises:
        ValueError: If a pattern matches no name; the message lists some names.

    Example:
        >>> match_names(["0.*", "*.bias"], ["0.weight", "0.bias", "1.weight"], "freeze")
        {'0.weight': '0.*', '0.bias': '*.bias'}
    """
    last = {}
    for pattern in patterns:
        matches = [name for name in names if fnmatchcase(name, str(pattern))]
        if not matches:
            some = f"the {len(names)} weights, such as {', '.join(names[:3])}"
            raise ValueError(f"{setting}: {pattern!r} matches none of {some}")
        last.update(dict.fromkeys(matches, pattern))
    return last


def group_parameters(config: TrainingConfig, module: nn.Module, named: Mapping[str, nn.Parameter]) -> Groups:
    """Groups of parameters, each with its learning rate and weight decay.

    Args:
        config: The settings.
        module: What holds the parameters.
        named: The parameters that are trained, by name.
    """
    rates = config.learning_rates or {}
    own = match_names(rates, list(named), "learning_rates")
    tables = {part.weight for part in module.modules() if isinstance(part, nn.Embedding)}
    groups: dict[tuple[object, ...], dict[str, Any]] = {}
    for name, parameter in named.items():
        rate = rates[own[name]] if name in own else config.learning_rate
        decay = config.weight_decay if parameter.ndim > 1 else 0.0
        is_matrix = parameter.ndim == 2 and parameter not in tables
        key = (name.startswith("loss."), decay, rate, is_matrix and config.optimizer == "muon")
        groups.setdefault(key, {"params": [], "lr": rate, "weight_decay": decay, "is_matrix": key[-1]})
        groups[key]["params"].append(parameter)
    return list(groups.values())


def create(config: TrainingConfig, parts: Groups) -> list[torch.optim.Optimizer]:
    """The optimizers of the groups: one, or for Muon a second one for what is not a matrix.

    Raises:
        ImportError: If the optimizer's package is not installed.
    """
    name = config.optimizer
    chosen = [{key: value for key, value in part.items() if key != "is_matrix"} for part in parts]
    if not isinstance(name, str):
        own = name(chosen)
        if not isinstance(own, torch.optim.Optimizer):
            raise TypeError(f"optimizer= returned {type(own).__name__}; return a torch.optim.Optimizer of the groups")
        return [own]
    options: dict[str, Any] = {key: value for key in ("betas", "eps") if (value := getattr(config, key)) is not None}
    if name == "adafactor":
        return [torch.optim.Adafactor(chosen)]
    if name == "adamw_8bit":
        with needed("optimizer='adamw_8bit'", "bitsandbytes", "bitsandbytes"):
            from bitsandbytes.optim import AdamW8bit
        return [AdamW8bit(chosen, **options)]
    matrices, others = (
        [group for group, part in zip(chosen, parts, strict=True) if part["is_matrix"] is kind]
        for kind in (True, False)
    )
    optimizers: list[torch.optim.Optimizer] = [torch.optim.AdamW(others, fused=True, **options)] if others else []
    if matrices:  # Steps as large as those of AdamW, so that one learning rate serves both.
        optimizers.append(torch.optim.Muon(matrices, adjust_lr_fn="match_rms_adamw"))
    return optimizers


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
        large, small = list[Tensor](), list[Tensor]()
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
