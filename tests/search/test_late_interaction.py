"""Late interaction is MaxSim over token vectors, and rerankers with a weight are fused with the search."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from sbert import SentenceEncoder
from sbert.chunking import split
from sbert.search import HybridIndex, LateInteraction, late_interaction
from tests import small

QUERIES = ["a small boat", "the red fox", "seven green hills before the long winter"]
DOCUMENTS = ["a boat on the lake", "the fox runs", "winter is long", "a small red boat", "the hills are green"]


def tokens(model: SentenceEncoder, text: str) -> np.ndarray:
    vectors = np.asarray(model.encode(text, output_value="token_embeddings"), np.float64)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def expected(model: SentenceEncoder, query: str, passages: list[str]) -> float:
    """The definition, in float64."""
    document = [token for passage in passages for token in tokens(model, passage)]
    return float(np.mean([max(float(one @ other) for other in document) for one in tokens(model, query)]))


def test_scores_are_those_of_the_definition(model: SentenceEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(late_interaction, "_STEP", 2)
    pairs = [(query, document) for query in QUERIES for document in DOCUMENTS]
    order = np.random.default_rng(0).permutation(len(pairs)).tolist()
    found = LateInteraction(model).predict([pairs[row] for row in order])
    assert found.dtype == np.float32
    for row, score in zip(order, found.tolist(), strict=True):
        query, document = pairs[row]
        assert score == pytest.approx(expected(model, query, [document]), abs=1e-6)


def test_a_long_document_is_read_whole(model: SentenceEncoder) -> None:
    document = " ".join(["the red fox runs over seven green hills."] * 30 + ["a small boat."])
    passages = [chunk.text([document]) for chunk in split(model, [document])]
    assert len(passages) > 1
    score = LateInteraction(model).predict([("a small boat", document)])[0]
    assert score == pytest.approx(expected(model, "a small boat", passages), abs=1e-6)


def test_wrong_input(model: SentenceEncoder) -> None:
    late, make = LateInteraction(model), LateInteraction
    for call, message in (
        (lambda: late.predict([("boat", "lake"), "boat"]), "pair 1 is 'boat'; pass a query and a document"),  # type: ignore
        (lambda: late.predict([("boat", 3)]), r"pairs\[0\] is of type int"),  # type: ignore
        (lambda: make("model"), "model must be a SentenceEncoder"),  # type: ignore
        (lambda: make(model, weight=-0.1), "pass 0 to 1"),
        (lambda: make(model, weight=1.1), "pass 0 to 1"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            call()


@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
def test_an_index_is_reranked(model: SentenceEncoder, weight: float) -> None:
    index, late = HybridIndex(model), LateInteraction(model, weight=weight)
    index.add(DOCUMENTS)
    before, found = index.search(QUERIES, 4), index.search(QUERIES, 2, rerank=late, candidates=4)
    for query, old, new in zip(QUERIES, before, found, strict=True):
        both = np.array([[result.score for result in old], late.predict([(query, result.text) for result in old])])
        first, second = (both - both.min(1, keepdims=True)) / np.ptp(both, 1, keepdims=True)
        scores = (1 - weight) * first + weight * second
        best = np.argsort(-scores, kind="stable")[:2]
        assert [result.id for result in new] == [old[row].id for row in best]
        assert [result.score for result in new] == pytest.approx(scores[best].tolist(), abs=1e-6)
    assert [row[0].score for row in index.search(QUERIES, 1, rerank=late, candidates=1)] == [0, 0, 0]


def test_halves_and_prompts(tmp_path: Any) -> None:
    model = SentenceEncoder(small.bert(tmp_path / "bert"), device="cpu")
    plain = LateInteraction(model).predict([("boat", "lake")])[0]
    model.prompts = {"query": "the ", "document": "a "}
    assert LateInteraction(model).predict([("boat", "lake")])[0] == pytest.approx(
        expected(model, "the boat", ["a lake"]), abs=1e-6
    )
    assert LateInteraction(model).predict([("boat", "lake")])[0] != pytest.approx(plain, abs=1e-4)
    model.to(torch.bfloat16)
    assert np.isfinite(LateInteraction(model).predict([("boat", "lake")])).all()
