"""Evaluators that search do so in the memory of a block, and judge what comes first as they say."""

from __future__ import annotations

import math

import pytest

from sbert.evaluation import RerankingEvaluator, RetrievalEvaluator
from tests.contract.evaluators import Meanings, text
from tests.memory import grown


@pytest.mark.slow  # The memory of a process is what only a process of its own shows.
def test_a_corpus_of_evaluation_is_searched_in_the_memory_of_a_block() -> None:
    """Its vectors have 82 MB, a block's 1 MB."""
    before = """
import numpy as np
from sbert.evaluation import RetrievalEvaluator
from tests.contract.evaluators import Meanings
class Random(Meanings):
    def _encode(self, kind, sentences):
        return np.random.default_rng(len(sentences)).normal(size=(len(sentences), 512)).astype(np.float32)
def evaluator(rows):
    return RetrievalEvaluator({"q": "q"}, {str(i): str(i) for i in range(rows)}, {"q": {"7"}}, block=500)
small, large = evaluator(2000), evaluator(40_000)
small(Random())
"""
    assert grown(before, "large(Random())") < 40e6


def test_grades_are_the_gain_and_zero_is_not_relevant() -> None:
    documents = {"a": text(0), "b": text(0, 1), "c": text(0, 2), "d": text(1)}
    found = RetrievalEvaluator({"q": text(0)}, documents, {"q": {"d": 4, "b": 2, "a": 0}}, precision_recall_at=(2,))(
        Meanings()
    )
    best = 4 + 2 / math.log2(3)
    assert found["ndcg@10"] == pytest.approx((2 / math.log2(3) + 4 / math.log2(5)) / best)
    assert (found["precision@2"], found["recall@2"], found["mrr@10"], found["accuracy@1"]) == (0.5, 0.5, 0.5, 0)
    assert found["map@100"] == pytest.approx((1 / 2 + 2 / 4) / 2)


def test_what_a_retriever_missed_is_not_found() -> None:
    found = [text(1), text(0), text(1, 1), text(0)]  # One text twice.
    missed = {"query": text(0), "positive": [text(0), text(0, 2)], "documents": found}
    nothing = {"query": text(2), "positive": [text(2)], "documents": []}
    figures = RerankingEvaluator([missed, nothing])(Meanings())
    best, expected = 1 + 1 / math.log2(3), 1 / math.log2(3)
    reranked = {"map": (1 / 2) / 2, "mrr@10": 1 / 2, "ndcg@10": 1 / best / 2}
    base = {"base_map": (1 / 4) / 2, "base_mrr@10": (1 / 2) / 2, "base_ndcg@10": expected / best / 2}
    assert figures == pytest.approx({**reranked, **base, "recall": (1 / 2) / 2})
    for wrong, message in (
        ({"query": "a", "positive": ["b"], "negative": ["c"]}, r"\[1\] has the keys .*documents"),
        ({**missed, "positive": []}, r"samples\[1\] has no positive text"),
    ):
        with pytest.raises(ValueError, match=message):
            RerankingEvaluator([missed, wrong])
