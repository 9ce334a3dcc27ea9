"""The hash of a model changes with what its vectors depend on, and with nothing else."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
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

    made: list[Callable[[], tuple[Any, ...]]] = [
        lambda: (1.0,),
        lambda: (3.0,),
        lambda: ({"a": [1, None]},),
        lambda: ({"a": [2, None]},),
        lambda: (torch.arange(3000.0),),
        lambda: (torch.arange(3000.0).index_fill(0, torch.tensor(1500), 0.0),),
        lambda: (np.float32(0.5),),
        lambda: (1.0, 2.0),
    ]
    assert [digest(*make()) for make in made] == (first := [digest(*make()) for make in made])
    assert len(set(first)) == len(made)


@pytest.mark.slow
def test_the_hash_of_a_model_is_the_same_in_each_process_and_another_for_another_model() -> None:
    """Of the library's model, whose folder has no pooler: that is random in each process."""
    program = (
        "from sbert import SentenceEncoder; from sbert.vector_files.fingerprint import digest_of_model;"
        " print(digest_of_model(SentenceEncoder(device='cpu')))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    model = SentenceEncoder(device="cpu")
    before = digest_of_model(model)
    assert done.stdout.strip() == before
    with torch.no_grad():
        model[0].network.embeddings.word_embeddings.weight[7, 7] += 1e-3
    assert digest_of_model(model) != before
    model = SentenceEncoder(device="cpu")
    model.max_seq_length = 64
    assert digest_of_model(model) != before
