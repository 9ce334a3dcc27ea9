"""Each adapter in the real package, where that is installed: the vectors are those of ``encode``, in order."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sbert import SentenceEncoder
from sbert.integrations.loading import loaded

pytestmark = pytest.mark.filterwarnings("ignore")  # Of the other packages.
TEXTS = ["A cat sleeps.", "Taxes rise.", "Rain falls on the hills."]
QUERY = "a sleeping cat"


@pytest.fixture(scope="module")
def model() -> SentenceEncoder:
    return SentenceEncoder(device="cpu", prompts={"query": "find: ", "document": "text: "})


@pytest.fixture(scope="module")
def documents(model: SentenceEncoder) -> np.ndarray:
    return model.encode_document(TEXTS)


def test_a_model_by_its_name_or_loaded(model: SentenceEncoder) -> None:
    assert loaded(model) is model
    assert loaded("sbert-mini", truncate_dim=64).truncate_dim == 64
    with pytest.raises(TypeError, match="device given with an encoder that is loaded; pass them to SentenceEncoder"):
        loaded(model, device="cpu")


def test_langchain(model: SentenceEncoder, documents: np.ndarray) -> None:
    pytest.importorskip("langchain_core")
    from langchain_core.vectorstores import InMemoryVectorStore

    from sbert.integrations.langchain import SbertEmbeddings

    embeddings = SbertEmbeddings(model)
    assert np.array_equal(np.float32(embeddings.embed_documents(TEXTS)), documents)
    assert np.array_equal(np.float32(embeddings.embed_query(QUERY)), model.encode_query(QUERY))
    store = InMemoryVectorStore(embeddings)
    store.add_texts(TEXTS)
    assert store.similarity_search(QUERY, k=1)[0].page_content == TEXTS[0]


def test_llama_index(model: SentenceEncoder, documents: np.ndarray) -> None:
    pytest.importorskip("llama_index.core")
    from llama_index.core import Document, VectorStoreIndex

    from sbert.integrations.llama_index import SbertEmbedding

    embedding = SbertEmbedding(model)
    assert np.array_equal(np.float32(embedding.get_text_embedding_batch(TEXTS)), documents)
    index = VectorStoreIndex.from_documents([Document(text=text) for text in TEXTS], embed_model=embedding)
    assert index.as_retriever(similarity_top_k=1).retrieve(QUERY)[0].text == TEXTS[0]


def test_haystack(model: SentenceEncoder, documents: np.ndarray) -> None:
    pytest.importorskip("haystack")
    from haystack import Document, Pipeline

    from sbert.integrations.haystack import SbertDocumentEmbedder, SbertTextEmbedder

    found = SbertDocumentEmbedder(model).run([Document(content=text) for text in TEXTS])["documents"]
    assert np.array_equal(np.float32([document.embedding for document in found]), documents)
    titled = SbertDocumentEmbedder(model, meta_fields_to_embed=["title"])
    (one,) = titled.run([Document(content="b", meta={"title": "a"})])["documents"]
    assert np.array_equal(np.float32(one.embedding), model.encode_document("a\nb"))
    pipeline = Pipeline()
    pipeline.add_component("query", SbertTextEmbedder("sbert-mini", options={"device": "cpu"}))
    again = Pipeline.loads(pipeline.dumps(), allowed_modules=["sbert.integrations.haystack"])
    vector = again.run({"query": {"text": QUERY}})["query"]["embedding"]
    assert np.array_equal(np.float32(vector), SentenceEncoder(device="cpu").encode(QUERY))


def test_chroma(model: SentenceEncoder, tmp_path: Path) -> None:
    chromadb = pytest.importorskip("chromadb")

    from sbert.integrations.chroma import SbertEmbeddingFunction

    memory = chromadb.EphemeralClient().create_collection("texts", embedding_function=SbertEmbeddingFunction(model))
    function = SbertEmbeddingFunction("sbert-mini", device="cpu")
    kept = chromadb.PersistentClient(str(tmp_path)).create_collection("texts", embedding_function=function)
    for collection in (memory, kept):
        collection.add(ids=["0", "1", "2"], documents=TEXTS)
    opened = chromadb.PersistentClient(str(tmp_path)).get_collection("texts")
    for collection in (memory, opened):
        assert collection.query(query_texts=[QUERY], n_results=1)["documents"] == [[TEXTS[0]]]

    nameless = SbertEmbeddingFunction(SentenceEncoder(*SentenceEncoder(device="cpu")))
    again = nameless.build_from_config(nameless.get_config())
    for encode in (again, again.embed_query):
        with pytest.raises(ValueError, match="an encoder without a name; pass embedding_function= with it"):
            encode(TEXTS)


def test_lancedb(tmp_path: Path) -> None:
    lancedb = pytest.importorskip("lancedb")
    from lancedb.embeddings import get_registry
    from lancedb.pydantic import LanceModel, Vector

    import sbert.integrations.lancedb  # noqa: F401 - registers the function

    function = get_registry().get("sbert").create(device="cpu")

    class Row(LanceModel):
        text: str = function.SourceField()
        vector: Vector(function.ndims()) = function.VectorField()

    table = lancedb.connect(tmp_path).create_table("texts", schema=Row)
    table.add([{"text": text} for text in TEXTS])
    assert table.search(QUERY).limit(1).to_list()[0]["text"] == TEXTS[0]


def test_keybert(model: SentenceEncoder) -> None:
    keybert = pytest.importorskip("keybert")

    from sbert.integrations.topics import keybert_backend

    backend = keybert_backend(model)
    assert np.array_equal(backend.embed(TEXTS), model.encode(TEXTS))
    words = keybert.KeyBERT(model=backend).extract_keywords("Cats sleep in the warm house while taxes rise.", top_n=2)
    assert words[0][0] == "cats"


def test_bertopic(model: SentenceEncoder) -> None:
    bertopic = pytest.importorskip("bertopic")
    from bertopic.dimensionality import BaseDimensionalityReduction
    from sklearn.cluster import KMeans

    from sbert.integrations.topics import bertopic_backend

    topics, _ = bertopic.BERTopic(
        embedding_model=bertopic_backend(model), umap_model=BaseDimensionalityReduction(), hdbscan_model=KMeans(3)
    ).fit_transform(TEXTS * 4)
    assert topics == topics[:3] * 4
    assert len(set(topics)) == 3


def test_scikit_learn(model: SentenceEncoder) -> None:
    from sklearn.base import clone
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline

    from sbert.integrations.sklearn import SentenceVectors

    vectors = SentenceVectors(model, normalize_embeddings=True, truncate_dim=64)
    assert clone(vectors).model is model
    expected = model.encode(TEXTS, normalize_embeddings=True, truncate_dim=64)
    assert np.array_equal(vectors.fit_transform(TEXTS), expected)
    pipeline = make_pipeline(SentenceVectors(model), LogisticRegression())
    search = GridSearchCV(pipeline, {"sentencevectors__truncate_dim": [64, None]}, cv=2)
    assert search.fit(TEXTS * 4, [0, 1, 2] * 4).best_score_ == 1


def test_mteb(model: SentenceEncoder) -> None:
    mteb = pytest.importorskip("mteb")
    from mteb.mocks import MOCK_TASK_TEST_GRID

    from sbert.integrations.mteb import MtebModel

    adapter = MtebModel(model)
    for task in MOCK_TASK_TEST_GRID:
        results = mteb.evaluate(adapter, task, cache=None, show_progress_bar=False)
        assert [result.task_name for result in results] == [task.metadata.name]


def test_txtai(model: SentenceEncoder) -> None:
    txtai = pytest.importorskip("txtai")

    from sbert.integrations.txtai import transform

    embeddings = txtai.Embeddings(method="external", transform=transform(model))
    embeddings.index(TEXTS)
    assert embeddings.search(QUERY, 1)[0][0] == 0


def test_spacy(model: SentenceEncoder, tmp_path: Path) -> None:
    spacy = pytest.importorskip("spacy")

    from sbert.integrations.spacy import SbertVectors

    nlp = spacy.blank("en")
    nlp.add_pipe("sentencizer")
    nlp.add_pipe("sbert", config={"model": "sbert-mini", "device": "cpu"})
    nlp.to_disk(tmp_path)
    first, second, empty = spacy.load(tmp_path).pipe(["A cat sleeps. Taxes rise.", "A cat sleeps.", ""])
    plain = SentenceEncoder(device="cpu")
    assert np.array_equal([first.vector, second.vector, empty.vector], plain.encode([first.text, second.text, ""]))
    assert first.similarity(second) == pytest.approx(plain.similarity(first.vector, second.vector)[0, 0])
    sentences = list(first.sents)
    assert np.array_equal(sentences[1].vector, plain.encode("Taxes rise."))
    assert sentences[0].similarity(second) == pytest.approx(1)
    assert sentences[0].vector_norm == pytest.approx(1)

    own = SbertVectors(model)
    assert np.array_equal(own(spacy.blank("en")(TEXTS[0])).vector, model.encode(TEXTS[0]))


def test_setfit(tmp_path: Path) -> None:
    setfit = pytest.importorskip("setfit")
    from datasets import Dataset

    from sbert.integrations.setfit import SbertSetFitModel, SbertTrainer

    films = [
        "A wonderful film.",
        "Great acting.",
        "A joy to watch.",
        "A dull film.",
        "Poor acting.",
        "A pain to watch.",
    ]
    rows = Dataset.from_dict({"text": films, "label": [1, 1, 1, 0, 0, 0]})
    args = setfit.TrainingArguments(num_epochs=1, num_iterations=2, report_to="none", show_progress_bar=False)
    classifier = SbertSetFitModel.of(SentenceEncoder(device="cpu"))
    before = classifier.model_body.encode(films)
    trainer = SbertTrainer(
        classifier, args, rows, rows, lambda found, labels: {"equal": (np.array(found) == labels).mean()}
    )
    trainer.train()
    assert np.abs(classifier.model_body.encode(films) - before).max() > 1e-3
    assert trainer.evaluate() == {"equal": 1}
    for _ in range(2):  # The second one replaces the first.
        classifier.save_pretrained(tmp_path / "saved")
    again = SbertSetFitModel.load(tmp_path / "saved")
    assert np.array_equal(again.predict_proba(films), classifier.predict_proba(films))
    theirs = setfit.SetFitModel.from_pretrained(str(tmp_path / "saved"), device="cpu")
    assert np.abs(theirs.predict_proba(films).numpy() - classifier.predict_proba(films).numpy()).max() < 1e-5
    with pytest.raises(ValueError, match="args has the loss TripletLoss; pass loss="):
        SbertTrainer(classifier, setfit.TrainingArguments(loss=type("TripletLoss", (), {})), rows)


def test_datasets(model: SentenceEncoder) -> None:
    datasets = pytest.importorskip("datasets")

    rows = datasets.Dataset.from_dict({"text": TEXTS * 2})
    found = rows.map(lambda batch: {"vector": model.encode(batch["text"])}, batched=True, batch_size=4)
    assert np.array_equal(found.with_format("numpy")["vector"], model.encode(TEXTS * 2))
    assert np.array_equal(model.encode(rows["text"]), model.encode(TEXTS * 2))


def test_polars(model: SentenceEncoder) -> None:
    polars = pytest.importorskip("polars")

    frame = polars.DataFrame({"text": TEXTS})
    found = frame.with_columns(polars.Series("vector", model.encode(frame["text"])))
    assert np.array_equal(found["vector"].to_numpy(), model.encode(TEXTS))
