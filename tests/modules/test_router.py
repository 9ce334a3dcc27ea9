"""Router: modules of their own for queries and for documents; in both directions with sentence-transformers."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sbert import SentenceEncoder, Trainer, TrainingConfig
from sbert.chunking import encode_chunks
from sbert.evaluation import RetrievalEvaluator
from sbert.losses import MultipleNegativesRankingLoss
from sbert.losses.signature import Signature
from sbert.modules import Dense, Normalize, Pooling, Router, StaticEmbedding, Transformer
from sbert.saving.export import export
from sbert.search import HybridIndex
from sbert.training.backward import TrainingBatch, backward
from sbert.vector_files.fingerprint import digest_of_model
from tests.small import CORPUS, TEXTS, bert_model, wordpiece, wrapped

ROUTES = {"anchor": "query", "positive": "document"}
ROWS = [("a small boat", CORPUS[0]), ("red fox", CORPUS[1]), ("lake", "lake"), ("lake", CORPUS[3])]
OPTIONS: dict[str, Any] = {"on_truncate": "ignore", "show_progress_bar": False}


def static(dim: int = 16) -> StaticEmbedding:
    torch.manual_seed(1)
    return StaticEmbedding(wordpiece(), torch.randn(wordpiece().get_vocab_size(), dim))


def documents() -> list[torch.nn.Module]:
    return [Transformer(bert_model(), wrapped(wordpiece(), 64)), Pooling("mean")]


def encoder(**options: Any) -> SentenceEncoder:
    router = Router({"query": [static()], "document": documents()}, **options)
    return SentenceEncoder(router, Normalize(), device="cpu", prompts={"query": "red ", "document": "a "})


def both(model: Any) -> list[Any]:
    return [model.encode_query(TEXTS, **OPTIONS), model.encode_document(TEXTS, **OPTIONS)]


def test_each_role_has_the_vectors_of_its_modules() -> None:
    model = encoder()
    encoders = (SentenceEncoder(*chain, Normalize(), device="cpu") for chain in ([static()], documents()))
    prompted = zip(encoders, ("red ", "a "), strict=True)
    expected = [encoder.encode(TEXTS, prompt=prompt, **OPTIONS) for encoder, prompt in prompted]
    for role, vectors, alone in zip(model.routes, both(model), expected, strict=True):
        np.testing.assert_array_equal(vectors, alone)
        np.testing.assert_array_equal(model.encode(TEXTS, prompt_name=role, task=role, **OPTIONS), alone)
        np.testing.assert_array_equal(model.route(role).encode(TEXTS, prompt_name=role, **OPTIONS), alone)
    assert (len(model), model.get_sentence_embedding_dimension()) == (2, 16)
    assert [encoder.max_seq_length for encoder in model.encoders] == [None, 64]
    model.truncate_dim = 4  # An encoder of a route has the settings of the model.
    assert [encoder.encode(TEXTS[:2]).shape for encoder in model.encoders] == [(2, 4), (2, 4)]
    model.truncate_dim = None
    assert model.route("document").encode(TEXTS[0], output_value="token_embeddings").shape == (5, 16)


def test_a_call_without_a_role_takes_the_default_route_or_is_an_error() -> None:
    default = encoder(default_route="document")
    np.testing.assert_array_equal(default.encode(TEXTS, **OPTIONS), default.encode(TEXTS, task="document", **OPTIONS))
    assert torch.equal(default(default.tokenize(TEXTS[:2])), default.route("document")(default.tokenize(TEXTS[:2])))
    model = encoder()
    with pytest.raises(ValueError, match="no default route, and the model has 'query', 'document'; call encode_query"):
        model.encode(TEXTS)
    with pytest.raises(ValueError, match="no route 'passage'"):
        model.encode(TEXTS, task="passage")
    with pytest.raises(ValueError, match="no route 'passage': the model has no Router"):
        SentenceEncoder(static()).encode(TEXTS, task="passage")
    assert model.route("query") is model.route("query")
    assert model.route("query").route("query").routes == ()
    passages = SentenceEncoder(Router({"query": documents(), "passage": documents()}), device="cpu").route("passage")
    assert passages.route("document") is passages  # So that it is one of documents where these are asked for.


def test_routers_that_cannot_work_are_refused() -> None:
    with pytest.raises(ValueError, match="a route has no modules"):
        Router({"query": []})
    with pytest.raises(ValueError, match="'a/b' is not a name"):
        Router({"a/b": [static()]})
    with pytest.raises(ValueError, match="default_route='other' is unknown"):
        Router({"query": [static()]}, "other")
    with pytest.raises(TypeError, match="Pooling, the first module, does not tokenize"):
        SentenceEncoder(Router({"query": [static()], "document": [Pooling()]}))
    unequal = SentenceEncoder(Router({"query": [static(8)], "document": documents()}))
    with pytest.raises(ValueError, match=r"different dimensions \(query: 8, document: 16\); add a Dense"):
        unequal.get_sentence_embedding_dimension()


@pytest.mark.parametrize("default", [None, "document"])
def test_saved_and_loaded(default: str | None, tmp_path: Path) -> None:
    model = encoder(default_route=default)
    for _ in range(2):  # The second one replaces the first.
        model.save(tmp_path / "model")
    again = SentenceEncoder(tmp_path / "model", device="cpu")
    np.testing.assert_array_equal(both(again), both(model))
    assert again[0].default_route == default
    assert again.verify().max_difference == 0
    digest = digest_of_model(again)
    with torch.no_grad():
        again.route("query")[0].embedding.weight[0, 0] += 1
    assert digest_of_model(again) != digest
    assert json.loads((tmp_path / "model/document_1_Pooling/config.json").read_text())["word_embedding_dimension"] == 16
    assert 'task="query")' in (tmp_path / "model/README.md").read_text()
    model.route("query").save(tmp_path / "query")
    np.testing.assert_array_equal(SentenceEncoder(tmp_path / "query", device="cpu").encode_query(TEXTS), both(model)[0])


@pytest.mark.filterwarnings("ignore:not every program reads this model:UserWarning")
def test_a_router_behind_shared_modules(tmp_path: Path) -> None:
    heads = {role: [Dense(16, 8)] for role in ("query", "document")}
    model = SentenceEncoder(*documents(), Router(heads), device="cpu")
    vectors = both(model)
    assert np.abs(vectors[0] - vectors[1]).max() > 1e-2
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(both(SentenceEncoder(tmp_path / "model", device="cpu")), vectors)
    shared = documents()[0]
    heads = {role: [shared, Pooling(mode)] for role, mode in (("query", "cls"), ("document", "mean"))}
    SentenceEncoder(Router(heads), device="cpu").save(tmp_path / "shared")
    routes = SentenceEncoder(tmp_path / "shared", device="cpu")[0].routes
    assert routes["query"][0] is routes["document"][0]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda c: c["types"].update(query_0_StaticEmbedding="os.system"), "os.system"),
        (lambda c: c["types"].update(query_0_StaticEmbedding="sentence_transformers.models.Router"), "a Router as"),
        (lambda c: c["structure"].update(query=["other"]), "router_config.json cannot be read as the routes"),
        (lambda c: c["types"].update({"../x": "sentence_transformers.models.Normalize"}), "router_config.json"),
        (lambda c: c["parameters"].update(route_mappings={"('query', 'text')": "query"}), "route_mappings"),
    ],
)
def test_damaged_folders(change: Callable[[Any], None], expected: str, tmp_path: Path) -> None:
    encoder().save(tmp_path / "model")
    path = tmp_path / "model/router_config.json"
    config = json.loads(path.read_text())
    change(config)
    path.write_text(json.dumps(config))
    with pytest.raises(ValueError, match=expected):
        SentenceEncoder(tmp_path / "model")


def test_plain_deduplicated_and_cached_gradients_are_equal() -> None:
    """The text "lake" is a query and a document: two vectors, each of its own route."""
    gradients = []
    for deduplicate, cached in ((False, False), (True, False), (True, True)):
        model, loss = encoder().double().eval(), MultipleNegativesRankingLoss()
        options: dict[str, Any] = {"deduplicate": deduplicate, "routes": list(ROUTES.values()), "prompts": ["", ""]}
        batch = TrainingBatch.of(model, ROWS, Signature.of(loss), **options)
        assert len(batch.tokens.lengths) == (7 if deduplicate else 8)
        backward(model, loss, batch, cached=cached, chunk_tokens=8 if cached else None)
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))
        vectors = torch.from_numpy(model.encode([row[0] for row in ROWS], task="query", **OPTIONS))
        assert [route for route, _ in batch.routes] == ["document", "query"]
        queries = model.route("query")(batch.tokens.batch(np.arange(4, 7)))  # After those of the documents.
        torch.testing.assert_close(queries.float().detach(), vectors[:3])
    torch.testing.assert_close(gradients[1], gradients[0], rtol=0, atol=1e-10)
    torch.testing.assert_close(gradients[2], gradients[0], rtol=0, atol=1e-10)
    assert gradients[0].abs().max() > 1e-3


def train(routes: Any = ROUTES, output: Path | None = None, **options: Any) -> SentenceEncoder:
    model = encoder()
    rates = {"0.routes.query.*": 0.05}
    config = TrainingConfig(
        batch_size=4, routes=routes, learning_rate=1e-3, learning_rates=rates, steps=2, output=output, **options
    )
    Trainer(model, ROWS, MultipleNegativesRankingLoss(), config).fit(show_progress_bar=False)
    return model


def test_both_routes_train(tmp_path: Path) -> None:
    model = train(output=tmp_path)
    before, after = encoder().state_dict(), model.state_dict()
    moved = {name.split(".")[2] for name in before if not torch.equal(before[name], after[name])}
    assert moved == {"query", "document"}
    np.testing.assert_array_equal(both(SentenceEncoder(tmp_path / "final", device="cpu")), both(model))


def test_columns_need_routes(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"each column takes one of query, document; pass routes=\{'anchor': "):
        train(None)
    with pytest.raises(ValueError, match="routes names the column 'other'"):
        train({**ROUTES, "other": "query"})
    config = TrainingConfig(steps=1, routes=ROUTES)
    with pytest.raises(ValueError, match="the model has no Router; leave routes= out"):
        Trainer(SentenceEncoder(static(), device="cpu"), ROWS, MultipleNegativesRankingLoss(), config)


def test_search_evaluation_and_chunks_take_the_roles(tmp_path: Path) -> None:
    model = encoder()
    index = HybridIndex(model)
    index.add(CORPUS)
    texts = dict(enumerate(CORPUS))
    scores = (model.encode_query(CORPUS) @ model.encode_document(CORPUS).T).argmax(1)
    evaluator = RetrievalEvaluator(texts, texts, {query: [best] for query, best in enumerate(scores.tolist())})
    assert evaluator(model)["accuracy@1"] == 1
    assert [best.text for (best,) in index.search(CORPUS, top_k=1, by="dense")] == [CORPUS[i] for i in scores]
    chunks, vectors = encode_chunks(model, CORPUS, 12, prompt="")
    passages = [chunk.text(CORPUS) for chunk in chunks]
    np.testing.assert_allclose(vectors, model.encode(passages, task="document"), atol=1e-6)
    with pytest.raises(ValueError, match=r"one route at a time; pass model.route\('document'\)"):
        export(model, tmp_path, "torch-export")


@pytest.mark.slow  # It starts processes.
def test_pools_have_both_routes() -> None:
    model = encoder()
    with model.pool(["cpu"]) as pool:
        np.testing.assert_allclose(both(pool), both(model), atol=1e-6)
    sent = pickle.loads(pickle.dumps(model.route("query")))
    np.testing.assert_allclose(sent.encode_query(TEXTS, **OPTIONS), both(model)[0], atol=1e-6)


@pytest.mark.slow  # Importing sentence-transformers takes seconds.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_sentence_transformers_in_both_directions(tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    model = encoder(default_route="document")
    model.save(tmp_path / "ours")
    theirs = SentenceTransformer(str(tmp_path / "ours"), device="cpu")
    theirs.save(str(tmp_path / "theirs"))
    again = SentenceEncoder(tmp_path / "theirs", device="cpu")
    for role in ("encode", "encode_query", "encode_document"):
        vectors = [getattr(encoder, role)(TEXTS) for encoder in (model.to("cpu"), theirs, again)]
        np.testing.assert_allclose(vectors[1], vectors[0], atol=1e-6)
        np.testing.assert_array_equal(vectors[2], vectors[0])
    assert again[0].default_route == "document"
