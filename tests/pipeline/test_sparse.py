"""What a sparse encoder returns: the values of its dense vectors, as SciPy's or torch's matrices."""

from __future__ import annotations

import builtins
import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array, load_npz

from sbert import Pooling, SentenceEncoder
from sbert.evaluation import RerankingEvaluator, RetrievalEvaluator
from tests import small
from tests.modules.test_splade import masked_lm, model_of

TEXTS = [*small.TEXTS, small.TEXTS[0], "lake lake"]


@pytest.fixture(scope="module")
def model() -> SentenceEncoder:
    return model_of().float()


@pytest.fixture(scope="module")
def dense(model: SentenceEncoder) -> Any:
    """One text at a time by the modules."""
    with torch.no_grad():
        return torch.cat([model(model.tokenize([text])) for text in TEXTS]).numpy()


def test_forms_of_the_result(model: SentenceEncoder, dense: Any) -> None:
    vectors: Any = model.encode(TEXTS, batch_size=3)
    assert isinstance(vectors, csr_array)
    assert vectors.dtype == np.float32
    assert vectors.has_canonical_format
    assert vectors.nnz == np.count_nonzero(dense)
    np.testing.assert_allclose(vectors.toarray(), dense, rtol=1e-5, atol=1e-6)
    tensor = model.encode(TEXTS, convert_to_tensor=True)
    assert tensor.is_sparse
    assert np.array_equal(tensor.to_dense().numpy(), vectors.toarray())
    listed: Any = model.encode(TEXTS, convert_to_numpy=False)
    assert np.array_equal(np.stack([vector.to_dense().numpy() for vector in listed]), vectors.toarray())
    one: Any = model.encode(TEXTS[1])
    np.testing.assert_allclose(one.toarray(), dense[1:2], rtol=1e-5, atol=1e-6)
    assert model.encode(TEXTS[1], convert_to_tensor=True).shape == dense[1].shape
    for options in ({}, {"convert_to_tensor": True}):
        assert model.encode([], **options).shape == (0, dense.shape[1])
    both: Any = model.encode(TEXTS[:2], output_value=None)
    assert both[1]["token_embeddings"].shape == (len(model[0].tokenize([TEXTS[1]])[0]), 16)
    with model.pool(["cpu", "cpu"]) as pool:
        assert abs(model.encode(TEXTS, pool=pool) - vectors).max() < 1e-6


def test_the_greatest_dimensions_remain(model: SentenceEncoder, dense: Any) -> None:
    vectors: Any = model.encode(TEXTS, max_active_dims=3)
    for row, full in zip(vectors.toarray(), dense, strict=True):
        assert sorted(np.flatnonzero(row)) == sorted(np.argsort(-full, kind="stable")[:3])
        np.testing.assert_allclose(row[row > 0], full[row > 0], rtol=1e-5)
    assert model.encode(TEXTS, max_active_dims=10**6).nnz == np.count_nonzero(dense)
    with pytest.raises(ValueError, match="max_active_dims=0"):
        model.encode(TEXTS, max_active_dims=0)


def test_words_and_similarity(model: SentenceEncoder, dense: Any) -> None:
    vectors: Any = model.encode(TEXTS)
    words = model.decode(vectors, top=4)
    for found, row in zip(words, dense, strict=True):
        order = np.argsort(-row, kind="stable")[:4].tolist()
        assert [word for word, _ in found] == model.tokenizer.convert_ids_to_tokens(order)
        assert [weight for _, weight in found] == pytest.approx(row[order].tolist(), rel=1e-5)
    tensor = model.encode(TEXTS, convert_to_tensor=True)
    for same in (tensor, tensor.to_dense(), vectors.toarray()):
        assert model.decode(same, 4) == words
    assert model.decode(tensor[0], 4) == words[:1]
    assert model.similarity_fn_name == "dot"
    np.testing.assert_allclose(model.similarity(vectors, vectors), dense @ dense.T, rtol=1e-5)
    for first, second in ((tensor[0], tensor), (tensor, tensor[0])):
        expected = (dense[:1] @ dense.T) if first.ndim == 1 else dense @ dense[:1].T
        np.testing.assert_allclose(model.similarity(first, second).numpy(), expected, rtol=1e-5)
    with pytest.raises(ValueError, match="compared by their dot product, not cosine"):
        SentenceEncoder(*model, similarity_fn_name="cosine")


def test_wrong_arguments(model: SentenceEncoder, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="precision='int8' is for dense vectors"):
        model.encode(TEXTS, precision="int8", ranges=[[0] * 119, [1] * 119])
    with pytest.raises(ValueError, match="max_active_dims= is for sparse vectors, and the model's are dense"):
        SentenceEncoder().encode(TEXTS, max_active_dims=3)
    for options in ({"out": tmp_path / "x.npy"}, {"out": tmp_path / "x.npz", "shard": (0, 2)}):
        with pytest.raises(ValueError, match=r"several sentences, as an array; sparse ones: a \.npz"):
            model.encode(TEXTS, **options)  # type: ignore[arg-type]
    assert not [*tmp_path.iterdir()]


def test_a_file(model: SentenceEncoder, tmp_path: Path) -> None:
    for texts in (TEXTS, TEXTS[:2]):  # It is replaced.
        vectors: Any = model.encode(texts, out=tmp_path / "vectors.npz")
        assert abs(load_npz(tmp_path / "vectors.npz") - vectors).max() == 0
    assert len([*tmp_path.iterdir()]) == 1


def test_without_scipy(model: SentenceEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str, *args: Any, **options: Any) -> Any:
        if name.startswith("scipy"):
            raise ImportError(name)
        return importlib.__import__(name, *args, **options)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ImportError, match=r"needs scipy; run: pip install \"sbert\[sparse\]\", or pass convert_to_ten"):
        model.encode(TEXTS)
    assert model.encode(TEXTS, convert_to_tensor=True).is_sparse


def test_a_network_with_a_head_is_a_dense_encoder_with_another_pooling() -> None:
    """Its vectors are those of the network without the head, by the faster backends, too."""
    with_head = model_of().float()
    network = masked_lm().float().base_model
    first, second = with_head[0], type(with_head[0])(network, with_head.tokenizer)
    vectors = [SentenceEncoder(transformer, Pooling("mean")).encode(TEXTS) for transformer in (first, second)]
    np.testing.assert_allclose(*vectors, rtol=1e-5, atol=1e-6)


def test_evaluators(model: SentenceEncoder, dense: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """They compare by the dot product, in small blocks, and count active dimensions."""
    monkeypatch.setattr("sbert.evaluation.retrieval._NUMBERS", 3 * dense.shape[1])
    corpus = dict(enumerate(dict.fromkeys(TEXTS)))
    scores = dense[[0, 1]] @ dense[: len(corpus)].T
    best = scores.argmax(1).tolist()
    evaluator = RetrievalEvaluator({"a": TEXTS[0], "b": TEXTS[1]}, corpus, {"a": {best[0]}, "b": {best[1]}})
    metrics = evaluator(model)
    assert metrics["accuracy@1"] == 1
    assert metrics["query_active_dims"] == np.count_nonzero(dense[[0, 1]]) / 2
    rows = [TEXTS.index(text) for text in corpus.values()]
    assert metrics["document_active_dims"] == pytest.approx(np.count_nonzero(dense[rows]) / len(corpus))
    assert "query_active_dims" not in evaluator(SentenceEncoder())
    others = [text for number, text in corpus.items() if number not in best]
    sample = {"query": TEXTS[0], "positive": [corpus[best[0]]], "negative": others}
    assert RerankingEvaluator([sample])(model)["map"] == 1
