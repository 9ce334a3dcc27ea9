"""Encoders with one vector per token: roles, MaxSim, folders in both directions, search and evaluation."""

from __future__ import annotations

import copy
import itertools
import json
import pickle
import string
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from sbert import Dense, LateInteraction, Normalize, Pooling, SentenceEncoder, TokenEmbeddings, Trainer, TrainingConfig
from sbert import evaluation as ev
from sbert.evaluation import RerankingEvaluator, RetrievalEvaluator
from sbert.functional import maxsim, pairwise_similarity
from sbert.losses import MultipleNegativesRankingLoss, SoftmaxLoss
from sbert.modules import Transformer
from sbert.search import Hits, HybridIndex, fuse, semantic_search
from sbert.search.index import hybrid_index
from sbert.search.index.token_codes import pack_tokens, unpack_tokens
from sbert.vector_files.fingerprint import digest_of_model
from tests.small import TEXTS, bert_model, modules, wordpiece, wrapped, write

# What is truncated is compared, too.
pytestmark = pytest.mark.filterwarnings("ignore:.*truncated to max_seq_length")
DOCUMENTS = ["A small boat, on the lake.", "lake", "a boat; a boat. and the water!", "the small lake"]
ROLES: list[dict[str, Any]] = [
    {"query_length": 10, "document_length": 12, "skiplist_words": [",", "."]},
    {"query_length": 10, "query_prefix": "[Q] ", "document_prefix": "[D] ", "attend_to_expansion_tokens": True},
    {"query_length": 6, "do_query_expansion": False, "document_length": None, "document_prefix": "[D] "},
    {},
]


def encoder(roles: dict[str, Any]) -> SentenceEncoder:
    """A BERT whose vocabulary has the prefixes of PyLate; without roles, LateInteraction is left out."""
    torch.manual_seed(0)
    transformer = Transformer(bert_model(), wrapped(wordpiece(), 64))
    transformer.tokenizer.add_tokens(["[Q] ", "[D] "])
    transformer.auto_model.resize_token_embeddings(len(transformer.tokenizer), mean_resizing=False)
    settings = [LateInteraction(**roles)] if roles else []
    return SentenceEncoder(transformer, Dense(16, 8, False, "Identity"), Normalize(), *settings, device="cpu")


def both(model: Any, texts: list[str] = DOCUMENTS) -> list[np.ndarray]:
    options = {"show_progress_bar": False}
    return [np.asarray(v) for v in (*model.encode_query(texts, **options), *model.encode_document(texts, **options))]


def same(a: list[np.ndarray], b: list[np.ndarray], tolerance: float = 1e-5) -> None:
    for x, y in zip(a, b, strict=True):
        np.testing.assert_allclose(x, y, rtol=0, atol=tolerance)


