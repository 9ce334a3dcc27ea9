"""Optimizers by name, learning-rate schedules, and which weights are trained with which learning rate."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from sbert.inputs.extras import needed

if TYPE_CHECKING:
    from sbert.training.config import TrainingConfig

Groups = list[dict[str, Any]]

OPTIMIZERS = ("adamw", "adamw_8bit", "adafactor", "muon")

# The factor of the learning rate, by the share of the steps after warm-up that is done.
SCHEDULES: dict[str, Callable[[float], float]] = {
    "linear": lambda done: 1 - done,
    "cosine": lambda done: (1 + math.cos(math.pi * done)) / 2,
    "constant": lambda _: 1.0,
}


def matching(patterns: Iterable[str], names: Sequence[str], setting: str) -> dict[str, str]:
    """For each name that matches a pattern, the last such pattern; ``*`` matches any characters.

    Raises:
        ValueError: If a pattern matches no name; the message lists some names.

    Example:
        >>> matching(["0.*", "*.bias"], ["0.weight", "0.bias", "1.weight"], "freeze")
        {'0.weight': '0.*', '0.bias': '*.bias'}
    """
    found = {}
    for pattern in patterns:
        matches = [name for name in names if fnmatchcase(name, str(pattern))]
        if not matches:
            some = ", ".join(names[:3])
            raise ValueError(
                f"{setting}: {pattern!r} matches none of the {len(names)} weights, such as {some}; see the names in"
                " model.named_parameters(), those of a loss begin with 'loss.'"
            )
        found.update(dict.fromkeys(matches, pattern))
    return found


def groups(config: TrainingConfig, module: nn.Module, named: Mapping[str, nn.Parameter]) -> Groups:
    """Groups of parameters, each with its learning rate and weight decay.

    Args:
        config: The settings.
        module: What holds the parameters.
        named: The parameters that are trained, by name.
    """
    rates = config.learning_rates or {}
    own = matching(rates, list(named), "learning_rates")
    tables = {part.weight for part in module.modules() if isinstance(part, nn.Embedding)}
    found: dict[tuple[object, ...], dict[str, Any]] = {}
    for name, parameter in named.items():
        rate = rates[own[name]] if name in own else config.learning_rate
        decay = config.weight_decay if parameter.ndim > 1 else 0.0
        is_matrix = parameter.ndim == 2 and parameter not in tables
        key = (name.startswith("loss."), decay, rate, is_matrix and config.optimizer == "muon")
        found.setdefault(key, {"params": [], "lr": rate, "weight_decay": decay, "is_matrix": key[-1]})
        found[key]["params"].append(parameter)
    return list(found.values())


def make(config: TrainingConfig, parts: Groups) -> list[torch.optim.Optimizer]:
    """The optimizers of the groups: one, or for Muon a second one for what is not a matrix.

    Raises:
        ImportError: If the optimizer's package is not installed.
    """
    name = config.optimizer
    chosen = [{key: value for key, value in part.items() if key != "is_matrix"} for part in parts]
    if not isinstance(name, str):
        return [name(chosen)]
    options: dict[str, Any] = {} if config.betas is None else {"betas": tuple(config.betas)}
    if config.eps is not None:
        options["eps"] = config.eps
    if name == "adafactor":
        return [torch.optim.Adafactor(chosen)]
    if name == "adamw_8bit":
        with needed("optimizer='adamw_8bit'", "bitsandbytes", "bitsandbytes"):
            from bitsandbytes.optim import AdamW8bit
        return [AdamW8bit(chosen, **options)]
    matrices = [group for group, part in zip(chosen, parts, strict=True) if part["is_matrix"]]
    others = [group for group, part in zip(chosen, parts, strict=True) if not part["is_matrix"]]
    found: list[torch.optim.Optimizer] = [torch.optim.AdamW(others, fused=True, **options)] if others else []
    if matrices:  # Steps as large as those of AdamW, so that one learning rate serves both.
        found.append(torch.optim.Muon(matrices, adjust_lr_fn="match_rms_adamw"))
    return found
