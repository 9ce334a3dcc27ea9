"""The layers for training on a CPU: the vectors and gradients of the Hugging Face module."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sbert import TokenBatch, Transformer
from sbert.backends import cpu_training, linear
from sbert.backends.cpu_training import CpuTraining
from sbert.backends.layers import Backbone, describe
from sbert.backends.packed import Packed
from tests.backends.test_packed import ROWS, transformer

LONG = [list(range(3, 40)), [5, 7, 6], list(range(3, 36)), [], [2], [8, 9, 4], [5, 1, 1, 6]]


def layers(module: Transformer) -> Backbone:
    found = describe(module.auto_model)
    assert isinstance(found, Backbone)
    return found


def both(module: Transformer, rows: list[list[int]]) -> tuple[list[Tensor], list[Tensor]]:
    """Vectors and gradients of every weight: of the Hugging Face module without padding, and by the layers."""
    batch, results = TokenBatch.from_rows(rows), []
    torch.manual_seed(0)
    weights = torch.randn(len(batch.ids), module.dim, dtype=module.auto_model.dtype)
    for backend in (Packed(module.auto_model), CpuTraining(module.auto_model)):
        module.zero_grad()
        values = backend.forward(batch)
        (values * weights).sum().backward()
        parameters = dict(module.named_parameters()).values()
        results.append([values.detach(), *(torch.zeros(()) if p.grad is None else p.grad.clone() for p in parameters)])
    return results[0], results[1]


def agree(results: tuple[list[Tensor], list[Tensor]]) -> None:
    for expected, found in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-10)


@pytest.fixture(params=[0, 600, 10**9], ids=["a band a length", "some bands", "one band"])
def cost(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """From a call of attention for every run of rows of one length, to one for all."""
    monkeypatch.setattr(cpu_training, "_CALL", request.param)
    value: int = request.param
    return value


@pytest.mark.parametrize("family", ["roberta", "electra"])
def test_vectors_and_gradients(family: str, cost: int) -> None:
    module = transformer(family, torch.float64)
    number = len(cpu_training.bands(TokenBatch.from_rows(LONG), 2, torch.float64))
    assert {0: number == 6, 600: 1 < number < 6, 10**9: number == 1}[cost], number
    for rows in (ROWS, LONG, LONG * 13, [[3, 4, 5]], [[3, 4], [5, 6]]):
        agree(both(module, rows))


def test_half_precision_is_near_and_rounds_the_number_of_tokens() -> None:
    module = transformer("bert")
    exact = module(TokenBatch.from_rows(LONG)).values
    for p in module.parameters():
        p.grad = None
    with torch.autocast("cpu", torch.bfloat16):
        half = module(TokenBatch.from_rows(LONG)).values
    assert half.dtype == torch.bfloat16
    assert half.shape == exact.shape
    assert 0.999 < torch.cosine_similarity(half.float().flatten(), exact.flatten(), dim=0) < 1
    half.float().square().sum().backward()
    found = {n: p.grad for n, p in module.named_parameters() if p.grad is not None}
    assert {g.dtype for g in found.values()} == {torch.float32}
    module.zero_grad()
    module(TokenBatch.from_rows(LONG)).values.square().sum().backward()
    expected = {n: p.grad for n, p in module.named_parameters() if p.grad is not None}
    assert found.keys() == expected.keys()
    a, b = (torch.cat([grads[name].flatten() for name in found]) for grads in (found, expected))
    assert 0.998 < torch.cosine_similarity(a, b, dim=0) < 1


# ----------------------------------------------------------------------------------------------------------- dropout


@pytest.mark.parametrize("probability", [0.0, 0.1, 0.5, 1.0])
def test_dropout_drops_its_part_and_keeps_the_mean(probability: float) -> None:
    torch.manual_seed(0)
    mask = cpu_training.dropout_mask(torch.Size([401, 503]), probability, torch.zeros((), dtype=torch.float64))
    if probability == 0:
        assert mask is None
        return
    assert mask is not None
    assert mask.shape == (401, 503)
    assert float((mask == 0).double().mean()) == pytest.approx(probability, abs=0.005)
    values = mask[mask != 0].unique()
    assert len(values) == (probability < 1)
    if probability < 1:
        assert float(values[0]) == pytest.approx(1 / (1 - probability), rel=1e-4)
        assert float(mask.mean()) == pytest.approx(1, abs=0.01)
        columns = (mask == 0).double().mean(0)  # Every place is dropped as often as the others.
        assert columns.std() < 2 * (probability * (1 - probability) / 401) ** 0.5
        again = cpu_training.dropout_mask(torch.Size([401, 503]), probability, mask)
        assert again is not None
        assert not torch.equal(mask, again)


def test_gradients_with_dropout_are_those_of_the_same_random_numbers() -> None:
    """Along a random direction, against finite differences."""
    module = transformer("bert", torch.float64).train()
    batch = TokenBatch.from_rows(LONG)

    def value() -> Tensor:
        torch.manual_seed(7)
        return module(batch).values.square().sum()

    evaluated = copy.deepcopy(module).eval()(batch).values.square().sum().detach()
    value().backward()
    torch.manual_seed(1)
    parameters = [p for p in module.parameters() if p.grad is not None]
    ways = [torch.randn_like(p) for p in parameters]
    expected = sum(float((p.grad * way).sum()) for p, way in zip(parameters, ways, strict=True) if p.grad is not None)
    values = []
    with torch.no_grad():
        for size in (1e-6, -2e-6):
            for p, way in zip(parameters, ways, strict=True):
                p += size * way
            values.append(float(value().detach()))
    assert (values[0] - values[1]) / 2e-6 == pytest.approx(expected, rel=1e-5)
    assert values[0] != pytest.approx(float(evaluated), rel=1e-5)


def test_the_dropouts_of_the_modules_are_heeded() -> None:
    module = transformer("bert", torch.float64).train()
    for part in module.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0
    batch = TokenBatch.from_rows(ROWS)
    expected = module(batch).values
    assert torch.equal(module(batch).values, expected)
    for drop in (layers(module).dropout, *vars(layers(module).layers[1]).values()):
        if isinstance(drop, nn.Dropout):
            drop.p = 0.5
            assert not torch.allclose(module(batch).values, expected)
            drop.eval()
            torch.testing.assert_close(module(batch).values, expected)
            drop.train().p = 0.0


# --------------------------------------------------------------------------------------------- when it is not used


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which way each forward went."""
    seen: list[str] = []
    for backend in (CpuTraining, Packed):

        def spy(*arguments: Any, original: Any = backend.forward, name: str = backend.name) -> Any:
            seen.append(name)
            return original(*arguments)

        monkeypatch.setattr(backend, "forward", spy)
    return seen