def test_maxsim_is_a_plain_loop() -> None:
    """Of texts of all lengths, empty ones, too; in blocks, and with the gradient of a loop."""
    generator = torch.Generator().manual_seed(0)
    queries = [torch.randn(n, 5, generator=generator, dtype=torch.float64, requires_grad=True) for n in (3, 1, 0, 4)]
    documents = [torch.randn(n, 5, generator=generator, dtype=torch.float64, requires_grad=True) for n in (2, 7, 2, 0)]
    loop = torch.stack(
        [torch.stack([(q @ d.T).amax(1).sum() if len(d) else q.new_zeros(()) for d in documents]) for q in queries]
    )
    scores = maxsim(queries, documents)
    assert isinstance(scores, torch.Tensor)
    torch.testing.assert_close(scores, loop, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(pairwise_similarity(queries, documents, "maxsim"), loop.diagonal(), rtol=1e-12, atol=0)
    weights = torch.randn(4, 4, generator=generator, dtype=torch.float64)
    inputs = [part for part in (*queries, *documents) if len(part)]
    expected, gradients = (torch.autograd.grad((x * weights).sum(), inputs, retain_graph=True) for x in (loop, scores))
    for one, other in zip(gradients, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_maxsim_in_blocks_and_what_it_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    queries, documents = ([rng.normal(size=(n, 4)).astype(np.float32) for n in (3, 2, 3)] for _ in range(2))
    whole = maxsim(queries, documents)
    monkeypatch.setattr("sbert.functional._TOKEN_SCORES", 1)
    assert isinstance(whole, np.ndarray)
    np.testing.assert_allclose(maxsim(queries, documents), whole, atol=1e-6)
    np.testing.assert_allclose(maxsim(queries[0], documents), whole[:1], atol=1e-6)  # One text.
    assert maxsim(queries, [x.astype(np.float64) for x in documents]).dtype == np.float64
    with pytest.raises(ValueError, match="token vectors of dim 4 and 3 cannot be compared"):
        maxsim(queries, [np.ones((2, 3))])
    with pytest.raises(ValueError, match="b must have an array"):
        maxsim(queries, [])
    wrong = [documents[0], np.full((2, 4), np.nan)]
    with pytest.raises(ValueError, match=r"queries\[0\] or corpus\[1\] has a NaN or an infinity"):
        semantic_search(queries, wrong, similarity="maxsim")
    with pytest.raises(ValueError, match="3 and 2 texts cannot be compared in pairs"):
        pairwise_similarity(queries, documents[:2], "maxsim")


def test_roles() -> None:
    """What queries and documents have more than the texts, by the tokens themselves."""
    model, bare = encoder(ROLES[0]), encoder({})
    assert (model.similarity_fn_name, model.routes) == ("maxsim", ("query", "document"))
    queries, documents = model.encode_query(DOCUMENTS), model.encode_document(DOCUMENTS)
    assert [len(query) for query in queries] == [10] * 4
    ids = [tokens[:12] for tokens in model[0].tokenize(DOCUMENTS)]
    marks = model[0].tokenizer.convert_tokens_to_ids([",", "."])
    for tokens, vectors, plain in zip(ids, documents, bare.encode(DOCUMENTS), strict=True):
        chosen = [place for place, token in enumerate(tokens) if token not in marks]
        assert len(vectors) == len(chosen)
        if len(tokens) < 12:
            np.testing.assert_allclose(vectors, plain[chosen], atol=1e-6)
    assert min(map(len, documents)) == 3
    assert sum(map(len, documents)) < sum(map(len, ids))
    # Words do not attend to the expansion, and it attends to them.
    np.testing.assert_allclose(queries[1][:3], bare.encode("lake"), atol=1e-6)
    assert np.abs(queries[1][3:] - queries[3][3:]).max() > 1e-3
    attending = encoder({**ROLES[0], "attend_to_expansion_tokens": True})
    assert np.abs(attending.encode_query("lake")[:3] - queries[1][:3]).max() > 1e-3
    prefixed = encoder(ROLES[1])
    tokens = prefixed.route("document").tokens(["lake"])
    assert tokens.ids[1] == prefixed[0].tokenizer.convert_tokens_to_ids("[D] ")
    same([prefixed.encode("lake")], [prefixed.encode_document("lake")], 0)


def test_what_encode_returns() -> None:
    model = encoder(ROLES[0])
    assert model.encode("lake").shape == (3, 8)
    tensors = model.encode(DOCUMENTS, convert_to_tensor=True)
    same(list(map(np.asarray, tensors)), model.encode(DOCUMENTS), 0)
    same(model.encode(DOCUMENTS, batch_size=1), model.encode(DOCUMENTS))
    same(model.encode(DOCUMENTS, device=["cpu", "cpu"]), model.encode(DOCUMENTS))
    assert model.encode(DOCUMENTS, truncate_dim=4, normalize_embeddings=True)[0].shape[1] == 4
    assert model.similarity(model.encode_query(DOCUMENTS), model.encode(DOCUMENTS)).shape == (4, 4)
    assert model.encode([]) == model.encode_query([]) == model.encode([], convert_to_tensor=True) == []
    assert model.predict([]).shape == (0,)
    with pytest.raises(ValueError, match="route='doc' is unknown; pass one of 'query', 'document'"):
        model.encode("lake", task="doc")
    for option in ({"precision": "int8"}, {"out": "x.npy"}):
        with pytest.raises(ValueError, match="arrays of different lengths; leave precision= and out= out"):
            model.encode(DOCUMENTS, **option)  # type: ignore[call-overload]
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        same(both(other), both(model), 0)
    with pytest.raises(ValueError, match="or pass similarity_fn_name='maxsim' for a multi-vector encoder"):
        SentenceEncoder(model[0]).encode("lake")
    with pytest.raises(ValueError, match=r"the vocabulary has no 'xyz'; pass a token that it has"):
        encoder({"query_prefix": "xyz"}).encode_query("lake")
    with pytest.raises(ValueError, match="queries are expanded to query_length=None"):
        LateInteraction(None)
    assert digest_of_model(model) != digest_of_model(encoder({**ROLES[0], "skiplist_words": []}))


@pytest.mark.parametrize("roles", ROLES, ids=["skipped", "attending", "short", "none"])
def test_folders_in_both_directions(roles: dict[str, Any], tmp_path: Path) -> None:
    """As sentence-transformers reads what is saved here, and writes it again."""
    theirs = pytest.importorskip("sentence_transformers")
    model = encoder(roles)
    model.save(tmp_path / "ours")
    again = SentenceEncoder(tmp_path / "ours", device="cpu")
    same(both(again), both(model), 0)
    assert again.verify()
    peer = theirs.MultiVectorEncoder(str(tmp_path / "ours"), device="cpu")
    same(both(peer), both(model))
    queries, documents = both(model)[:4], both(model)[4:]
    scores = peer.similarity(list(map(torch.tensor, queries)), list(map(torch.tensor, documents)))
    np.testing.assert_allclose(scores, model.similarity(queries, documents), atol=1e-5)
    peer.save(str(tmp_path / "theirs"))
    same(both(SentenceEncoder(tmp_path / "theirs", device="cpu")), both(peer))


def test_folders_of_pylate_and_of_colbert(tmp_path: Path) -> None:
    """PyLate names its own class, leaves out settings, and writes a limit of its last call; ColBERT has one file."""
    roles = {"query_prefix": "[Q] ", "document_prefix": "[D] ", "skiplist_words": string.punctuation}
    model = encoder(roles)
    model.save(folder := tmp_path / "pylate")
    listed = modules("Transformer", "Dense")
    listed[1] |= {"type": "pylate.models.Dense.Dense", "path": "1_Dense"}
    (folder / "modules.json").write_text(json.dumps(listed))
    (folder / "config_sentence_transformers.json").write_text(json.dumps({"model_type": "ColBERT"}))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 5}))
    same(both(SentenceEncoder(folder, device="cpu")), both(model))
    (folder / "config_sentence_transformers.json").write_text('{"model_type": "ColBERT", "query_length": -1}')
    with pytest.raises(ValueError, match=r"config_sentence_transformers\.json"):
        SentenceEncoder(folder)
    (folder / "config_sentence_transformers.json").write_text('{"model_type": "ColBERT", "query_length": 1000000}')
    assert len(SentenceEncoder(folder).encode_query("lake")) == model[0].auto_model.config.max_position_embeddings
    original = tmp_path / "original"
    model[0].auto_model.save_pretrained(original)
    model[0].tokenizer.save_pretrained(original)
    config = json.loads((original / "config.json").read_text()) | {"architectures": ["HF_ColBERT"]}
    metadata = {"query_token_id": "[Q] ", "doc_token_id": "[D] ", "query_maxlen": 32, "doc_maxlen": 180}
    write(original, {"config.json": config, "artifact.metadata": metadata})
    weights = {f"bert.{name}": value.contiguous() for name, value in model[0].auto_model.state_dict().items()}
    projection = model[1].linear.weight.detach()
    save_file({**weights, "linear.weight": projection}, original / "model.safetensors", metadata={"format": "pt"})
    same(both(SentenceEncoder(original, device="cpu")), both(model))
    pooled = SentenceEncoder(model[0], Pooling("mean"), Normalize(), similarity_fn_name="maxsim")
    with pytest.raises(ValueError, match="vectors per token of Transformer, Pooling, Normalize have no format"):
        pooled.save(tmp_path / "pooled")


