"""Modules and batches against plain loops; the poolings are in ``tests/contract``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from sbert import LSTM, Dense, Normalize, SentenceEncoder, TokenEmbeddings, WordEmbeddings


def test_lstm_reads_each_row_alone() -> None:
    torch.manual_seed(0)
    module = LSTM(5, 4, layers=2).double().eval()
    offsets = torch.tensor([0, 3, 3, 10])
    batch = TokenEmbeddings(torch.randn(10, 5, dtype=torch.float64), offsets)
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
    assert WordEmbeddings.from_text_file(path, stop_words=["red"]).tokenize(['"red" RED , blue']) == [[2]]
    for bad in ("a 1 2\nb 1\n", "a 1 2\nb 1 x\n", "a 1 2\nb 1 nan\n", "a 1 2\n\n"):
        path.write_text(bad, encoding="utf-8")
        with pytest.raises(ValueError, match=r"vectors.txt, line 2: expected a word and 2 numbers"):
            WordEmbeddings.from_text_file(path)


@pytest.mark.parametrize("backend", ["auto", "plain"])
def test_a_batch_that_was_used_in_inference_mode_has_gradients(folder: Path, backend: str) -> None:
    """What its rows have in common is computed once, for both."""
    model = SentenceEncoder(folder, device="cpu", backend=backend)
    batch = model.tokens(["one boat", "two red boats"]).batch(np.arange(2))
    with torch.inference_mode():
        model(batch)
    model.train()
    model(batch).sum().backward()
    assert all(weight.grad is not None for weight in model[0].auto_model.encoder.parameters())
