"""The layers for training on a CPU: the vectors and gradients of the Hugging Face module, and dropout."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from sbert import TokenBatch, Transformer
from sbert.backends import state
from sbert.backends.attention import drop
from sbert.backends.cpu_training import CpuTraining
from sbert.backends.packed import Packed
from tests import small
from tests.backends.test_packed import ROWS, transformer


@pytest.fixture(autouse=True)
def with_avx512(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")


def chosen(module: Transformer) -> str:
    return state.select(module.auto_model, torch.device("cpu")).name


@pytest.mark.parametrize("family", ["bert", "roberta", "electra"])
def test_vectors_and_gradients(family: str) -> None:
    module, batch, results = transformer(family, torch.float64), TokenBatch.from_rows(ROWS), []
    assert chosen(module) == "cpu_training"
    weights = torch.randn(len(batch.ids), module.dim, dtype=torch.float64)
    for backend in (Packed(module.auto_model), CpuTraining(module.auto_model)):
        module.zero_grad()
        values = backend.forward(batch)
        (values * weights).sum().backward()
        results.append([values, *(p.grad for p in module.parameters() if p.grad is not None)])
    torch.testing.assert_close(*results, rtol=1e-9, atol=1e-10)


def test_half_precision_is_near() -> None:
    module, vectors, gradients = transformer("bert"), [], []
    for half in (False, True):
        module.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            values = module(TokenBatch.from_rows(ROWS)).values
        assert values.dtype == (torch.bfloat16 if half else torch.float32)
        values.float().square().sum().backward()
        vectors.append(values.detach().float().flatten())
        gradients.append(torch.cat([p.grad.flatten() for p in module.parameters() if p.grad is not None]))
    for exact, near in (vectors, gradients):
        assert 0.998 < torch.cosine_similarity(near, exact, dim=0) < 1


@pytest.mark.parametrize("probability", [0.0, 0.1, 0.5, 1.0])
def test_dropout_drops_its_part_and_keeps_the_mean(probability: float) -> None:
    torch.manual_seed(0)
    x = torch.ones(401, 503, dtype=torch.float64)
    found = drop(x, probability)
    assert float((found == 0).double().mean()) == pytest.approx(probability, abs=0.005)
    if probability < 1:
        assert found[found != 0].unique().tolist() == pytest.approx([1 / (1 - probability)], rel=1e-4)
        columns = (found == 0).double().mean(0)  # Every place is dropped as often as the others.
        assert columns.std() <= 2 * (probability * (1 - probability) / 401) ** 0.5
    assert torch.equal(found, drop(x, probability)) == (probability in (0, 1))


def test_gradients_with_dropout_are_those_of_the_same_random_numbers() -> None:
    """Along a random direction, against finite differences."""
    module, batch = transformer("bert", torch.float64).train(), TokenBatch.from_rows(ROWS)

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
    assert (values[0] - values[1]) / 2e-6 == pytest.approx(expected, rel=1e-5)


def test_each_dropout_of_the_modules_counts() -> None:
    module = transformer("bert", torch.float64).train()
    dropouts = [part for part in module.auto_model.modules() if isinstance(part, nn.Dropout)]
    for dropout in dropouts:
        dropout.p = 0.0
    batch = TokenBatch.from_rows(ROWS)
    expected = module(batch).values
    assert torch.equal(module(batch).values, expected)
    for dropout in dropouts:
        dropout.p = 0.5
        assert not torch.allclose(module(batch).values, expected)
        dropout.p = 0.0


def test_when_it_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    module = transformer("bert").eval()
    with torch.no_grad():
        assert chosen(module) == "packed"
        assert chosen(module.train()) == "cpu_training"  # The first pass of cached gradients.
    assert chosen(transformer("modernbert")) == "packed"
    hooked, checkpointed = transformer("bert"), transformer("bert")
    hooked.auto_model.encoder.layer[0].register_full_backward_hook(lambda *_: None)
    small.enable_checkpointing(checkpointed.auto_model, {"use_reentrant": False})
    assert chosen(hooked) == chosen(checkpointed) == "packed"
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")
    assert chosen(transformer("bert")) == "packed"
