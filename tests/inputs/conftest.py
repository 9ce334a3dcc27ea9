"""The models of this folder's tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from sbert import CrossEncoder, Pooling, SentenceEncoder, Transformer
from tests import small


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("models")
    SentenceEncoder(Transformer(small.bert(root / "bert")), Pooling("mean"), device="cpu").save(root / "small")
    return root / "small"


@pytest.fixture(scope="module")
def model(folder: Path) -> SentenceEncoder:
    return SentenceEncoder(folder, device="cpu")


@pytest.fixture(scope="module")
def scorer(folder: Path) -> CrossEncoder:
    return CrossEncoder(folder, classes=1, device="cpu")
