"""Training in half precision: one attention kernel for all rows, forward and backward, also with dropout."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from sbert import SentenceEncoder, TokenBatch
from sbert.backends.attention import attend, without_cudnn
from sbert.losses import MultipleNegativesRankingLoss
from sbert.losses.signature import Signature
from sbert.training.backward import TrainingBatch, backward
from tests.backends.test_families import build
from tests.simulated_cuda.simulator import simulated

pytestmark = [pytest.mark.simulated_cuda, pytest.mark.filterwarnings("ignore::DeprecationWarning:transformers")]
LENGTHS = [3, 3, 1, 6, 9]
TEXTS = [(f"{a} boat " * n, f"the {b} lake") for n, (a, b) in enumerate(itertools.product(("one", "two"), "abcd"), 1)]


def batch(lengths: list[int] = LENGTHS) -> TokenBatch:
    return TokenBatch.from_rows([[1] * length for length in lengths])


def inputs(dim: int, key_heads: int = 2, scale: float = 1.0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    tokens = sum(LENGTHS)
    return [torch.randn(tokens, heads, dim, generator=generator) * scale for heads in (2, key_heads, key_heads)]


def gradients(values: list[Tensor], device: str, dtype: torch.dtype, **options: Any) -> list[Tensor]:
    leaves = [x.detach().to(device, dtype).requires_grad_() for x in values]
    out = attend(*leaves, batch().to(torch.device(device)), **options)
    weights = torch.linspace(-1, 1, out.numel()).view_as(out).to(device)
    (out.float() * weights).sum().backward()
    return [out.detach().cpu().float(), *(leaf.grad.cpu().float() for leaf in leaves if leaf.grad is not None)]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("dim", [8, 26])
@pytest.mark.parametrize("key_heads", [1, 2])
@pytest.mark.parametrize("options", [{}, {"causal": True}, {"window": 3, "scale": 0.3}], ids=str)
def test_gradient_of_all_rows(dtype: torch.dtype, dim: int, key_heads: int, options: dict[str, Any]) -> None:
    """One kernel each way; its output and gradients are those of float32 on the CPU."""
    values = [x.to(dtype).float() for x in inputs(dim, key_heads)]
    with simulated() as gpu:
        expected = gradients(values, "cpu", torch.float32, **options)
        result = gradients(values, "cuda", dtype, **options)
        assert gpu.count("kernel _flash_attention_backward") > 0
    assert len(result) == len(expected) == 4
    for ours, theirs in zip(result, expected, strict=True):
        assert (ours - theirs).norm() <= 0.01 * theirs.norm()


@pytest.mark.parametrize("capability", [(7, 5), (9, 0)])
@pytest.mark.parametrize("key_heads", [1, 2])
@pytest.mark.parametrize("options", [{}, {"causal": True}, {"window": 3, "scale": 0.3}, {"bias": 9}], ids=str)
def test_without_the_kernel_rows_are_padded(
    capability: tuple[int, int], key_heads: int, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one call, of a shape that other batches have as well: on older GPUs, and where torch is built without it."""
    calls, run = [], F.scaled_dot_product_attention

    def recorded(query: Tensor, *args: Any, **others: Any) -> Tensor:
        if query.is_cuda:
            calls.append(tuple(query.shape))
        return run(query, *args, **others)

    monkeypatch.setattr(F, "scaled_dot_product_attention", recorded)
    values = [x.half().float() for x in inputs(26, key_heads)]
    if longest := options.get("bias"):
        options = {"bias": torch.linspace(-1, 1, 2 * longest * longest).view(2, longest, longest)}
    half = {name: value.to("cpu", torch.half) if name == "bias" else value for name, value in options.items()}
    with simulated(capability), monkeypatch.context() as build:
        build.setattr(torch.backends.cuda, "is_flash_attention_available", lambda: False)
        expected = gradients(values, "cpu", torch.float32, **options)
        moved = {name: value.to("cuda") if name == "bias" else value for name, value in half.items()}
        result = gradients(values, "cuda", torch.half, **moved)
    assert calls == [(8, 2, 16, 32)]
    assert len(result) == len(expected) == 4
    for ours, theirs in zip(result, expected, strict=True):
        assert (ours - theirs).norm() <= 0.01 * theirs.norm()


def test_the_last_call_to_end_restores_cudnn() -> None:
    before, first, second = torch.backends.cuda.cudnn_sdp_enabled(), without_cudnn(), without_cudnn()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert not torch.backends.cuda.cudnn_sdp_enabled()
    second.__exit__(None, None, None)
    assert torch.backends.cuda.cudnn_sdp_enabled() == before


def model(folder: Path, device: str, dropout: float) -> SentenceEncoder:
    encoder = SentenceEncoder(folder, device=device, dtype="float32").train()
    for module in encoder.modules():
        for name in ("p", "attention_dropout", "dropout_prob"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, dropout)
    return encoder


def step(encoder: SentenceEncoder, dtype: torch.dtype, **options: Any) -> Tensor:
    """The gradient of one training step, of all parameters end to end."""
    encoder.zero_grad()
    loss = MultipleNegativesRankingLoss()
    texts = TrainingBatch.of(encoder, TEXTS, Signature.of(loss)).to(encoder.device)
    torch.manual_seed(7)
    backward(encoder, loss, texts, dtype=dtype, **options)
    return torch.cat([p.grad.flatten().cpu() for p in encoder.parameters() if p.grad is not None])


@pytest.mark.parametrize("family", ["bert", "modernbert", "qwen3"])
def test_gradients_of_a_model(family: str, tmp_path: Path) -> None:
    """They differ from those of float32 as little as those of padded rows (capability 7.5)."""
    folder = build(family, tmp_path / family)
    with simulated():
        expected = step(model(folder, "cpu", 0.0), torch.float32)
    distance = {}
    for capability in ((7, 5), (9, 0)):
        with simulated(capability) as gpu:
            gradient = step(model(folder, "cuda", 0.0), torch.bfloat16)
            assert (gpu.count("kernel _flash_attention_backward") > 0) == (capability == (9, 0))
            distance[capability] = float((gradient - expected).norm() / expected.norm())
            assert F.cosine_similarity(gradient, expected, 0) > 0.999
    assert distance[9, 0] <= 1.3 * distance[7, 5] + 1e-3


@pytest.mark.parametrize("family", ["bert", "modernbert", "qwen3"])
def test_chunks_computed_twice_drop_the_same(family: str, tmp_path: Path) -> None:
    """Gradient caching has the gradient of a plain step over the same chunks, from the first step on."""
    folder = build(family, tmp_path / family)
    with simulated():
        trained = model(folder, "cuda", 0.2)
        cached = step(trained, torch.bfloat16, chunk_tokens=24, cached=True)
        plain = step(trained, torch.bfloat16, chunk_tokens=24)
        torch.testing.assert_close(cached, plain, rtol=1e-4, atol=1e-6)
        assert (plain - step(trained.eval(), torch.bfloat16)).norm() > 0.01 * plain.norm()
