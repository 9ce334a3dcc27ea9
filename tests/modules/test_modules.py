"""Batches, poolings and similarities against plain loops, padded against packed, and their gradients."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from sbert import LSTM, Dense, Normalize, Pooling, TokenBatch, TokenEmbeddings, WordEmbeddings, functional
from sbert.modules.pooling import POOLINGS
from sbert.pipeline.quantization import quantize

LENGTHS = [3, 1, 7, 4]


def tokens(lengths: list[int] = LENGTHS, dim: int = 5, dtype: torch.dtype = torch.float64) -> TokenEmbeddings:
    torch.manual_seed(0)
    offsets = torch.tensor([0, *np.cumsum(lengths)])
    return TokenEmbeddings(torch.randn(int(offsets[-1]), dim, dtype=dtype, requires_grad=True), offsets)


def by_loop(mode: str, row: Tensor, first: int = 0) -> Tensor:
    """The formula of each pooling for one row, (tokens, dim)."""
    weights = torch.arange(first + 1, first + len(row) + 1, dtype=row.dtype)[:, None]
    return {
        "mean": lambda: row.sum(0) / len(row),
        "max": lambda: torch.stack([column.max() for column in row.unbind(1)]),
        "cls": lambda: row[0],
        "lasttoken": lambda: row[-1],
        "mean_sqrt_len": lambda: row.sum(0) / math.sqrt(len(row)),
        "weightedmean": lambda: (row * weights).sum(0) / weights.sum(),
    }[mode]()


def by_mask(mode: str, values: Tensor, mask: Tensor) -> Tensor:
    """The same on the padded form."""
    kept = mask[..., None].to(values.dtype)
    weights = kept * mask.cumsum(1)[..., None]
    last = mask.sum(1) - 1
    return {
        "mean": lambda: (values * kept).sum(1) / kept.sum(1),
        "max": lambda: values.masked_fill(~mask[..., None], -torch.inf).max(1).values,
        "cls": lambda: values[:, 0],
        "lasttoken": lambda: values[torch.arange(len(values)), last],
        "mean_sqrt_len": lambda: (values * kept).sum(1) / kept.sum(1).sqrt(),
        "weightedmean": lambda: (values * weights).sum(1) / weights.sum(1),
    }[mode]()


@pytest.mark.parametrize("mode", POOLINGS)
def test_pooling_is_its_formula(mode: str) -> None:
    batch = tokens()
    rows = batch.values.split(LENGTHS)
    expected = torch.stack([by_loop(mode, row) for row in rows])
    torch.testing.assert_close(Pooling(mode)(batch), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("mode", POOLINGS)
def test_packed_equals_padded(mode: str) -> None:
    """Values and gradients."""
    batch = tokens(dtype=torch.float32)
    torch.manual_seed(1)
    factor = torch.randn(len(LENGTHS), 5)
    results = []
    for pooled in (Pooling(mode)(batch), by_mask(mode, *batch.padded())):
        (gradient,) = torch.autograd.grad((pooled * factor).sum(), batch.values, retain_graph=True)
        results.append((pooled, gradient))
    torch.testing.assert_close(results[0], results[1], rtol=0, atol=1e-6)


@pytest.mark.parametrize("mode", POOLINGS)
def test_pooling_gradcheck(mode: str) -> None:
    batch = tokens()
    offsets = batch.offsets
    assert torch.autograd.gradcheck(lambda x: Pooling(mode)(TokenEmbeddings(x, offsets)), batch.values)


@pytest.mark.parametrize("mode", POOLINGS)
@pytest.mark.parametrize("lengths", [[0], [0, 2], [2, 0], [0, 0, 3, 0]])
def test_empty_rows_give_zeros(mode: str, lengths: list[int]) -> None:
    pooled = Pooling(mode)(tokens(lengths))
    for length, vector in zip(lengths, pooled, strict=True):
        assert torch.isfinite(vector).all()
        assert (vector == 0).all() == (length == 0)


@pytest.mark.parametrize("mode", POOLINGS)
def test_prompt_left_out(mode: str) -> None:
    """The weights of weightedmean keep counting from the text's first token."""
    full = tokens()
    prompts = torch.tensor([1, 1, 2, 3])
    batch = TokenEmbeddings(full.values, full.offsets, prompt_tokens=prompts)
    pooled = Pooling(mode, include_prompt=False)(batch)
    for row, prompt, vector in zip(full.values.split(LENGTHS), prompts.tolist(), pooled, strict=True):
        if prompt < len(row):
            torch.testing.assert_close(vector, by_loop(mode, row[prompt:], prompt))
        else:
            assert (vector == 0).all()
    torch.testing.assert_close(Pooling(mode)(batch), Pooling(mode)(full))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_sums_in_float32(dtype: torch.dtype) -> None:
    values = torch.full((5000, 1), 1.0, dtype=dtype)
    pooled = Pooling(["mean", "weightedmean"])(TokenEmbeddings(values, torch.tensor([0, 5000])))
    assert pooled.dtype == torch.float32
    torch.testing.assert_close(pooled, torch.ones(1, 2))


def test_modes_are_concatenated_in_order() -> None:
    batch = tokens()
    both = Pooling(["max", "cls"])(batch)
    torch.testing.assert_close(both, torch.cat([Pooling("max")(batch), Pooling("cls")(batch)], 1))


