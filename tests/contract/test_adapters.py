"""Adapters give the vectors of ``encode``, in order: ours in each package, and our class where tools expect theirs.

A row needs its package; those that are not installed are skipped.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas
import pytest
import torch

import sbert
from sbert import SentenceEncoder
from sbert.integrations.loading import load_encoder
from sbert.integrations.sentence_transformers import SentenceTransformer

pytestmark = pytest.mark.filterwarnings("ignore")  # Of the other packages.
FOLDER = str(Path(sbert.__file__).parent / "default_model")
TEXTS = ["A cat sleeps.", "Taxes rise.", "Rain falls on the hills."]
QUERY = "a sleeping cat"


def ours(name: str) -> Any:
    return import_module(f"sbert.integrations.{name}")


@pytest.fixture(scope="module")
def model() -> SentenceEncoder:
    return SentenceEncoder(device="cpu", prompts={"query": "find: ", "document": "text: "})


def check_equal(found: Any, expected: np.ndarray) -> None:
    assert np.abs(np.float32(found) - expected).max() < 1e-6


# ------------------------------------------------------------------------- vectors of documents and of a query

Vectors = tuple[Any, Any]


def langchain(model: Any) -> Vectors:
    embeddings = ours("langchain").SbertEmbeddings(model)
    return embeddings.embed_documents(TEXTS), embeddings.embed_query(QUERY)


def llama_index(model: Any) -> Vectors:
    embedding = ours("llama_index").SbertEmbedding(model)
    return embedding.get_text_embedding_batch(TEXTS), embedding.get_query_embedding(QUERY)


def haystack(model: Any) -> Vectors:
    from haystack import Document

    module = ours("haystack")
    documents = module.SbertDocumentEmbedder(model).run([Document(content=text) for text in TEXTS])["documents"]
    titled = module.SbertDocumentEmbedder(model, meta_fields_to_embed=["title"])
    (one,) = titled.run([Document(content="b", meta={"title": "a"})])["documents"]
    check_equal(one.embedding, model.encode_document("a\nb"))
    return [each.embedding for each in documents], module.SbertTextEmbedder(model).run(QUERY)["embedding"]


def chroma(model: Any) -> Vectors:
    function = ours("chroma").SbertEmbeddingFunction(model)
    return function(TEXTS), function.embed_query([QUERY])[0]


def mteb(model: Any) -> Vectors:
    from mteb.types import PromptType

    adapter, task = ours("mteb").MtebModel(model), SimpleNamespace(name="NFCorpus", type="Retrieval")
    options = {"task_metadata": task, "hf_split": "test", "hf_subset": "default"}
    query = adapter.encode([{"text": [QUERY]}], prompt_type=PromptType.query, **options)[0]
    batches = [{"text": TEXTS[:2]}, {"text": TEXTS[2:]}]
    return adapter.encode(batches, prompt_type=PromptType.document, batch_size=32, **options), query


def lancedb(model: Any) -> Vectors:
    options = {"prompts": model.prompts, "device": "cpu"}
    function = ours("lancedb").SbertFunction.create(name="sbert-mini", **options)
    assert ours("lancedb").SbertFunction.create(truncate_dim=64, **options).ndims() == 64
    return function.compute_source_embeddings(TEXTS), function.compute_query_embeddings(QUERY)[0]


ADAPTERS: dict[str, Callable[[Any], Vectors]] = {
    "langchain_core": langchain,
    "llama_index.core": llama_index,
    "haystack": haystack,
    "chromadb": chroma,
    "mteb": mteb,
    "lancedb": lancedb,
}


@pytest.mark.parametrize("package", ADAPTERS)
def test_queries_and_documents_have_the_prompts_of_the_model(package: str, model: SentenceEncoder) -> None:
    pytest.importorskip(package)
    documents, query = ADAPTERS[package](model)
    check_equal(documents, model.encode_document(TEXTS))
    check_equal(query, model.encode_query(QUERY))


UNKNOWN: dict[str, Callable[[], Any]] = {
    "langchain_core": lambda: ours("langchain").SbertEmbeddings(truncate_dimension=64),
    "llama_index.core": lambda: ours("llama_index").SbertEmbedding(truncate_dimension=64),
    "haystack": lambda: ours("haystack").SbertTextEmbedder(options={"truncate_dimension": 64}),
    "chromadb": lambda: ours("chroma").SbertEmbeddingFunction(truncate_dimension=64),
    "mteb": lambda: ours("mteb").MtebModel(truncate_dimension=64),
    "lancedb": lambda: ours("lancedb").SbertFunction.create(truncate_dimension=64),
    "pandas": lambda: ours("frames").embed_frame(pandas.DataFrame({"text": TEXTS}), truncate_dimension=64),
    "numpy": lambda: ours("ray").Embed(truncate_dimension=64)({"text": np.array(TEXTS)}),
}


@pytest.mark.parametrize("package", UNKNOWN)
def test_no_adapter_ignores_an_argument(package: str) -> None:
    pytest.importorskip(package)
    with pytest.raises(TypeError, match="truncate_dimension"):
        UNKNOWN[package]()


def test_the_event_loop_goes_on_while_llama_index_waits(model: SentenceEncoder) -> None:
    pytest.importorskip("llama_index.core")
    embedding, threads = ours("llama_index").SbertEmbedding(model), set()
    embedding._model = SimpleNamespace(
        encode_query=lambda text: threads.add(threading.get_ident()) or model.encode_query(text),
        encode_document=lambda texts: threads.add(threading.get_ident()) or model.encode_document(texts),
    )

    async def all_calls() -> Any:
        await embedding.aget_text_embedding(TEXTS[0])
        return await embedding.aget_text_embedding_batch(TEXTS), await embedding.aget_query_embedding(QUERY)

    documents, query = asyncio.run(all_calls())
    assert threads
    assert threading.get_ident() not in threads
    check_equal(documents, model.encode_document(TEXTS))
    check_equal(query, model.encode_query(QUERY))


# ------------------------------------------------------------------- vectors of texts, without prompts of each kind


def test_a_pipeline_of_scikit_learn(model: SentenceEncoder) -> None:
    from sklearn.base import clone
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    vectors = ours("sklearn").SentenceVectors(model)
    assert clone(vectors).model is model
    pipeline = make_pipeline(vectors, LogisticRegression())
    pipeline.set_params(sentencevectors__truncate_dim=2).set_output(transform="pandas").fit(TEXTS, [0, 1, 2])
    assert pipeline[:1].get_feature_names_out().tolist() == ["sentencevectors0", "sentencevectors1"]
    frame = pipeline[:1].transform(pandas.Series(TEXTS, index=[5, 6, 7]))
    assert (frame.shape, list(frame.index)) == ((3, 2), [5, 6, 7])
    check_equal(frame, model.encode(TEXTS, truncate_dim=2))
    whole = vectors.set_params(truncate_dim=None).set_output(transform="default").fit_transform(TEXTS)
    check_equal(whole, model.encode(TEXTS))


# -------------------------------------------------------------------------------------------- what only one of them has


def test_a_model_by_its_name_or_loaded(model: SentenceEncoder) -> None:
    assert load_encoder(model) is model
    assert load_encoder("sbert-mini", truncate_dim=64).truncate_dim == 64
    with pytest.raises(TypeError, match="device given with an encoder that is loaded; pass them to SentenceEncoder"):
        load_encoder(model, device="cpu")


def test_a_pipeline_of_haystack_is_saved_with_the_name_of_the_model() -> None:
    pytest.importorskip("haystack")
    from haystack import Pipeline

    pipeline = Pipeline()
    pipeline.add_component("query", ours("haystack").SbertTextEmbedder("sbert-mini", options={"device": "cpu"}))
    again = Pipeline.loads(pipeline.dumps(), allowed_modules=["sbert.integrations.haystack"])
    vector = again.run({"query": {"text": QUERY}})["query"]["embedding"]
    check_equal(vector, SentenceEncoder(device="cpu").encode(QUERY))


def test_a_collection_of_chroma_opens_with_the_prompts_and_the_dimension_of_its_encoder(tmp_path: Path) -> None:
    chromadb = pytest.importorskip("chromadb")
    kind = ours("chroma").SbertEmbeddingFunction
    model = SentenceEncoder("sbert-mini", device="cpu", prompts={"query": "find: ", "document": "text: "})
    model.truncate_dim = 32
    chromadb.PersistentClient(str(tmp_path)).create_collection("texts", embedding_function=kind(model))
    opened = chromadb.PersistentClient(str(tmp_path)).get_collection("texts")
    opened.add(["0", "1", "2"], None, None, TEXTS)
    check_equal(opened.get(include=["embeddings"])["embeddings"], model.encode_document(TEXTS))
    found = opened.query(query_texts=[QUERY], n_results=1)
    assert found["documents"] == [[TEXTS[0]]]
    check_equal(found["distances"], 1 - model.similarity(model.encode_query(QUERY), model.encode_document(TEXTS[:1])))
    nameless = kind(SentenceEncoder(*SentenceEncoder(device="cpu")))
    again = nameless.build_from_config(nameless.get_config())
    for encode in (again, again.embed_query):
        with pytest.raises(ValueError, match="an encoder without a name; pass embedding_function= with it"):
            encode(TEXTS)


def test_a_step_of_scikit_learn_says_that_it_is_not_fitted_and_passes_its_checks() -> None:
    exceptions = pytest.importorskip("sklearn.exceptions")
    from sklearn.utils.estimator_checks import check_estimator

    vectors = ours("sklearn").SentenceVectors()
    for call in (lambda: vectors.transform(TEXTS), vectors.get_feature_names_out):
        with pytest.raises(exceptions.NotFittedError, match="SentenceVectors instance is not fitted yet"):
            call()
    results = check_estimator(vectors, on_fail=None)
    assert {result["status"] for result in results} == {"passed"}


def test_mteb_knows_each_model_by_its_contents_and_finds_the_prompts_of_a_task() -> None:
    pytest.importorskip("mteb")
    from mteb.types import PromptType

    kind = ours("mteb").MtebModel
    model = SentenceEncoder(device="cpu", prompts={"STS": "compare: ", "NFCorpus-query": "find: ", "query": "q: "})
    adapter = kind(model)
    meta, plain = adapter.mteb_model_meta, kind(device="cpu").mteb_model_meta
    facts = {"n_parameters": 11_654_016, "embed_dim": 256, "max_tokens": 512}
    assert {name: getattr(plain, name) for name in facts} == facts
    assert (plain.name, plain.similarity_fn_name.value) == ("sbert/sbert-mini", "cosine")
    assert plain.revision == kind(device="cpu").mteb_model_meta.revision
    with torch.no_grad():
        next(model.parameters())[5] += 1  # As training does.
    assert len({plain.revision, meta.revision, adapter.mteb_model_meta.revision}) == 3
    for name, kind_of_task, role, prompt in (
        ("STSBenchmark", "STS", None, "compare: "),
        ("NFCorpus", "Retrieval", PromptType.query, "find: "),
        ("SciFact", "Retrieval", PromptType.query, "q: "),
        ("SciFact", "Retrieval", PromptType.document, ""),
    ):
        task = {"task_metadata": SimpleNamespace(name=name, type=kind_of_task), "hf_split": "test", "hf_subset": ""}
        check_equal(adapter.encode([{"text": TEXTS}], prompt_type=role, **task), model.encode(TEXTS, prompt=prompt))
        with pytest.raises(TypeError, match="normalise"):
            adapter.encode([{"text": TEXTS}], prompt_type=role, normalise=True, **task)


def test_mteb_runs_its_tasks(model: SentenceEncoder) -> None:
    mteb = pytest.importorskip("mteb")
    from mteb.mocks import MOCK_TASK_TEST_GRID

    for task in MOCK_TASK_TEST_GRID:
        results = mteb.evaluate(ours("mteb").MtebModel(model), task, cache=None, show_progress_bar=False)
        assert [result.task_name for result in results] == [task.metadata.name]


# ------------------------------------- tools that load sentence-transformers, with our class in the place of theirs

HAYSTACK = "haystack_integrations.components.embedders.sentence_transformers"
HUGGINGFACE = "llama_index.embeddings.huggingface"
CHROMA = "chromadb.utils.embedding_functions"


def tool_haystack(module: Any) -> Any:
    from haystack import Document
    from haystack.utils import ComponentDevice

    options = {"model": FOLDER, "device": ComponentDevice.from_str("cpu"), "progress_bar": False, "token": None}
    documents = module.SentenceTransformersDocumentEmbedder(**options)
    documents.warm_up()
    assert isinstance(documents.embedding_backend.model, SentenceEncoder)
    return [each.embedding for each in documents.run([Document(content=text) for text in TEXTS])["documents"]]


def tool_langchain(module: Any) -> Any:
    options = {"model_kwargs": {"device": "cpu"}, "encode_kwargs": {"normalize_embeddings": True, "batch_size": 2}}
    return module.HuggingFaceEmbeddings(model_name=FOLDER, **options).embed_documents(TEXTS)


def tool_llama_index(module: Any) -> Any:
    embedding = module.HuggingFaceEmbedding(FOLDER, device="cpu", query_instruction="find: ")
    expected = SentenceEncoder(FOLDER, device="cpu").encode(f"find: {TEXTS[0]}")
    check_equal(embedding.get_query_embedding(TEXTS[0]), expected)
    return embedding.get_text_embedding_batch(TEXTS)


def tool_chroma(module: Any) -> Any:
    function = module.SentenceTransformerEmbeddingFunction(FOLDER, normalize_embeddings=True)
    function.models.clear()
    return function(TEXTS)


def tool_lancedb(module: Any) -> Any:
    return module.get_registry().get("sentence-transformers").create(name=FOLDER).generate_embeddings(TEXTS)


def tool_txtai(module: Any) -> Any:
    return module.Embeddings(path=FOLDER, method="sentence-transformers", gpu=False).batchtransform(TEXTS)


def tool_setfit(module: Any) -> Any:
    model = module.SetFitModel.from_pretrained(FOLDER, device="cpu")
    assert isinstance(model.model_body, SentenceEncoder)
    vectors = model.encode(TEXTS)
    model.fit(TEXTS * 4, [0, 1, 2] * 4, num_epochs=1)
    assert model.predict(TEXTS).tolist() == [0, 1, 2]
    return vectors


def tool_keybert(module: Any) -> Any:
    words = module.KeyBERT(FOLDER)
    assert words.extract_keywords("Cats sleep in the warm house while taxes rise.", top_n=2)[0][0] == "cats"
    return words.model.embed(TEXTS)


def tool_bertopic(module: Any) -> Any:
    from bertopic.dimensionality import BaseDimensionalityReduction
    from sklearn.cluster import KMeans

    parts = {"umap_model": BaseDimensionalityReduction(), "hdbscan_model": KMeans(3)}
    model = module.BERTopic(embedding_model=FOLDER, **parts)
    topics, _ = model.fit_transform(TEXTS * 4)
    assert topics == topics[:3] * 4
    return model.embedding_model.embed(TEXTS)


def tool_select_backend(module: Any) -> Any:
    """KeyBERT and BERTopic look at the module of the class, and download a model of their own for an unknown one."""
    model = SentenceTransformer(FOLDER, device="cpu")
    backend = module.backend._utils.select_backend(model)
    assert backend.embedding_model is model
    return backend.embed(TEXTS)


# The module of a tool, and where it has imported the class under its name.
TOOLS: list[tuple[str, str, Callable[[Any], Any]]] = [
    (HAYSTACK, f"{HAYSTACK}.embedding_backend.backend", tool_haystack),
    ("langchain_huggingface", "", tool_langchain),
    (HUGGINGFACE, f"{HUGGINGFACE}.base", tool_llama_index),
    (CHROMA, "", tool_chroma),
    ("lancedb.embeddings", "", tool_lancedb),
    ("txtai", "txtai.vectors.dense.sbert", tool_txtai),
    ("setfit", "setfit.modeling", tool_setfit),
    ("keybert", "keybert.backend._sentencetransformers", tool_keybert),
    ("keybert", "keybert.backend._sentencetransformers", tool_select_backend),
    ("bertopic", "bertopic.backend._sentencetransformers", tool_bertopic),
    ("bertopic", "bertopic.backend._sentencetransformers", tool_select_backend),
]


@pytest.mark.parametrize(("name", "holder", "encode"), TOOLS)
@pytest.mark.parametrize("kind", [SentenceEncoder, SentenceTransformer])
def test_tools_with_our_class(
    name: str, holder: str, encode: Callable[[Any], Any], kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sentence_transformers.SentenceTransformer", kind)
    module = pytest.importorskip(name, exc_type=ImportError)
    if holder:  # As if it were imported now.
        monkeypatch.setattr(import_module(holder), "SentenceTransformer", kind)
    check_equal(encode(module), SentenceEncoder(FOLDER, device="cpu").encode(TEXTS))