def test_trained_saved_and_evaluated(tmp_path: Path) -> None:
    model = encoder(ROLES[0])
    rows = list(itertools.pairwise(TEXTS[:7]))
    loss = MultipleNegativesRankingLoss(1.0, "maxsim")
    routes = {"anchor": "query", "positive": "document"}
    config = TrainingConfig(tmp_path / "run", steps=12, batch_size=3, learning_rate=1e-3, routes=routes)
    history = Trainer(model, rows, loss, config, evaluation_data=rows).fit(show_progress_bar=False)
    losses = [entry["evaluation"]["evaluation_loss"] for entry in history if "evaluation" in entry]
    assert losses[-1] < losses[0]
    same(both(SentenceEncoder(tmp_path / "run" / "final", device="cpu")), both(model), 1e-6)
    corpus = dict(enumerate(DOCUMENTS))
    queries, relevant = {"q": "a boat", "r": "lake"}, {"q": [0, 2], "r": [1]}
    scores = model.similarity(model.encode_query(list(queries.values())), model.encode_document(DOCUMENTS))
    best = [corpus[i] for i in scores.argmax(1).tolist()]
    metrics = RetrievalEvaluator(queries, corpus, relevant, similarity="maxsim")(model)
    assert metrics["accuracy@1"] == np.mean([best[0] in (DOCUMENTS[0], DOCUMENTS[2]), best[1] == DOCUMENTS[1]])
    sample = {"query": "a boat", "positive": [best[0]], "negative": [text for text in DOCUMENTS if text != best[0]]}
    assert RerankingEvaluator([sample], similarity="maxsim")(model)["mrr@10"] == 1


