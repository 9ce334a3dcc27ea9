"""Evaluators give the figures of sentence-transformers'."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentence_transformers import CrossEncoder as Peer
from sentence_transformers import SentenceTransformer
from sentence_transformers.cross_encoder import evaluation as of_scores
from sentence_transformers.sentence_transformer import evaluation as theirs

from sbert import CrossEncoder, SentenceEncoder
from sbert.evaluation import (
    LabelEvaluator,
    PairClassificationEvaluator,
    ParaphraseMiningEvaluator,
    RerankingEvaluator,
    RetrievalEvaluator,
    SimilarityEvaluator,
    TranslationEvaluator,
    TripletEvaluator,
)
from sbert.functional import SIMILARITIES
from sbert.integrations.sentence_transformers.cross_encoder import evaluation as adapters
from tests import small
from tests.contract.evaluators import models


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return models(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def model(folder: Path) -> SentenceEncoder:
    return SentenceEncoder(folder / "encoder", device="cpu")


@pytest.fixture(scope="module")
def peer(folder: Path) -> Any:
    return SentenceTransformer(str(folder / "encoder"), device="cpu", local_files_only=True)


def both(path: Path) -> tuple[CrossEncoder, Any]:
    return CrossEncoder(path, device="cpu"), Peer(str(path), device="cpu", local_files_only=True)


def sentences(count: int, seed: int) -> list[str]:
    """Different ones."""
    rng, words = np.random.default_rng(seed), small.CORPUS[0].split() + small.CORPUS[1].split()
    return [f"{' '.join(rng.choice(words, rng.integers(1, 9)))} {small.words()[-1 - i % 60]} {i}" for i in range(count)]


def same(found: dict[str, float], expected: dict[str, Any], names: dict[str, str]) -> None:
    assert {name: found[name] for name in names} == pytest.approx(
        {name: float(expected[theirs]) for name, theirs in names.items()}, abs=1e-6
    )


def test_similarity_equals_theirs(model: SentenceEncoder, peer: Any) -> None:
    columns = sentences(60, 0), sentences(60, 1), np.random.default_rng(0).integers(0, 6, 60).astype(float)
    expected = theirs.EmbeddingSimilarityEvaluator(*columns, similarity_fn_names=list(SIMILARITIES))(peer)
    for name in SIMILARITIES:
        found = SimilarityEvaluator(*columns, name)(model)
        same(found, expected, {figure: f"{figure}_{name}" for figure in ("spearman", "pearson")})


def test_pair_classification_equals_theirs(model: SentenceEncoder, peer: Any) -> None:
    columns = sentences(60, 0), sentences(60, 1), np.random.default_rng(0).integers(0, 2, 60).tolist()
    expected = theirs.BinaryClassificationEvaluator(*columns, similarity_fn_names=["cosine", "dot"])(peer)
    figures = ("accuracy", "accuracy_threshold", "f1", "f1_threshold", "precision", "recall")
    for name in ("cosine", "dot"):
        found = PairClassificationEvaluator(*columns, name)(model)
        names = {figure: f"{name}_{figure}" for figure in figures}
        same(found, expected, {**names, "average_precision": f"{name}_ap"})


@pytest.mark.parametrize("margin", [0.0, 0.02])
def test_triplets_equal_theirs(margin: float, model: SentenceEncoder, peer: Any) -> None:
    columns = [sentences(40, seed) for seed in range(3)]
    expected = theirs.TripletEvaluator(*columns, margin=margin, similarity_fn_names=list(SIMILARITIES))(peer)
    for name in SIMILARITIES:
        same(TripletEvaluator(*columns, name, margin)(model), expected, {"accuracy": f"{name}_accuracy"})


@pytest.mark.parametrize("block", [30, 50_000])
def test_retrieval_equals_theirs(block: int, model: SentenceEncoder, peer: Any) -> None:
    """Ids in the order of the corpus, by which they break ties; a query without judgments; texts that stand twice."""
    texts, rng = sentences(150, 0), np.random.default_rng(0)
    corpus = {f"{i:03}": texts[i % 140] for i in range(150)}
    queries = {f"q{i}": sentence for i, sentence in enumerate(sentences(20, 1))}
    relevant = {f"q{i}": {f"{j:03}" for j in rng.integers(0, 150, rng.integers(1, 30))} for i in range(19)}
    functions = {name: SIMILARITIES[name] for name in ("cosine", "dot")}
    settings: dict[str, Any] = {"map_at_k": [5, 100], "corpus_chunk_size": block, "score_functions": functions}
    expected = theirs.InformationRetrievalEvaluator(queries, corpus, relevant, **settings)(peer)
    for name in functions:
        ours = RetrievalEvaluator(queries, corpus, relevant, map_at=(5, 100), similarity=name, block=block)(model)
        assert 2 * len(ours) == len(expected) == 32
        same(ours, expected, {figure: f"{name}_{figure}" for figure in ours})


def samples(seed: int) -> list[dict[str, Any]]:
    rng, texts = np.random.default_rng(seed), sentences(200, seed)
    sizes = [(rng.integers(1, 6), rng.integers(1, 30)) for _ in range(20)]
    return [
        {"query": texts[i], "positive": texts[20 + i : 20 + i + right], "negative": texts[60 : 60 + wrong]}
        for i, (right, wrong) in enumerate(sizes)
    ]


@pytest.mark.parametrize("k", [3, 10])
def test_reranking_equals_theirs(k: int, model: SentenceEncoder, peer: Any) -> None:
    found, expected = RerankingEvaluator(samples(0), k)(model), theirs.RerankingEvaluator(samples(0), at_k=k)(peer)
    same(found, expected, {name: name for name in ("map", f"mrr@{k}", f"ndcg@{k}")})


def test_reranking_what_a_retriever_found_equals_theirs(folder: Path) -> None:
    """With their default, by which the missed positives are ranked, too."""
    retrieved = [
        {"query": one["query"], "positive": one["positive"], "documents": [*one["negative"][:3], one["positive"][0]]}
        for one in samples(2)
    ]
    scorer, peer = both(folder / "scorer")
    found = adapters.CrossEncoderRerankingEvaluator(retrieved, name="dev")(scorer)
    expected = of_scores.CrossEncoderRerankingEvaluator(retrieved, name="dev")(peer)
    same(
        found,
        expected,
        {name: name for name in map("dev_{}".format, ("map", "mrr@10", "ndcg@10", "base_map", "base_ndcg@10"))},
    )
    strict = adapters.CrossEncoderRerankingEvaluator(retrieved, always_rerank_positives=False)(scorer)
    assert strict["map"] < found["dev_map"]
    assert strict["recall"] < 1


def test_other_figures_of_scores_equal_theirs(folder: Path) -> None:
    columns, rng = (sentences(60, 0), sentences(60, 1)), np.random.default_rng(0)
    rows = [list(pair) for pair in zip(*columns, strict=True)]
    (ours, peer), scores = both(folder / "scorer"), rng.normal(size=60)
    # On the same scores: those of a tiny model differ by so little that rounding would change their correlation.
    peer.predict = lambda pairs, **options: ours.predict(pairs)
    expected = of_scores.CrossEncoderCorrelationEvaluator(rows, scores)(peer)
    same(SimilarityEvaluator(*columns, scores)(ours), expected, {"spearman": "spearman", "pearson": "pearson"})
    labels = rng.integers(0, 2, 60).tolist()
    expected = of_scores.CrossEncoderClassificationEvaluator(rows, labels)(peer)
    found = PairClassificationEvaluator(*columns, labels)(ours)
    assert set(found) == set(expected)
    same(found, expected, {name: name for name in found})
    (ours, peer), labels = both(folder / "classes"), rng.integers(0, 3, 60).tolist()
    expected = of_scores.CrossEncoderClassificationEvaluator(rows, labels)(peer)
    same(LabelEvaluator(*columns, labels)(ours), expected, {"macro_f1": "f1_macro"})


def test_paraphrase_mining_equals_theirs(model: SentenceEncoder, peer: Any) -> None:
    """They compare each sentence with its hundred nearest; of 90 sentences, that is all."""
    texts, rng = sentences(90, 0), np.random.default_rng(0)
    duplicates = [(int(i), int(j)) for i, j in rng.integers(0, 90, (400, 2)) if i != j]
    named = [(str(i), str(j)) for i, j in duplicates]
    for kept in (500_000, 300):
        found = ParaphraseMiningEvaluator(texts, duplicates, max_pairs=kept)(model)
        expected = theirs.ParaphraseMiningEvaluator(
            {str(i): text for i, text in enumerate(texts)}, named, max_pairs=kept
        )(peer)
        same(found, expected, {name: name for name in ("average_precision", "f1", "precision", "recall", "threshold")})


def test_translation_equals_theirs(model: SentenceEncoder, peer: Any) -> None:
    source = sentences(40, 0)
    target = [" ".join(reversed(sentence.split())) for sentence in source]
    source[3], target[7] = source[5], target[9]  # Sentences that stand twice.
    found, expected = TranslationEvaluator(source, target)(model), theirs.TranslationEvaluator(source, target)(peer)
    same(found, expected, {"source_to_target": "src2trg_accuracy", "target_to_source": "trg2src_accuracy"})
    assert 0 < found["mean_accuracy"] < 1