def way(module: Transformer, calls: list[str]) -> str:
    module(TokenBatch.from_rows(ROWS))  # Compares the ways.
    calls.clear()
    module(TokenBatch.from_rows(ROWS))
    (one,) = calls
    return one


def test_it_is_used_for_training_alone(calls: list[str]) -> None:
    module = transformer("bert").eval()
    assert way(module, calls) == "cpu_training"
    with torch.no_grad():
        assert way(module, calls) == "packed"
        assert way(module.train(), calls) == "cpu_training"  # The first pass of cached gradients.
    assert way(transformer("modernbert"), calls) == "packed"
    assert way(transformer("albert"), calls) == "packed"


def test_hooks_adapters_and_checkpointing_go_the_other_way(calls: list[str]) -> None:
    module = transformer("bert")
    hook = module.auto_model.encoder.layer[1].register_forward_hook(lambda *_: None)
    assert way(module, calls) == "packed"
    hook.remove()
    assert way(module, calls) == "cpu_training"
    hook = module.auto_model.encoder.layer[1].register_full_backward_hook(lambda *_: None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert way(module, calls) == "packed"
    hook.remove()
    module.auto_model.activation_checkpointing_enable({"use_reentrant": False})
    assert way(module, calls) == "packed"
    changed = transformer("bert")
    layer = changed.auto_model.encoder.layer[0].output
    layer.dense = nn.Sequential(layer.dense)
    assert way(changed, calls) == "packed"


def test_frozen_layers_get_no_gradient() -> None:
    module = transformer("bert", torch.float64)
    for name, parameter in module.named_parameters():
        parameter.requires_grad_("layer.1" in name)
    agree(both(module, ROWS))
    assert {n for n, p in module.named_parameters() if p.grad is not None} == {
        n for n, p in module.named_parameters() if "layer.1" in n
    }


@pytest.mark.parametrize("vendor", ["AuthenticAMD", "GenuineIntel"])
def test_single_precision_on_each_processor(vendor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The products of oneDNN and of MKL, forward and backward, agree with double precision."""
    monkeypatch.setattr(linear, "_processor", lambda: vendor)
    assert linear.uses_onednn(torch.float32) == (vendor == "AuthenticAMD")
    module = transformer("bert", torch.float64)
    expected, _ = both(module, LONG)
    single = copy.deepcopy(module).float()
    batch = TokenBatch.from_rows(LONG)
    torch.manual_seed(0)
    weights = torch.randn(len(batch.ids), module.dim, dtype=torch.float64).float()
    values = CpuTraining(single.auto_model).forward(batch)
    (values * weights).sum().backward()
    found = [values, *(torch.zeros(()) if p.grad is None else p.grad for p in single.parameters())]
    for wide, narrow in zip(expected, found, strict=True):
        torch.testing.assert_close(narrow.double(), wide.double(), rtol=1e-4, atol=1e-4)
