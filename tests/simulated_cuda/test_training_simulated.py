"""Training in half precision: one attention kernel for all rows, forward and backward, also with dropout."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from sbert import SentenceEncoder, TokenBatch
from sbert.backends.attention import attend, padded_shape, without_cudnn
from sbert.batch import Ragged
from sbert.inputs.devices import default_batch_tokens
from sbert.losses import MultipleNegativesRankingLoss
from sbert.losses.signature import Signature
from sbert.pipeline.batching import plan, windows
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


@pytest.mark.parametrize("key_heads", [1, 2])
@pytest.mark.parametrize("options", [{}, {"causal": True}, {"window": 3, "scale": 0.3}, {"bias": 9}], ids=str)
def test_without_the_kernel_rows_are_padded(
    key_heads: int, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one call, of a shape that other batches have as well."""
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
    with simulated((7, 5)):
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


@pytest.mark.parametrize("name", ["normal", "uniform"])
def test_few_shapes(name: str) -> None:
    """Of the batches of 20,000 texts of 65 to 384 tokens."""
    rng = np.random.default_rng(0)
    drawn = rng.normal(200, 60, 20_000) if name == "normal" else rng.uniform(65, 385, 20_000)
    lengths, shapes, device = drawn.clip(65, 384).astype(np.int64), set(), torch.device("cuda")
    for window in windows(len(lengths), device):
        for rows in plan(lengths[window], default_batch_tokens(device)):
            offsets = torch.from_numpy(np.append(0, lengths[window][rows].cumsum()))
            shapes.add(padded_shape(Ragged(torch.zeros(0), offsets), device))
    assert len(shapes) <= 64
    # The grids of kernels have at most 65,535 rows.
    most = plan(np.ones(100_000, np.int64), 10**6)
    assert max(padded_shape(Ragged(torch.zeros(0), torch.arange(len(rows) + 1)), device)[0] for rows in most) <= 65_535


def test_torch_without_the_kernel() -> None:
    """As some builds are: rows are padded, with the same gradients."""
    values = [x.bfloat16().float() for x in inputs(8)]
    with simulated() as gpu:
        gpu.without_flash()
        expected = gradients(values, "cpu", torch.float32)
        result = gradients(values, "cuda", torch.bfloat16)
        assert gpu.count("kernel _flash_attention_forward") == 0
    for ours, theirs in zip(result, expected, strict=True):
        assert (ours - theirs).norm() <= 0.02 * theirs.norm()


# What torch 2.12 and 2.13 have beside the arguments of 2.10 and 2.11.
SIGNATURES = {"2.10": "", "2.12": ", Tensor? block_table=None, int? num_splits=None"}


@pytest.mark.parametrize("first", SIGNATURES)
def test_the_kernel_has_the_arguments_of_each_torch(first: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a stand-in with the signature of a release, from this one on."""
    operator, library = torch.ops.aten._flash_attention_forward, torch.library.Library("stand_in", "FRAGMENT")
    name = f"flash_{first.replace('.', '_')}"
    library.define(
        f"{name}(Tensor query, Tensor key, Tensor value, Tensor? cum_seq_q, Tensor? cum_seq_k, SymInt max_q,"
        " SymInt max_k, float dropout_p, bool is_causal, bool return_debug_mask, *, float? scale=None,"
        " SymInt? window_size_left=None, SymInt? window_size_right=None, Tensor? seqused_k=None,"
        f" Tensor? alibi_slopes=None{SIGNATURES[first]}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)"
    )
    library.impl(name, operator, "CompositeImplicitAutograd")
    values = [x.bfloat16().float() for x in inputs(8)]
    with simulated() as gpu:
        monkeypatch.setattr(torch.ops.aten, "_flash_attention_forward", getattr(torch.ops.stand_in, name))
        for options in ({}, {"causal": True, "scale": 0.3}, {"window": 4}):
            expected = gradients(values, "cpu", torch.float32, **options)
            result = gradients(values, "cuda", torch.bfloat16, **options)
            for ours, theirs in zip(result, expected, strict=True):
                assert (ours - theirs).norm() <= 0.02 * theirs.norm()
        assert gpu.count("kernel _flash_attention_backward") >= 3


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
