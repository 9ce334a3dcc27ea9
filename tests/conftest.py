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


# What stands around the core, or is made of many small trainings: without it, an answer takes two minutes.
SLOW = tuple(
    f"{Path(__file__).parent.as_posix()}/{name}"
    for name in (
        "cli/", "evaluation/", "integrations/", "project/", "storage/", "training/", "vector_files/", "visualization/",
        "inputs/test_strings.py", "inputs/test_unknown_tokens.py", "pipeline/test_deterministic.py",
        "pipeline/test_pool.py", "search/test_hybrid_index.py",
    )
)  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.as_posix().startswith(SLOW) and item.path.name != "test_imports.py":  # Which takes a moment.
            item.add_marker("slow")


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
