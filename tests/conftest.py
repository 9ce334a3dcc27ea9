"""Offline, quiet, and the real model for whoever asks."""

from __future__ import annotations

import os

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "true"

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of evaluation data that SBERT_DATA names; tests that want it are skipped without."""
    folder = os.environ.get("SBERT_DATA")
    if not folder or not (Path(folder) / "stsb").is_dir():
        pytest.skip("SBERT_DATA names no folder of evaluation data")
    return Path(folder)
