"""Offline, quiet, the data of evaluations, and a small model."""

from __future__ import annotations

import os

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "true"
# Small batches take as many threads as cores are free, and the number of threads changes the last digits.
os.environ["OMP_NUM_THREADS"] = "1"
# Processes of the tests do not wait for their threads by spinning.
os.environ["OMP_WAIT_POLICY"] = "PASSIVE"

import gc
from pathlib import Path

import pytest
from tqdm import tqdm

from sbert import SentenceEncoder
from tests import small

# No thread of tqdm, which may hold its lock while a test forks: the child would wait for it forever.
tqdm.monitor_interval = 0
gc.disable()  # Until all is imported.


def pytest_collection_finish() -> None:
    """What is imported stays; a garbage collector that looks through all of it takes half a second each time."""
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of evaluation data that SBERT_DATA names; tests that want it are skipped without."""
    folder = os.environ.get("SBERT_DATA")
    if not folder or not (Path(folder) / "stsb").is_dir():
        pytest.skip("SBERT_DATA names no folder of evaluation data")
    return Path(folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small transformer."""
    return small.bert(tmp_path_factory.mktemp("bert"))


@pytest.fixture(scope="module")
def model(folder: Path) -> SentenceEncoder:
    return SentenceEncoder(folder, device="cpu")
