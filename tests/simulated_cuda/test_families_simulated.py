"""Vectors of the simulated GPU are those of the CPU, for every family, by every backend, in every dtype."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from sbert import Normalize, Pooling, SentenceEncoder, Transformer
from sbert.backends import state
from sbert.backends.fused import Fused
from sbert.backends.packed import Packed
from tests import small
from tests.backends.test_families import build
from tests.simulated_cuda.simulator import simulated

pytestmark = [pytest.mark.simulated_cuda, pytest.mark.filterwarnings("ignore::DeprecationWarning:transformers")]
# What is not there when a way is to be taken.
WAYS = {"fastest": (), "packed": (Fused,), "padded": (Fused, Packed)}
PADDED = ("deberta-v3", "t5-encoder", "t5-whole")  # Their attention needs it.
BIASED = ("mpnet", *PADDED)  # Theirs has a bias, for which there is no kernel.
# Least cosine in half precision; queries and keys of 8 numbers each, with norms, are sensitive to rounding.
COSINES = {"qwen3": 0.9995}
# Kind, capability and dtype. On MPS, there is one backend, with padding.
DEVICES = {
    "cuda, float32": ("cuda", (8, 0), "float32"),
    "cuda, float16": ("cuda", (7, 5), "auto"),
    "cuda, bfloat16": ("cuda", (9, 0), "auto"),
    "xpu": ("xpu", (0, 0), "float32"),
    "mps": ("mps", (0, 0), "float32"),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("families")


@cache
def made(root: Path, family: str) -> tuple[Path, np.ndarray]:
    """A folder, and the vectors of the CPU."""
    folder = build(family, root / family)
    return folder, encoded(SentenceEncoder(folder, device="cpu"))


def encoded(model: SentenceEncoder) -> np.ndarray:
    return model.encode(small.TEXTS, on_truncate="ignore")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("family", ["bert", "roberta", "mpnet", "modernbert", "qwen3", "t5-encoder", "deberta-v3"])
def test_vectors_are_those_of_the_cpu(
    family: str, way: str, device: str, folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, capability, dtype = DEVICES[device]
    if way == "packed" and (family in PADDED or kind == "mps"):
        pytest.skip("there is no such way")
    (folder, expected), least = made(folders, family), COSINES.get(family, 0.9998)
    for backend in WAYS[way]:
        monkeypatch.setattr(backend, "supports", staticmethod(lambda *_: "it is not to be used"))
    run, plans = F.scaled_dot_product_attention, list[bool]()

    def attention(query: torch.Tensor, *others: Any, **options: Any) -> torch.Tensor:
        plans.append(query.is_cuda and torch.backends.cuda.cudnn_sdp_enabled())
        return run(query, *others, **options)

    monkeypatch.setattr(F, "scaled_dot_product_attention", attention)
    with simulated(capability, kind=kind) as gpu:
        model = SentenceEncoder(folder, device=kind, dtype=dtype)
        if way == "packed":
            model[0].materialize()  # The network of Hugging Face, not a minimal BERT.
        vectors = encoded(model)
        assert vectors.dtype == np.float32
        if dtype == "float32":
            np.testing.assert_allclose(vectors, expected, atol=1e-6)
            return
        assert (vectors * expected).sum(1).min() >= least
        if capability == (9, 0):
            kernels = gpu.count("kernel _flash_attention_forward")
            assert (kernels > 0) == (family not in BIASED and way != "padded"), kernels
            assert not any(plans), "plans of cuDNN"
        if way == "fastest":
            singles = np.stack([model.encode(text, on_truncate="ignore") for text in small.TEXTS])
            assert (singles * expected).sum(1).min() >= least


def test_a_long_row(folders: Path) -> None:
    text, vectors = "one two three " * 200, []
    for device in ("cpu", "cuda"):
        with simulated():
            transformer = Transformer(made(folders, "qwen3")[0], max_seq_length=640)
            model = SentenceEncoder(transformer, Pooling("mean"), Normalize(), device=device)
            vectors.append(model.encode(text, on_truncate="ignore"))
    assert vectors[0] @ vectors[1] >= COSINES["qwen3"]


def step(network: torch.nn.Module) -> None:
    for parameter in network.parameters():
        parameter.grad = torch.ones_like(parameter)
    torch.optim.SGD(network.parameters(), lr=0.05).step()


def edit(network: torch.nn.Module) -> None:
    for parameter in network.parameters():
        parameter.data.mul_(0.8)


@pytest.mark.parametrize("change", [step, edit])
@pytest.mark.parametrize("family", ["bert", "modernbert", "qwen3"])
def test_weights_that_change(family: str, change: Callable[[Any], None], folders: Path) -> None:
    folder, before = made(folders, family)
    reference = SentenceEncoder(folder, device="cpu")
    change(reference[0].network)
    expected = encoded(reference)
    with simulated():
        model = SentenceEncoder(folder, device="cuda")
        first = encoded(model)
        assert encoded(model).tobytes() == first.tobytes()
        change(model[0].network)
        assert (encoded(model) * expected).sum(1).min() >= 0.9998
    assert np.abs(before - expected).max() > 1e-2


@pytest.mark.filterwarnings("ignore:.*float16:UserWarning")
def test_what_t5_needs_in_float32(folders: Path) -> None:
    """Values of its feed-forward networks beyond the range of float16."""
    vectors = []
    for device in ("cpu", "cuda"):
        with simulated((7, 5)):
            model = SentenceEncoder(made(folders, "t5-encoder")[0], device=device)
            with torch.no_grad():
                for block in model[0].network.encoder.block:
                    block.layer[-1].DenseReluDense.wo.weight *= 1e5
            vectors.append(encoded(model))
    assert (vectors[0] * vectors[1]).sum(1).min() >= 0.9998


def test_without_memory_for_copies_the_module_runs(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In silence: the next call tries again."""
    folder, expected = made(folders, "modernbert")
    with simulated():
        model = SentenceEncoder(folder, device="cuda")
        with monkeypatch.context() as patch:
            patch.setattr(Fused, "__init__", Mock(side_effect=torch.OutOfMemoryError("CUDA out of memory")))
            assert (expected * encoded(model)).sum(1).min() >= 0.9998
            assert not is_fused(model)
        encoded(model)
        assert is_fused(model)


def is_fused(model: SentenceEncoder) -> bool:
    cached = state.state_of(model[0].network, state.ModelState).cached
    return cached is not None and cached.backend is not None
