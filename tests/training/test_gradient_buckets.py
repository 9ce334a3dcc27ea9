"""Gradients are summed over ranks while the rest is computed, and are those that are summed afterwards."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from unittest.mock import patch

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from sbert.distributed import buckets as module
from sbert.distributed.buckets import GradientBuckets
from sbert.distributed.ranks import Ranks


class Sums(Ranks):
    """Two ranks of which one is here; records what is sent while the gradient of some parameters is not known yet."""

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        super().__init__(0, 2)
        object.__setattr__(self, "events", [])
        object.__setattr__(self, "parameters", parameters)

    events: list[tuple[str, int]]
    parameters: list[nn.Parameter]

    def start_sum(self, tensor: Tensor) -> Callable[[], None]:
        self.events.append(("sent", sum(parameter.grad is None for parameter in self.parameters)))
        tensor *= 2
        return lambda: self.events.append(("waited", 0))


class Layers(nn.Module):
    """Layers of the same size, one of which may be used twice."""

    def __init__(self, again: int | None = None, checkpointed: bool = False) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(5))
        self.order = [0, 1, 2, 3, 4, *([] if again is None else [again])]
        self.checkpointed = checkpointed

    def forward(self, x: Tensor) -> Tensor:
        for number in self.order:
            layer = self.layers[number]
            x = checkpoint(layer, x, use_reentrant=True) if self.checkpointed else layer(x)
        return x


def one_pass(model: nn.Module, context: Callable[[GradientBuckets], AbstractContextManager[None]]) -> Sums:
    parameters = list(model.parameters())
    ranks = Sums(parameters)
    with patch.object(module, "_BUCKET", 8 * 8 * 4):
        summed = GradientBuckets(parameters, ranks)
    with context(summed):
        model(torch.ones(2, 8, requires_grad=True)).sum().backward()
    ranks.events.append(("backward", 0))
    summed.finish()
    return ranks


@pytest.mark.parametrize("again", [None, 0, 4])
def test_the_first_bucket_is_sent_before_the_last_gradient_exists(again: int | None) -> None:
    torch.manual_seed(0)
    model = Layers(again)
    ranks = one_pass(model, GradientBuckets.overlap)
    kinds = [kind for kind, _ in ranks.events]
    sent = kinds.index("backward")
    assert kinds == ["sent"] * sent + ["backward"] + ["waited"] * sent
    assert ranks.events[0][1] > 0 or again == 4  # A layer that is used last and first holds up the buckets behind it.
    assert ranks.events[sent - 1][1] == 0
    expected = copy.deepcopy(model)
    expected.zero_grad()
    one_pass(expected, lambda summed: nullcontext())
    for a, b in zip(model.parameters(), expected.parameters(), strict=True):
        assert torch.equal(a.grad, b.grad)  # type: ignore[arg-type]


def test_a_gradient_that_is_computed_twice_is_an_error() -> None:
    """Reentrant checkpoints run a backward pass of their own for each use of a layer."""
    model = Layers(again=0, checkpointed=True)
    model.order = [4, 0, 1, 2, 3, 4]
    with pytest.raises(RuntimeError, match=r"shape \(8,?.*computed twice.*use_reentrant=False"):
        one_pass(model, GradientBuckets.overlap)
