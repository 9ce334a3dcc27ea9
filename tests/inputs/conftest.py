"""The cross-encoder of this folder's tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from sbert import CrossEncoder


@pytest.fixture(scope="module")
def scorer(folder: Path) -> CrossEncoder:
    return CrossEncoder(folder, classes=1, device="cpu")
