"""Vectors of the simulated GPU are those of the CPU, for every family, by every backend, in every dtype."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from sbert import SentenceEncoder
from sbert.backends.fused import Fused
from sbert.backends.half_precision import HalfPrecision
from sbert.backends.packed import Packed
from tests import small
from tests.backends.test_families import build
from tests.simulated_cuda.simulator import simulated

pytestmark = [pytest.mark.simulated_cuda, pytest.mark.filterwarnings("ignore::DeprecationWarning:transformers")]
# What is not there when a way is to be taken.
WAYS = {"fastest": (), "packed": (Fused, HalfPrecision), "padded": (Fused, HalfPrecision, Packed)}
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
        if way == "fastest":
            singles = np.stack([model.encode(text, on_truncate="ignore") for text in small.TEXTS])
            assert (singles * expected).sum(1).min() >= least
