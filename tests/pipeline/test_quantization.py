"""Codes of int8 are those of sentence-transformers, and a vector's code is its own affair."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sbert import Pooling, SentenceEncoder, Transformer
from sbert.pipeline.quantization import calibrate, check_ranges, dequantize, quantize
from tests import small


def vectors(rows: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(rows, 12)).astype(np.float32))


def test_codes_are_theirs() -> None:
    from sentence_transformers.util import quantize_embeddings

    sample, coded = vectors(100), vectors(50, 1)
    ranges = calibrate(sample)
    expected = quantize_embeddings(coded.numpy(), "int8", calibration_embeddings=sample.numpy())
    np.testing.assert_array_equal(quantize(coded, "int8", ranges).numpy(), expected)
    for precision in ("binary", "ubinary"):
        np.testing.assert_array_equal(quantize(coded, precision).numpy(), quantize_embeddings(coded.numpy(), precision))


def test_a_code_stands_for_the_middle_of_its_step() -> None:
    """No number within the ranges is farther from what its code stands for than half a step, and some are as far."""
    sample = vectors(4000)
    ranges = calibrate(sample)
    step = (ranges[1] - ranges[0]) / 255
    again = dequantize(quantize(sample, "int8", ranges), "int8", ranges)
    assert again.dtype == torch.float32
    off = (again - sample).abs().numpy() / step
    assert 0.49 < off.max() < 0.5001
    for value, code in ((1000, 127), (-1000, -128)):
        assert (quantize(torch.full((1, 12), float(value)), "int8", ranges) == code).all()


@pytest.mark.parametrize("precision", ["binary", "ubinary"])
def test_bits_stand_for_signs(precision: str) -> None:
    some = vectors(20)
    assert torch.equal(dequantize(quantize(some, precision), precision, dim=12), some.sign())


def test_encode_gives_int8(tmp_path: Path) -> None:
    model = SentenceEncoder(Transformer(small.bert(tmp_path / "bert")), Pooling("mean"), device="cpu")
    texts = ["one two", "seven red hills", "the lake", "small boat", "one two"]
    plain = model.encode(texts)
    ranges = calibrate(plain)
    codes = model.encode(texts, precision="int8", ranges=ranges)
    assert codes.dtype == np.int8
    np.testing.assert_array_equal(codes, quantize(torch.from_numpy(plain), "int8", ranges).numpy())
    written = model.encode(texts, precision="int8", ranges=ranges, out=tmp_path / "codes.npy")
    np.testing.assert_array_equal(written, codes)
    assert model.encode([], precision="int8", ranges=ranges).shape == (0, 16)
    with pytest.raises(ValueError, match="precision='int8' needs ranges"):
        model.encode(texts, precision="int8")
    with pytest.raises(ValueError, match="precision='float32' takes no ranges"):
        model.encode(texts, ranges=ranges)


@pytest.mark.parametrize("ranges", [np.ones((2, 3)), np.ones(12), [[np.nan] * 12] * 2, [[1] * 12, [0] * 12]])
def test_ranges_that_do_not_fit(ranges: Any) -> None:
    with pytest.raises(ValueError, match="do not fit vectors of dim 12"):
        check_ranges(ranges, 12)


@pytest.mark.parametrize(
    ("sample", "message"),
    [
        (np.ones((1, 12)), r"shape \(1, 12\); pass at least two vectors"),
        ([[np.nan], [1.0]], r"vectors\[0\] has a NaN"),
        ([[np.inf], [1.0]], "do not fit"),
    ],
)
def test_samples_that_give_no_ranges(sample: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        calibrate(sample)


def test_float16() -> None:
    vectors = np.array([[0.1, -2.0], [60000.0, 0.0]], np.float32)
    codes = quantize(vectors, "float16")
    assert codes.dtype == np.float16
    np.testing.assert_allclose(dequantize(codes, "float16"), vectors, rtol=1e-3)
    with pytest.raises(ValueError, match=r"vectors\[1\] exceeds 65504"):
        quantize(vectors * 2, "float16")
