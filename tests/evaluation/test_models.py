"""What evaluators take for a model, and the prompts with which they encode."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sbert import Pooling, SentenceEncoder, Transformer
from sbert.evaluation import RerankingEvaluator, RetrievalEvaluator, SimilarityEvaluator, TripletEvaluator
from sbert.pipeline.model import choose_prompt
from tests import small
from tests.contract.evaluators import EVALUATORS, Meanings

PROMPTS = {"query": "the red fox ", "document": "seven "}


@pytest.fixture(scope="module")
def prompted() -> SentenceEncoder:
    """A model whose prompt for queries is the default one."""
    reader = Transformer(small.bert_model(), small.wrapped(small.wordpiece(), 64))
    return SentenceEncoder(reader, Pooling("mean"), prompts=PROMPTS, default_prompt_name="query", device="cpu")


def test_evaluators_know_queries_from_documents(prompted: SentenceEncoder) -> None:
    """The default prompt is one for queries here, and stands before no document unless it is asked for."""
    sample = {"query": "lake", "positive": ["boat"], "negative": ["fox"]}
    made: list[Any] = [
        partial(RetrievalEvaluator, {"q": "lake"}, {"a": "boat", "b": "fox"}, {"q": ["a"]}),
        partial(RerankingEvaluator, [sample]),
        partial(TripletEvaluator, ["lake"], ["boat"], ["fox"]),
    ]
    calls: list[tuple[str, ...]] = []

    class Watched(SentenceEncoder):
        def encode(self, sentences: Any, **options: Any) -> Any:
            prompt = choose_prompt(self, options.get("prompt_name"), options.get("prompt"))
            calls.extend((prompt, text) for text in sentences)
            return super().encode(sentences, **options)

    plain = Watched(*prompted, prompts={"query": PROMPTS["query"]}, default_prompt_name="query", device="cpu")
    for make in made:
        with pytest.raises(ValueError, match=r"no prompt 'document' or 'passage' .*pass document_prompt="):
            make()(plain)
        calls.clear()
        make(document_prompt="")(plain)
        assert sorted(calls) == [("", "boat"), ("", "fox"), ("the red fox ", "lake")]
        calls.clear()
        make(query_prompt="ten ", document_prompt="query")(plain)
        assert sorted(calls) == [("ten ", "lake"), ("the red fox ", "boat"), ("the red fox ", "fox")]
    calls.clear()
    for prompt in (None, "", "ten "):
        SimilarityEvaluator(["lake", "lake"], ["boat", "fox"], [1, 0], prompt=prompt)(plain)
    assert {prompt for prompt, _ in calls} == {"the red fox ", "", "ten "}


class Foreign:
    """A model of which nothing is known but that it encodes a list of texts, and as what."""

    def __init__(self, form: str) -> None:
        self.form, self.known = form, Meanings()

    def encode(self, sentences: list[str]) -> Any:
        assert type(sentences) is list
        return FORMS[self.form](self.known.encode(sentences))


FORMS: dict[str, Callable[[np.ndarray], Any]] = {
    "array": lambda vectors: vectors.astype(np.float64),
    "tensor": lambda vectors: torch.tensor(vectors, requires_grad=True).bfloat16(),
    "tensors": lambda vectors: list(torch.from_numpy(vectors)),
    "lists": np.ndarray.tolist,
}


@pytest.mark.parametrize("form", FORMS)
def test_evaluators_take_anything_that_encodes(form: str, tmp_path: Path) -> None:
    for make, first in EVALUATORS.values():
        assert make()(Foreign(form), output=tmp_path / "results.jsonl")[first] == make()(Meanings())[first]


def test_what_does_not_encode_is_refused() -> None:
    for model, words in (
        (lambda texts: texts, "is of type function; pass a SentenceEncoder, or any object with a method encode"),
        (type("Wrong", (), {"encode": lambda self, texts: np.zeros(3)})(), r"Wrong.encode returns the shape \(3,\)"),
    ):
        with pytest.raises((TypeError, ValueError), match=words):
            TripletEvaluator(["a"], ["b"], ["c"])(model)
