"""Heads of models for sequence classification: run alone on the first tokens where that gives the same scores."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers

from sbert import TokenBatch
from sbert.backends import packed, scores
from sbert.backends.network import state_of
from sbert.backends.padded import Padded
from sbert.backends.state import ModelState
from tests import small
from tests.backends.test_families import DISTIL, ELECTRA, MODERN, QWEN, ROBERTA, SHAPE

ROWS = [[3, 9, 4, 7], [5, 7, 6, 8, 20, 11], [2], list(range(3, 40)), [8, 9, 4]]
MPNET = {**SHAPE, "pad_token_id": 1}
MEAN = {**MODERN, "classifier_pooling": "mean"}


def model(kind: str, settings: dict[str, Any]) -> Any:
    config = getattr(transformers, f"{kind}Config")(vocab_size=300, num_labels=3, **settings)
    made = small.randomized(getattr(transformers, f"{kind}ForSequenceClassification")(config))
    packed.adopt(made.base_model)
    return made


@pytest.mark.parametrize(
    ("kind", "settings", "first"),
    [
        ("Bert", SHAPE, True),
        ("Roberta", ROBERTA, True),
        ("Electra", ELECTRA, True),
        ("MPNet", MPNET, True),
        ("DistilBert", DISTIL, True),
        ("ModernBert", MODERN, True),
        ("ModernBert", MEAN, False),
        ("Qwen3", QWEN, False),
    ],
)
def test_scores_of_the_module(kind: str, settings: dict[str, Any], first: bool) -> None:
    made, batch = model(kind, settings), TokenBatch.from_rows(ROWS)
    with torch.no_grad():
        found, expected = scores(made, batch), Padded(made).scores(batch)
    assert state_of(made, ModelState).reads_first == first
    assert (found - expected).abs().max() <= 1e-5 * expected.abs().max()
    assert (expected[0] - expected[1]).abs().max() > 1e-3


def test_gradients_of_the_module() -> None:
    gradients = []
    for way in (scores, lambda made, batch: Padded(made).scores(batch)):
        made = model("Bert", SHAPE).double()
        way(made, TokenBatch.from_rows(ROWS)).square().sum().backward()
        gradients.append({name: p.grad for name, p in made.named_parameters() if p.grad is not None})
    torch.testing.assert_close(*gradients, rtol=1e-10, atol=1e-10)
