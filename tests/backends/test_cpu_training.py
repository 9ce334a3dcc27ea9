"""The layers for training on a CPU: the vectors and gradients of the Hugging Face module."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from sbert import TokenBatch, Transformer
from sbert.backends import cpu_training, linear, state
from sbert.backends.architectures import Backbone, describe
from sbert.backends.cpu_training import CpuTraining
from sbert.backends.packed import Packed
from tests import small
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
    module, vectors, gradients = transformer("bert"), [], []
    for half in (False, True):
        module.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            values = module(TokenBatch.from_rows(LONG)).values
        assert values.dtype == (torch.bfloat16 if half else torch.float32)
        values.float().square().sum().backward()
        vectors.append(values.detach().float().flatten())
        gradients.append(torch.cat([p.grad.flatten() for p in module.parameters() if p.grad is not None]))
    for exact, near in (vectors, gradients):
        assert 0.998 < torch.cosine_similarity(near, exact, dim=0) < 1


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
    module, batch = transformer("bert", torch.float64).train(), TokenBatch.from_rows(LONG)

    def value() -> Tensor:
        torch.manual_seed(7)
        return module(batch).values.square().sum()

    value().backward()
    parameters = {p: p.grad for p in module.parameters() if p.grad is not None}
    directions = [torch.randn_like(p) for p in parameters]
    expected = sum(float((g * way).sum()) for g, way in zip(parameters.values(), directions, strict=True))
    values = []
    with torch.no_grad():
        for size in (1e-6, -2e-6):
            for p, way in zip(parameters, directions, strict=True):
                p += size * way
            values.append(float(value()))
        assert values[0] != pytest.approx(float(module.eval()(batch).values.square().sum()), rel=1e-5)
    assert (values[0] - values[1]) / 2e-6 == pytest.approx(expected, rel=1e-5)


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


def chosen(module: Transformer) -> str:
    return state.select(module.auto_model, torch.device("cpu")).name


def test_it_is_used_for_training_alone() -> None:
    module = transformer("bert").eval()
    assert chosen(module) == "cpu_training"
    with torch.no_grad():
        assert chosen(module) == "packed"
        assert chosen(module.train()) == "cpu_training"  # The first pass of cached gradients.
    assert chosen(transformer("modernbert")) == chosen(transformer("albert")) == "packed"


def test_hooks_adapters_and_checkpointing_go_the_other_way() -> None:
    module = transformer("bert")
    layer = module.auto_model.encoder.layer[1]
    for register in (layer.register_forward_hook, layer.register_full_backward_hook):
        hook = register(lambda *_: None)
        assert chosen(module) == "packed"
        hook.remove()
        assert chosen(module) == "cpu_training"
    small.enable_checkpointing(module.auto_model, {"use_reentrant": False})
    assert chosen(module) == "packed"
    changed = transformer("bert")
    changed.auto_model.encoder.layer[0].output.dense = nn.Sequential(nn.Linear(32, 16))
    assert chosen(changed) == "packed"


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
