"""Memory of a model on a GPU, per weight: a folder in half precision needs no copies, and no part is held twice."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sbert import SentenceEncoder
from tests import small
from tests.backends.test_families import FAMILIES, build
from tests.simulated_cuda.simulator import simulated

pytestmark = [pytest.mark.simulated_cuda, pytest.mark.filterwarnings("ignore::DeprecationWarning:transformers")]
# As much in each part of a layer, relative to the others, as Qwen3-Embedding-0.6B and ModernBERT-base have.
SHAPES: dict[str, dict[str, Any]] = {
    "qwen3": {"hidden_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64},
    "modernbert": {"hidden_size": 128, "num_attention_heads": 2, "intermediate_size": 192},
}
SHAPES["qwen3"]["intermediate_size"] = 384
# Dtypes of the folder and of ``encode``: bytes per weight. In float32 with half precision, the weights and one copy.
MOST = {("bfloat16", "auto"): 2.2, ("float16", "auto"): 2.2, ("float32", "auto"): 6.2, ("float32", "float32"): 4.2}


@pytest.mark.parametrize(("stored", "dtype"), MOST, ids=str)
@pytest.mark.parametrize("family", SHAPES)
def test_bytes_per_weight(
    family: str, stored: str, dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**SHAPES[family], "num_hidden_layers": 2}.items():
        monkeypatch.setitem(FAMILIES[family][2], name, value)
    folder = build(family, tmp_path, dtype=getattr(torch, stored))
    expected = SentenceEncoder(folder, device="cpu").encode(small.TEXTS, on_truncate="ignore")
    with simulated() as gpu:
        before = gpu.call("used")
        model = SentenceEncoder(folder, device="cuda", dtype=dtype)
        vectors = model.encode(small.TEXTS, on_truncate="ignore")
        gc.collect()
        taken = (gpu.call("used") - before) / sum(weight.numel() for weight in model.parameters())
    assert model.dtype == getattr(torch, stored)
    assert (vectors * expected).sum(1).min() >= 0.9995  # Random weights of these sizes are sensitive to rounding.
    assert vectors.dtype == np.float32
    assert taken <= MOST[stored, dtype]