def test_evaluators_of_pairs() -> None:
    """By MaxSim, in blocks, too; those that need one vector per text say so."""
    model, reverse = encoder(ROLES[0]), DOCUMENTS[::-1]
    plain = [float(maxsim(*model.encode([u, v]))[0, 0]) for u, v in zip(DOCUMENTS, reverse, strict=True)]
    assert ev.SimilarityEvaluator(DOCUMENTS, reverse, plain)(model)["pearson"] == pytest.approx(1)
    assert ev.PairClassificationEvaluator(DOCUMENTS, reverse, np.array(plain) >= np.median(plain))(model)["f1"] == 1
    assert ev.TranslationEvaluator(DOCUMENTS, DOCUMENTS, "maxsim")(model)["mean_accuracy"] == 1
    read = model.encode_document(DOCUMENTS)
    order = np.argsort(-model.similarity(model.encode_query(DOCUMENTS), read), 1)
    best, worst = ([DOCUMENTS[i] for i in order[:, place]] for place in (0, -1))
    assert ev.TripletEvaluator(DOCUMENTS, best, worst)(model)["accuracy"] == 1
    with pytest.raises(ValueError, match="similarity='cosine' compares vectors of texts, not of tokens; pass 'maxsim'"):
        ev.SimilarityEvaluator(DOCUMENTS, reverse, plain, "cosine")(model)
    loss, vectors = SoftmaxLoss(dim=8, classes=2), np.ones((4, 8))
    refused = ev.LabelEvaluator(DOCUMENTS, reverse, [0, 1, 0, 1], loss), ev.MSEEvaluator(DOCUMENTS, vectors)
    for evaluator in (*refused, ev.ParaphraseMiningEvaluator(DOCUMENTS, [(0, 2)])):
        with pytest.raises(TypeError, match="one vector per token, not per text as this evaluator needs; add"):
            evaluator(model)
    read[1][0, 0] = np.nan
    model.encode_document = lambda texts, **options: [read[DOCUMENTS.index(text)] for text in texts]
    with pytest.raises(ValueError, match="the model gives NaN or infinity for 'lake'; check whether its weights"):
        RetrievalEvaluator({"q": "lake"}, dict(enumerate(DOCUMENTS)), {"q": [1]})(model)