@pytest.mark.parametrize("mode", ["median", [], ["mean", "median"]])
def test_unknown_pooling(mode: str | list[str]) -> None:
    with pytest.raises(ValueError, match="unknown; pass one or more of cls, max"):
        Pooling(mode)


def test_padded_form() -> None:
    batch = TokenBatch.from_rows([[5, 6, 7], [], [8]], prompt_tokens=2)
    ids, mask = batch.padded(fill=9)
    assert ids.tolist() == [[5, 6, 7], [9, 9, 9], [8, 9, 9]]
    assert mask.tolist() == [[True] * 3, [False] * 3, [True, False, False]]
    assert batch.prompt_tokens is not None
    assert batch.prompt_tokens.tolist() == [2, 0, 1]
    assert batch.to("cpu").longest == 3
    empty = TokenBatch.from_rows([])
    assert (empty.rows, empty.longest, tuple(empty.padded()[0].shape)) == (0, 0, (0, 0))


def test_lstm_reads_each_row_alone() -> None:
    torch.manual_seed(0)
    module = LSTM(5, 4, layers=2).double().eval()
    batch = tokens([3, 0, 7])
    together = module(batch).values.split([3, 0, 7])
    for row, output in zip(batch.values.split([3, 0, 7]), together, strict=True):
        if len(row):
            torch.testing.assert_close(output, module.encoder(row[None])[0][0])
        assert output.shape == (len(row), 8)


def test_dense_and_normalize() -> None:
    torch.manual_seed(0)
    x = torch.randn(3, 4)
    module = Dense(4, 2, activation="ReLU", residual=True)
    expected = torch.relu(x @ module.linear.weight.T + module.linear.bias) + x @ module.residual.weight.T
    torch.testing.assert_close(module(x), expected)
    torch.testing.assert_close(Normalize()(x), x / x.norm(dim=1, keepdim=True))
    with pytest.raises(ValueError, match="activation 'exec' is unknown; pass one of"):
        Dense(1, 1, activation="exec")


def test_word_vectors_file(tmp_path: object) -> None:
    path = tmp_path / "vectors.txt"  # type: ignore[operator]
    path.write_text("3 2\nred 1 2\nNew York 3 4\n, 5 6\n", encoding="utf-8")
    words = WordEmbeddings.from_text_file(path)
    assert words.words == ["red", "New York", ","]
    assert words.embedding.weight.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert words.tokenize(['"red" RED , blue']) == [[0, 0, 2]]
    assert len(WordEmbeddings.from_text_file(path, max_words=1).words) == 1
    for bad in ("a 1 2\nb 1\n", "a 1 2\nb 1 x\n", "a 1 2\nb 1 nan\n", "a 1 2\n\n"):
        path.write_text(bad, encoding="utf-8")
        with pytest.raises(ValueError, match=r"vectors.txt, line 2: expected a word and 2 numbers"):
            WordEmbeddings.from_text_file(path)


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_similarities(kind: str) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(4, 6)), rng.normal(size=(3, 6))
    expected = {
        "cosine": a @ b.T / np.linalg.norm(a, axis=1)[:, None] / np.linalg.norm(b, axis=1),
        "dot": a @ b.T,
        "euclidean": -np.sqrt(((a[:, None] - b) ** 2).sum(2)),
        "manhattan": -np.abs(a[:, None] - b).sum(2),
    }
    for name, scores in expected.items():
        given = (a, b) if kind == "numpy" else (torch.from_numpy(a), torch.from_numpy(b))
        result = functional.SIMILARITIES[name](*given)
        assert isinstance(result, np.ndarray if kind == "numpy" else Tensor)
        np.testing.assert_allclose(np.asarray(result), scores, atol=1e-12)
        pairs = functional.pairwise_similarity(given[0][:3], given[1], name)
        np.testing.assert_allclose(np.asarray(pairs), np.diag(scores), atol=1e-12)


def test_similarity_errors() -> None:
    with pytest.raises(ValueError, match="dim 2 and 3 cannot be compared"):
        functional.cos_sim(np.ones((1, 2)), np.ones((1, 3)))
    with pytest.raises(ValueError, match=r"must have the shape \(rows, dim\) or \(dim,\), not \(1, 1, 2\)"):
        functional.cos_sim(np.ones((1, 1, 2)), np.ones((1, 2)))
    with pytest.raises(ValueError, match="2 rows and 3 rows"):
        functional.pairwise_similarity(np.ones((2, 2)), np.ones((3, 2)))
    with pytest.raises(ValueError, match="'cos' is unknown; pass one of cosine, dot"):
        functional.pairwise_similarity(np.ones((2, 2)), np.ones((2, 2)), "cos")


def test_bits_like_sentence_transformers() -> None:
    from sentence_transformers.util import quantize_embeddings

    vectors = np.random.default_rng(0).normal(size=(5, 24)).astype(np.float32)
    for precision in ("binary", "ubinary"):
        expected = quantize_embeddings(vectors, precision)
        result = quantize(torch.from_numpy(vectors), precision).numpy()
        assert result.dtype == expected.dtype
        assert np.array_equal(result, expected)
