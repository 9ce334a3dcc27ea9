"""Vectors of the simulated GPU are those of the CPU, for every family, dtype and generation of GPUs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sbert import SentenceEncoder
from tests import small
from tests.backends.test_families import FAMILIES, build
from tests.simulated_cuda.simulator import simulated

pytestmark = [
    pytest.mark.simulated_cuda,
    pytest.mark.filterwarnings("ignore::DeprecationWarning:transformers"),
]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("families")


def folder(folders: Path, family: str) -> Path:
    path = folders / family
    return path if path.exists() else build(family, path)


def encoded(model: SentenceEncoder, **options: object) -> np.ndarray:
    return model.encode(small.TEXTS, on_truncate="ignore", **options)  # type: ignore[call-overload,no-any-return]


@pytest.mark.parametrize("capability", [(7, 5), (8, 0), (9, 0)], ids=["7.5", "8.0", "9.0"])
@pytest.mark.parametrize("family", FAMILIES)
def test_float32_has_the_vectors_of_the_cpu(family: str, capability: tuple[int, int], folders: Path) -> None:
    expected = encoded(SentenceEncoder(folder(folders, family), device="cpu"))
    with simulated(capability):
        model = SentenceEncoder(folder(folders, family), device="cuda", dtype="float32")
        np.testing.assert_allclose(encoded(model), expected, atol=1e-6)


@pytest.mark.parametrize("capability", [(7, 5), (8, 0), (8, 9), (9, 0)], ids=["7.5", "8.0", "8.9", "9.0"])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_default_dtype_keeps_the_direction(family: str, capability: tuple[int, int], folders: Path) -> None:
    expected = encoded(SentenceEncoder(folder(folders, family), device="cpu"))
    with simulated(capability):
        model = SentenceEncoder(folder(folders, family), device="cuda")
        vectors = encoded(model)
        assert vectors.dtype == np.float32
        assert (vectors * expected).sum(1).min() >= 0.9998
        for text, vector in zip(small.TEXTS, vectors, strict=True):
            single = model.encode(text, on_truncate="ignore")
            assert single @ vector >= 0.9998
