"""The hash of a model changes with what its vectors depend on, and with nothing else."""

from __future__ import annotations

import random
from copy import deepcopy
from typing import Any

import numpy as np
import torch

from sbert import Pooling, SentenceEncoder
from sbert.modules import WordEmbeddings
from sbert.vector_files.fingerprint import digest_of_model


class Own(torch.nn.Module):
    """A module of the caller's own."""

    def __init__(self, value: Any, buffer: float = 1.0) -> None:
        super().__init__()
        self.value = value
        self.calls = object()
        self._calls = random.random()
        self.register_buffer("scale", torch.tensor(buffer, dtype=torch.bfloat16), persistent=False)

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        self._calls += 1
        return vectors * self.get_buffer("scale")


def test_the_hash_of_modules_of_the_callers_own() -> None:
    words = [WordEmbeddings(["red", "fox"], torch.eye(2)), Pooling()]

    def digest(*values: Any) -> str:
        model = SentenceEncoder(*words, Own(*values), device="cpu")
        before = digest_of_model(model)
        model.encode("red fox")
        assert digest_of_model(model) == before
        return before

    long, other = torch.arange(3000.0), torch.arange(3000.0).index_fill(0, torch.tensor(1500), 0.0)
    values: list[tuple[Any, ...]] = [(1.0,), (3.0,), (1.0, 2.0), (np.float32(0.5),), (long,), (other,)]
    values += [({"a": [number, None]},) for number in (1, 2)]
    digests = [digest(*each) for each in values]
    assert [digest(*each) for each in deepcopy(values)] == digests
    assert len(set(digests)) == len(values)


def test_a_model_has_one_hash_and_another_one_when_it_is_changed() -> None:
    """Of the library's model, whose folder has no pooler: that is random whenever it is loaded."""
    weights, length = (SentenceEncoder(device="cpu") for _ in range(2))
    digest = digest_of_model(weights)
    assert digest_of_model(length) == digest
    with torch.no_grad():
        weights[0].network.embeddings.word_embeddings.weight[7, 7] += 1e-3
    length.max_seq_length = 64
    assert len({digest, digest_of_model(weights), digest_of_model(length)}) == 3
