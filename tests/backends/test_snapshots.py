"""What is remembered of the modules of a model is read again once any of them has changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from sbert.backends.network import has_hooks, snapshot


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.rest: nn.Module = nn.Sequential(nn.Dropout(0.1), nn.BatchNorm1d(2))
        self.register_parameter("later", None)


@pytest.fixture
def model() -> nn.Sequential:
    return nn.Sequential(Block(), Block())


def found(model: nn.Module) -> tuple[Any, ...]:
    """What a walk without memory finds."""
    modules, places = set(model.modules()), [weight.data_ptr() for weight in model.parameters()]
    hooked = any(module._forward_hooks or module._forward_pre_hooks for module in modules)
    return modules, set(places), hooked


def remembered(model: nn.Module) -> tuple[Any, ...]:
    return {model, *snapshot(model).below}, set(snapshot(model).version()[1]), has_hooks(model)


def hook(*_: object) -> None:
    pass


CHANGES: dict[str, Callable[[Any], object]] = {
    "a module replaced": lambda model: setattr(model[0], "linear", nn.Linear(2, 2)),
    "a module replaced in its table": lambda model: model[1].rest._modules.update({"0": nn.Linear(2, 2)}),
    "a module added": lambda model: model.append(nn.ReLU()),
    "a module added to a leaf": lambda model: model[0].rest[0].add_module("more", nn.Linear(2, 2)),
    "a module removed": lambda model: delattr(model[0], "linear"),
    "modules swapped": lambda model: model._modules.update({"0": model[1], "1": model[0]}),
    "a module None": lambda model: setattr(model[0], "linear", None),
    "a weight replaced": lambda model: setattr(model[0].linear, "weight", nn.Parameter(torch.zeros(2, 2))),
    "a weight added": lambda model: model[0].rest[0].register_parameter("new", nn.Parameter(torch.zeros(2))),
    "a weight that was None": lambda model: setattr(model[1], "later", nn.Parameter(torch.zeros(2))),
    "a weight removed": lambda model: setattr(model[0].linear, "bias", None),
    "a buffer added": lambda model: model[0].linear.register_buffer("new", torch.zeros(2)),
    "a table of weights replaced": lambda model: setattr(
        model[0].linear, "_parameters", {"weight": nn.Parameter(torch.zeros(2, 2))}
    ),
    "a table of modules replaced": lambda model: setattr(model[0].rest, "_modules", {"0": nn.Dropout(0.5)}),
    "a hook": lambda model: model[1].rest[0].register_forward_hook(hook),
    "a hook before": lambda model: model.register_forward_pre_hook(hook),
    "weights of another dtype": lambda model: model.double(),
    "a parametrization": lambda model: nn.utils.parametrizations.weight_norm(model[0].linear),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_is_seen(change: Callable[[Any], object], model: nn.Sequential) -> None:
    assert remembered(model) == found(model)
    assert snapshot(model) is snapshot(model)
    handle = change(model)
    assert remembered(model) == found(model)
    if hasattr(handle, "remove"):
        assert has_hooks(model)
        handle.remove()
        assert remembered(model) == found(model)
