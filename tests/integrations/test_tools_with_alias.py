"""Programs that use sentence-transformers, with ``SentenceTransformer`` replaced by ours, and nothing of theirs."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sbert
from sbert import SentenceEncoder
from sbert.integrations.sentence_transformers import SentenceTransformer

pytestmark = pytest.mark.filterwarnings("ignore")  # Of the other packages.
MODEL = str(Path(sbert.__file__).parent / "default_model")
TEXTS = ["A cat sleeps.", "Taxes rise.", "Rain falls on the hills."]


@pytest.fixture(params=[SentenceEncoder, SentenceTransformer])
def tool(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """The module of a tool, which sees our class; ``holders`` have imported it under its name."""

    def imported(name: str, *holders: str) -> Any:
        monkeypatch.setattr("sentence_transformers.SentenceTransformer", request.param)
        module = pytest.importorskip(name, exc_type=ImportError)
        for holder in holders:  # As if it were imported now.
            monkeypatch.setattr(import_module(holder), "SentenceTransformer", request.param)
        return module

    return imported


@pytest.fixture(scope="module")
def vectors() -> np.ndarray:
    """Normalized, as the model gives them."""
    return SentenceEncoder(MODEL, device="cpu").encode(TEXTS)


def same(found: Any, expected: np.ndarray) -> bool:
    return np.abs(np.float32(found) - expected).max() < 1e-6


def test_haystack(tool: Callable[..., Any], vectors: np.ndarray) -> None:
    backend = "haystack_integrations.components.embedders.sentence_transformers"
    embedders = tool(backend, f"{backend}.embedding_backend.backend")
    from haystack import Document
    from haystack.utils import ComponentDevice

    options = {"model": MODEL, "device": ComponentDevice.from_str("cpu"), "progress_bar": False, "token": None}
    query = embedders.SentenceTransformersTextEmbedder(**options)
    query.warm_up()
    assert isinstance(query.embedding_backend.model, SentenceEncoder)
    assert same(query.run(TEXTS[0])["embedding"], vectors[0])
    documents = embedders.SentenceTransformersDocumentEmbedder(**options)
    documents.warm_up()
    found = documents.run([Document(content=text) for text in TEXTS])["documents"]
    assert same([document.embedding for document in found], vectors)


def test_langchain(tool: Callable[..., Any], vectors: np.ndarray) -> None:
    embeddings = tool("langchain_huggingface").HuggingFaceEmbeddings(
        model_name=MODEL, model_kwargs={"device": "cpu"}, encode_kwargs={"normalize_embeddings": True, "batch_size": 2}
    )
    assert same(embeddings.embed_documents(TEXTS), vectors)
    assert same(embeddings.embed_query(TEXTS[0]), vectors[0])


def test_llama_index(tool: Callable[..., Any], vectors: np.ndarray) -> None:
    name = "llama_index.embeddings.huggingface"
    embedding = tool(name, f"{name}.base").HuggingFaceEmbedding(MODEL, device="cpu", query_instruction="find: ")
    assert same(embedding.get_text_embedding_batch(TEXTS), vectors)
    expected = SentenceEncoder(MODEL, device="cpu").encode(f"find: {TEXTS[0]}")
    assert same(embedding.get_query_embedding(TEXTS[0]), expected)


@pytest.mark.slow
def test_llama_index_in_processes(tool: Callable[..., Any], vectors: np.ndarray) -> None:
    name = "llama_index.embeddings.huggingface"
    embedding = tool(name, f"{name}.base").HuggingFaceEmbedding(
        MODEL, device="cpu", parallel_process=True, target_devices=["cpu", "cpu"]
    )
    assert same(embedding.get_text_embedding_batch(TEXTS), vectors)


def test_chroma(tool: Callable[..., Any], vectors: np.ndarray) -> None:
    functions = tool("chromadb.utils.embedding_functions")
    function = functions.SentenceTransformerEmbeddingFunction(MODEL, normalize_embeddings=True)
    function.models.clear()
    assert same(function(TEXTS), vectors)
    assert function.build_from_config(function.get_config()).get_config()["model_name"] == MODEL


def test_lancedb(tool: Callable[..., Any], vectors: np.ndarray) -> None:
    registry = tool("lancedb.embeddings").get_registry()
    function = registry.get("sentence-transformers").create(name=MODEL, trust_remote_code=False)
    assert function.ndims() == vectors.shape[1]
    assert same(function.generate_embeddings(TEXTS), vectors)
    # Its default is code from the model's folder.
    with pytest.raises(ValueError, match="pass trust_remote_code=False, which loads each model"):
        registry.get("sentence-transformers").create(name=MODEL, trust_remote_code=True).generate_embeddings(TEXTS)


def test_txtai(tool: Callable[..., Any], vectors: np.ndarray) -> None:
    txtai = tool("txtai", "txtai.vectors.dense.sbert")
    embeddings = txtai.Embeddings(path=MODEL, method="sentence-transformers", gpu=False)
    assert same(embeddings.batchtransform(TEXTS), vectors)
    embeddings.index(TEXTS)
    assert embeddings.search("a sleeping cat", 1)[0][0] == 0


def test_setfit(tool: Callable[..., Any], vectors: np.ndarray, tmp_path: Path) -> None:
    setfit = tool("setfit", "setfit.modeling")
    model = setfit.SetFitModel.from_pretrained(MODEL, device="cpu")
    assert isinstance(model.model_body, SentenceEncoder)
    assert same(model.encode(TEXTS), vectors)
    model.fit(TEXTS * 4, [0, 1, 2] * 4, num_epochs=1)
    assert model.predict(TEXTS).tolist() == [0, 1, 2]


def test_keybert(tool: Callable[..., Any], vectors: np.ndarray) -> None:
    keybert = tool("keybert", "keybert.backend._sentencetransformers")
    model = keybert.KeyBERT(MODEL)
    assert same(model.model.embed(TEXTS), vectors)
    assert model.extract_keywords("Cats sleep in the warm house while taxes rise.", top_n=1)[0][0] == "cats"


@pytest.mark.parametrize("name", ["keybert", "bertopic"])
def test_models_that_are_passed(name: str, monkeypatch: pytest.MonkeyPatch, vectors: np.ndarray) -> None:
    """KeyBERT and BERTopic look at the module of the class, and download a model of their own for an unknown one."""
    pytest.importorskip(name)
    module = import_module(f"{name}.backend._sentencetransformers")
    monkeypatch.setattr(module, "SentenceTransformer", SentenceTransformer)
    monkeypatch.setattr("sentence_transformers.SentenceTransformer", SentenceTransformer)
    model = SentenceTransformer(MODEL, device="cpu")
    backend = import_module(f"{name}.backend._utils").select_backend(model)
    assert backend.embedding_model is model
    assert same(backend.embed(TEXTS), vectors)