def test_codes() -> None:
    vectors = np.random.default_rng(0).normal(size=(400, 48)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    codes = pack_tokens(vectors[:80])
    assert len(codes) == 80 * 12 < 1000  # A passage of 80 tokens.
    decoded = unpack_tokens(pack_tokens(vectors), 48)
    assert (decoded * vectors).sum(1).mean() > 0.93
    np.testing.assert_allclose(unpack_tokens(pack_tokens(decoded), 48), decoded, atol=1e-6)
    assert unpack_tokens(pack_tokens(vectors[:, :5]), 5).shape == (400, 5)  # Bits that fill no byte.
    assert pack_tokens(4 * vectors) == pack_tokens(vectors / 4) == pack_tokens(vectors)


def test_documents_without_tokens() -> None:
    """Their score by tokens is 0; the index may be empty, too, or become so."""
    model, late = SentenceEncoder(device="cpu"), encoder({"skiplist_words": ["[CLS]", "[SEP]", "lake"]})
    index = HybridIndex(model, token_vectors=late)
    assert [len(vectors) for vectors in late.encode_document(["lake", "", "boat"])] == [0, 0, 1]
    index.add([])
    index.add(["lake", "", "boat"])
    assert index.search("boat")[0][0].id == 2
    index.remove([0, 1, 2])
    assert index.search(["boat", ""]) == [[], []]


def test_the_index_ranks_by_stored_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As MaxSim with the vectors that the codes stand for; no document is encoded again; codes follow the documents."""
    monkeypatch.setattr(hybrid_index, "digest_of_model", lambda model: str(len(model)))
    model, late = SentenceEncoder(device="cpu"), encoder(ROLES[0])
    index, plain = HybridIndex(model, tmp_path / "index", token_vectors=late), HybridIndex(model)
    assert index.search("lake") == [[]]
    for changed in (index, plain):
        changed.add(DOCUMENTS, ids=list("abcd"), chunk=4)
        changed.update(["a small lake, and a boat"], ["b"])
        changed.remove(["d"])
    texts = {"a": DOCUMENTS[0], "b": "a small lake, and a boat", "c": DOCUMENTS[2]}
    index = HybridIndex(model, tmp_path / "index", token_vectors=late)
    query = late.encode_query("a boat on the lake")
    monkeypatch.setattr(late, "encode_document", None)
    results = index.search("a boat on the lake", top_k=2)[0]
    rows = dict(index._documents._connection.execute("SELECT id, row FROM documents").fetchall())
    codes = {json.loads(name): index._documents.codes(row) for name, row in rows.items()}
    assert set(codes) == set(texts)
    count = index._documents._connection.execute("SELECT count(*) FROM codes").fetchone()[0]
    assert count == 3
    scores = {name: float(maxsim([query], [unpack_tokens(code, 8)])[0, 0]) for name, code in codes.items()}
    names = list("abc")
    without = {result.id: result.score for result in plain.search("a boat on the lake", top_k=3)[0]}
    both = [Hits(np.array([[table[name] for name in names]]), np.arange(3)[None]) for table in (without, scores)]
    expected = fuse(*both, top_k=2, method="weighted", weights=(0.5, 0.5))
    assert [result.id for result in results] == [names[row] for row in expected.indices[0]]
    assert [result.score for result in results] == pytest.approx(expected.scores[0].tolist(), abs=1e-5)
    for changed, dim in ((None, None), (late, 4)):
        late.truncate_dim = dim
        with pytest.raises(ValueError, match=r"was created with token_vectors=\['4'"):
            HybridIndex(model, tmp_path / "index", token_vectors=changed)
    with pytest.raises(ValueError, match="pass one of each kind"):
        HybridIndex(late)
    index._documents._connection.execute("UPDATE codes SET codes = x'00'")
    with pytest.raises(ValueError, match="is damaged: row"):
        index.search("a boat")


def test_reranking_by_encoding_again() -> None:
    model, late = SentenceEncoder(device="cpu"), encoder(ROLES[0])
    index = HybridIndex(model)
    index.add(DOCUMENTS)
    results = index.search("a boat", rerank=late)[0]
    scores = late.similarity(late.encode_query(["a boat"]), late.encode_document(DOCUMENTS))[0]
    assert [result.id for result in results] == np.argsort(-scores, kind="stable").tolist()
    tokens = TokenEmbeddings(torch.eye(3), torch.tensor([0, 2, 3]))
    assert (len(tokens), tokens[1:].values.tolist()) == (2, [[0.0, 0.0, 1.0]])
