"""The metrics of rankings are those of trec_eval."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import pytrec_eval

from sbert.evaluation import RerankingEvaluator, RetrievalEvaluator, ranking

RNG = np.random.default_rng(0)
DOCUMENTS = [f"document {number}" for number in range(300)]
QUERIES = [f"query {number}" for number in range(25)]
# Of each query, 1 to 40 judged documents with grades of 0 to 3, at least one above 0.
JUDGED: dict[str, dict[str, int]] = {
    query: {DOCUMENTS[place]: int(max(RNG.integers(0, 4), first)) for first, place in enumerate(places) if first < 2}
    | {DOCUMENTS[place]: int(RNG.integers(0, 4)) for place in places[2:]}
    for query in QUERIES
    for places in [RNG.permutation(300)[: RNG.integers(2, 40)].tolist()]
}
VECTORS = {text: RNG.standard_normal(8).astype(np.float32) for text in [*QUERIES, *DOCUMENTS]}
TOLERANCE = 1e-6


class Model:
    """Vectors of texts by chance."""

    def encode(self, texts: list[str]) -> np.ndarray:
        return np.array([VECTORS[text] for text in texts])


class Scorer:
    """Scores of pairs: the cosine of the vectors."""

    is_cross_encoder = True

    def predict(self, pairs: list[tuple[str, str]], **_: Any) -> np.ndarray:
        return np.array([cosine(*pair) for pair in pairs], np.float32)


def cosine(query: str, document: str) -> float:
    first, second = VECTORS[query].astype(float), VECTORS[document].astype(float)
    return float(first @ second / np.linalg.norm(first) / np.linalg.norm(second))


def run(count: int = 300, scores: Any = cosine) -> dict[str, dict[str, float]]:
    """For each query, the scores of some documents: for the first 3 queries of none that is relevant."""
    found = {}
    for number, query in enumerate(QUERIES):
        known = [text for text in DOCUMENTS if number >= 3 or JUDGED[query].get(text, 0) == 0]
        found[query] = {text: scores(query, text) for text in known[number : number + count]}
    return found


def of_trec(results: dict[str, dict[str, float]]) -> dict[str, float]:
    names = {"ndcg", "ndcg_cut_10", "map", "recip_rank", "recall_10", "P_10", "success_5"}
    by_query = pytrec_eval.RelevanceEvaluator(JUDGED, names).evaluate(results)
    assert len(by_query) == len(QUERIES)
    found = {name: float(np.mean([own[name] for own in by_query.values()])) for name in names}
    # Neither package has MRR of the first 10 alone.
    best = {query: dict(sorted(own.items(), key=lambda item: -item[1])[:10]) for query, own in results.items()}
    first = pytrec_eval.RelevanceEvaluator(JUDGED, {"recip_rank"}).evaluate(best)
    return {**found, "mrr@10": float(np.mean([own["recip_rank"] for own in first.values()]))}


@pytest.mark.parametrize("count", [300, 60, 5])
def test_functions_are_trec_eval(count: int) -> None:
    results = run(count)
    ranked = np.zeros((len(QUERIES), count))
    relevant = np.zeros((len(QUERIES), 40))
    for row, (query, scores) in enumerate(results.items()):
        order = sorted(scores, key=lambda text, own=scores: -own[text])  # type: ignore[misc]
        ranked[row, : len(order)] = [JUDGED[query].get(text, 0) for text in order]
        relevant[row, : len(JUDGED[query])] = list(JUDGED[query].values())
    found = {
        "ndcg": ranking.ndcg_at(ranked, None, relevant),
        "ndcg_cut_10": ranking.ndcg_at(ranked, 10, relevant),
        "map": ranking.average_precision_at(ranked, None, relevant),
        "recip_rank": ranking.reciprocal_rank_at(ranked),
        "mrr@10": ranking.reciprocal_rank_at(ranked, 10),
        "recall_10": ranking.recall_at(ranked, 10, relevant),
        "P_10": ranking.precision_at(ranked, 10),
        "success_5": ranking.hit_at(ranked, 5),
    }
    for name, expected in of_trec(results).items():
        assert float(found[name].mean()) == pytest.approx(expected, abs=TOLERANCE), name


def test_retrieval_is_trec_eval() -> None:
    everything = {query: {text: cosine(query, text) for text in DOCUMENTS} for query in QUERIES}
    expected = of_trec(everything)
    queries, corpus = {text: text for text in QUERIES}, {text: text for text in DOCUMENTS}
    at = {"ndcg_at": (10, 300), "map_at": (300,), "mrr_at": (300,), "accuracy_at": (5,), "precision_recall_at": (10,)}
    found = RetrievalEvaluator(queries, corpus, JUDGED, **at)(Model())  # type: ignore[arg-type]
    names = ("ndcg_cut_10", "ndcg", "map", "recip_rank", "success_5", "P_10", "recall_10")
    ours = ("ndcg@10", "ndcg@300", "map@300", "mrr@300", "accuracy@5", "precision@10", "recall@10")
    for name, own in zip(names, ours, strict=True):
        assert found[own] == pytest.approx(expected[name], abs=TOLERANCE), own


def test_reranking_what_a_retriever_found_is_trec_eval() -> None:
    """What it missed counts, in both orders."""
    samples = [
        {"query": query, "positive": {text: grade for text, grade in JUDGED[query].items() if grade}, "documents": own}
        for query, own in ((query, [*scores]) for query, scores in run(150).items())
    ]
    found = RerankingEvaluator(samples)(Scorer())
    assert 0.3 < found["recall"] < 0.7
    places = {text: -place for place, text in enumerate(DOCUMENTS)}
    for prefix, results in (("", run(150)), ("base_", run(150, lambda _, text: float(places[text])))):
        expected = of_trec(results)
        for name, own in (("ndcg_cut_10", "ndcg@10"), ("map", "map"), ("mrr@10", "mrr@10")):
            if name in expected:
                assert found[f"{prefix}{own}"] == pytest.approx(expected[name], abs=TOLERANCE), prefix + own
