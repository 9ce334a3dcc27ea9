"""What a sparse encoder returns: the values of its dense vectors, as SciPy's or torch's matrices."""

from __future__ import annotations

import builtins
import importlib
import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array, load_npz

from sbert import SentenceEncoder
from sbert.evaluation import RetrievalEvaluator
from sbert.pipeline.results import EncodeToArray
from tests import small
from tests.modules.test_splade import model_of

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
    assert vectors.has_canonical_format
    assert vectors.nnz == np.count_nonzero(dense)
    np.testing.assert_allclose(vectors.toarray(), dense, rtol=1e-5, atol=1e-6)
    tensor = model.encode(TEXTS, convert_to_tensor=True, batch_size=3)
    assert tensor.is_sparse
    assert np.array_equal(tensor.to_dense().numpy(), vectors.toarray())
    listed: Any = model.encode(TEXTS, convert_to_numpy=False, batch_size=3)
    assert np.array_equal(np.stack([vector.to_dense().numpy() for vector in listed]), vectors.toarray())
    np.testing.assert_allclose(model.encode(TEXTS[1]).toarray(), dense[1:2], rtol=1e-5, atol=1e-6)
    assert model.encode(TEXTS[1], convert_to_tensor=True).shape == dense[1].shape
    assert model.encode([]).shape == model.encode([], convert_to_tensor=True).shape == (0, dense.shape[1])
    assert model.predict([]).shape == (0,)
    with model.pool(["cpu", "cpu"]) as pool:
        assert abs(model.encode(TEXTS, pool=pool) - vectors).max() < 1e-6
    both: Any = model.encode(TEXTS[1], output_value=None)
    np.testing.assert_allclose(both["sentence_embedding"], dense[1], rtol=1e-5, atol=1e-6)


def test_the_greatest_dimensions_remain(model: SentenceEncoder, dense: Any) -> None:
    vectors: Any = model.encode(TEXTS, max_active_dims=3)
    least = np.sort(dense, 1)[:, -3:-2]
    np.testing.assert_allclose(vectors.toarray(), np.where(dense >= least, dense, 0), rtol=1e-5, atol=1e-6)
    assert model.encode(TEXTS, max_active_dims=10**6).nnz == np.count_nonzero(dense)
    with pytest.raises(ValueError, match="max_active_dims=0"):
        model.encode(TEXTS, max_active_dims=0)
    parameters = inspect.signature(SentenceEncoder.encode).parameters
    assert EncodeToArray.__optional_keys__ | {"self", "sentences", "precision"} == parameters.keys()


def test_words_and_similarity(model: SentenceEncoder, dense: Any) -> None:
    vectors: Any = model.encode(TEXTS)
    words = model.decode(vectors, top=4)
    for found, row in zip(words, dense, strict=True):
        order = np.argsort(-row, kind="stable")[:4].tolist()
        assert [word for word, _ in found] == model.tokenizer.convert_ids_to_tokens(order)
        assert [weight for _, weight in found] == pytest.approx(row[order].tolist(), rel=1e-5)
    tensor = model.encode(TEXTS, convert_to_tensor=True)
    assert model.decode(tensor, 4) == model.decode(vectors.toarray(), 4) == words
    assert model.decode(tensor[0], 4) == model.decode(vectors[0], 4) == words[:1]
    np.testing.assert_allclose(model.similarity(vectors, vectors), dense @ dense.T, rtol=1e-5)
    np.testing.assert_allclose(model.similarity(tensor[0], tensor).numpy(), dense[:1] @ dense.T, rtol=1e-5)
    for row in (tensor[0], vectors[0]):
        np.testing.assert_allclose(model.similarity(row, vectors), dense[:1] @ dense.T, rtol=1e-5)
    for a, b in ((vectors, vectors), (tensor, tensor), (tensor, vectors)):
        np.testing.assert_allclose(model.similarity_pairwise(a, b), (dense * dense).sum(1), rtol=1e-5)
    np.testing.assert_allclose(model.predict([(text, text) for text in TEXTS]), (dense * dense).sum(1), rtol=1e-5)
    with pytest.raises(ValueError, match="compared by their dot product, not cosine"):
        SentenceEncoder(*model, similarity_fn_name="cosine")


def test_files_and_wrong_arguments(model: SentenceEncoder, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="precision='int8' is for dense vectors"):
        model.encode(TEXTS, precision="int8", ranges=[[0] * 119, [1] * 119])
    with pytest.raises(ValueError, match="max_active_dims= is for sparse vectors, and the model's are dense"):
        SentenceEncoder().encode(TEXTS, max_active_dims=3)
    for options in ({"out": tmp_path / "x.npy"}, {"out": tmp_path / "x.npz", "shard": (0, 2)}):
        with pytest.raises(ValueError, match=r"several sentences, as an array; sparse ones as \.npz"):
            model.encode(TEXTS, **options)  # type: ignore[arg-type]
    for texts in (TEXTS, TEXTS[:2]):  # It is replaced.
        vectors: Any = model.encode(texts, out=tmp_path / "vectors.npz")
        assert abs(load_npz(tmp_path / "vectors.npz") - vectors).max() == 0


def test_without_scipy(model: SentenceEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model.save(tmp_path / "model")

    def refuse(name: str, *args: Any, **options: Any) -> Any:
        if name.startswith("scipy"):
            raise ImportError(name)
        return importlib.__import__(name, *args, **options)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ImportError, match=r"needs scipy; run: pip install \"sbert\[sparse\]\", or pass convert_to_ten"):
        model.encode(TEXTS)
    assert SentenceEncoder(tmp_path / "model").encode(TEXTS, convert_to_tensor=True).is_sparse


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
    active = np.count_nonzero(dense[[TEXTS.index(text) for text in corpus.values()]])
    assert metrics["document_active_dims"] == pytest.approx(active / len(corpus))
    assert "query_active_dims" not in evaluator(SentenceEncoder())
