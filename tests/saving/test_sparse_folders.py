"""Folders of sparse encoders: read from sentence-transformers' SparseEncoder and by it, with equal vectors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SimilarityFunction, SparseEncoder
from sentence_transformers.sparse_encoder import modules as theirs

from sbert import Pooling, Router, SentenceEncoder, SparseStaticEmbedding, Transformer
from tests import small
from tests.modules.test_splade import NETWORKS, TOKENIZER, masked_lm

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
TEXTS = [text for text in small.TEXTS if text.strip()]
WEIGHTS = torch.rand(len(TOKENIZER), generator=torch.Generator().manual_seed(0))


def values(vectors: Any) -> Any:
    return vectors.toarray() if hasattr(vectors, "toarray") else vectors.to_dense().numpy()


def same(first: Any, second: Any) -> None:
    """Of queries and documents by two models."""
    for name in ("encode_query", "encode_document"):
        expected, found = (values(getattr(model, name)(TEXTS)) for model in (first, second))
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
        assert np.count_nonzero(expected) > len(TEXTS)


def ours(name: str = "Bert", mode: str = "splade", routed: bool = False) -> SentenceEncoder:
    documents = [Transformer(masked_lm(name).float(), TOKENIZER), Pooling(mode)]
    if routed:
        routes = {"query": [SparseStaticEmbedding(TOKENIZER, WEIGHTS)], "document": documents}
        return SentenceEncoder(Router(routes), prompts={"query": "", "document": "small "})
    return SentenceEncoder(*documents, prompts={"query": "red ", "document": ""})


@pytest.mark.parametrize(
    ("name", "mode", "routed"),
    [*((name, "splade", False) for name in NETWORKS), ("Bert", "splade_log1p", False), ("Bert", "splade", True)],
)
def test_they_read_what_is_written_and_write_what_is_read(name: str, mode: str, routed: bool, tmp_path: Path) -> None:
    model = ours(name, mode, routed)
    model.save(tmp_path / "ours")  # Without a warning that other programs do not read it.
    loaded = SentenceEncoder(tmp_path / "ours", similarity_fn_name=SimilarityFunction.DOT_PRODUCT)
    same(model, loaded)
    assert loaded.verify()
    assert loaded.is_sparse
    other = SparseEncoder(str(tmp_path / "ours"), device="cpu")
    same(model, other)
    assert other.similarity_fn_name == loaded.similarity_fn_name == "dot"
    other.save(str(tmp_path / "theirs"))
    same(model, SentenceEncoder(tmp_path / "theirs"))


def test_what_they_make(tmp_path: Path) -> None:
    """By their own modules: the transformer for the task fill-mask, and a limit of active dimensions."""
    plain = tmp_path / "plain"
    masked_lm("DistilBert").float().save_pretrained(plain)
    TOKENIZER.save_pretrained(plain)
    transformer = theirs.Transformer(str(plain), transformer_task="fill-mask")
    model = SparseEncoder(modules=[transformer, theirs.SpladePooling("max")], device="cpu", max_active_dims=7)
    model.save(str(tmp_path / "theirs"))
    loaded = SentenceEncoder(tmp_path / "theirs")
    same(model, loaded)
    assert loaded.max_active_dims == 7
    loaded.save(tmp_path / "ours")
    assert SentenceEncoder(tmp_path / "ours").encode(TEXTS).nnz == 7 * len(TEXTS)
    same(model, SparseEncoder(str(tmp_path / "ours"), device="cpu"))
    saved = SentenceEncoder(Transformer(plain, head="saved"), Pooling("splade"))
    np.testing.assert_allclose(values(saved.encode(TEXTS, max_active_dims=7)), values(loaded.encode(TEXTS)), atol=1e-6)
    static = theirs.SparseStaticEmbedding(TOKENIZER, weight=WEIGHTS, frozen=True)
    routes = theirs.Router.for_query_document([static], [transformer, theirs.SpladePooling("max", "log1p_relu")])
    router = SparseEncoder(modules=[routes], device="cpu")
    router.save(str(tmp_path / "router"))
    loaded = SentenceEncoder(tmp_path / "router")
    same(router, loaded)
    assert not loaded.route("query")[0].embedding.weight.requires_grad
    long = ["a " * 100 + "red"]
    assert np.array_equal(values(loaded.encode_query(long, on_truncate="ignore")), values(router.encode_query(long)))


def test_prompts_that_are_not_pooled_and_a_large_vocabulary(tmp_path: Path) -> None:
    """The file of reference vectors is one that is read, whatever the number of words."""
    model = SentenceEncoder(Transformer("sbert-mini", head="new", max_seq_length=3), Pooling("splade", False))
    model.save(tmp_path)
    loaded = SentenceEncoder(tmp_path)  # Without a warning that a text was truncated.
    assert loaded.verify()
    assert (tmp_path / "sbert_reference.json").stat().st_size * 250_000 / loaded[0].vocab_size < 10_000_000
    assert [loaded[1].include_prompt, Pooling(["splade", "mean"]).is_sparse] == [False, False]


def test_what_is_refused(tmp_path: Path) -> None:
    folder, routed = tmp_path / "model", tmp_path / "routed"
    ours().save(folder)
    ours(routed=True).save(routed)
    small.bert(tmp_path / "without")
    for strategy, shown in (("sum", "'sum relu'"), (["max"], r"\"\['max'\] relu\"")):
        config = {"pooling_strategy": strategy, "activation_function": "relu"}
        (folder / "1_Pooling" / "config.json").write_text(json.dumps(config))
        with pytest.raises(ValueError, match=f"1_Pooling.config.json.* gives the pooling mode {shown}"):
            SentenceEncoder(folder)
    weights = (folder / "model.safetensors").read_bytes()
    (routed / "query_0_SparseStaticEmbedding" / "model.safetensors").write_bytes(weights)
    with pytest.raises(ValueError, match=f"contains no weights of {len(TOKENIZER)} words"):
        SentenceEncoder(routed)
    (routed / "config_sentence_transformers.json").write_text('{"max_active_dims": 0}')
    with pytest.raises(ValueError, match="gives max_active_dims=0 where at least 1 is expected"):
        SentenceEncoder(routed)
    with pytest.raises(ValueError, match=r"lacks .* of the weights that config.json asks for, such as cls.predictions"):
        Transformer(tmp_path / "without", head="saved")
