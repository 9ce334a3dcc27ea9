"""Small windows, and a model of words."""

from __future__ import annotations

import pytest
import torch

from sbert import Pooling, SentenceEncoder
from sbert.modules import WordEmbeddings
from sbert.vector_files import reader, write
from tests.vector_files.samples import STRIPE


@pytest.fixture(autouse=True)
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "STRIPE", STRIPE)
    monkeypatch.setattr(write, "_WINDOW", 2 * STRIPE)


@pytest.fixture(scope="session")
def words() -> SentenceEncoder:
    vectors = torch.randn(3, 6, generator=torch.Generator().manual_seed(0))
    return SentenceEncoder(WordEmbeddings(["red", "fox", "sea"], vectors), Pooling(), device="cpu")
