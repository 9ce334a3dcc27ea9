"""A pytest plugin: which tests run.

``-m "not slow"`` leaves out what takes long or stands around the core. ``--gate``, which ``.ci/run`` adds, runs what is
marked ``gate``: tests of other tests, of measuring programs, of the paper, and of pages that take long. What is left
out is not even imported, except that a file that is named on the command line always runs.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# What stands around the core, or is made of many small trainings: without it, an answer takes less than two minutes.
SLOW = tuple(
    f"{ROOT.as_posix()}/tests/{name}"
    for name in (
        "cli/", "evaluation/", "integrations/", "project/", "storage/", "training/", "vector_files/", "visualization/",
        "backends/test_minimal_bert.py", "contract/test_backward.py", "inputs/test_strings.py",
        "inputs/test_unknown_tokens.py",
        "pipeline/test_pool.py", "search/test_hybrid_index.py", "simulated_cuda/",
    )
)  # fmt: skip
# Examples that start processes, trace a model or train one: more than four seconds.
SLOW_EXAMPLES = {
    "sbert.cross_encoder.CrossEncoder.fit",
    "sbert.encoder.SentenceEncoder.compile",
    "sbert.integrations.sentence_transformers.install",
    "sbert.saving.export.folder.export",
}
_GATE_FILE = re.compile(r"^pytestmark = \[?\s*pytest\.mark\.gate\b", re.MULTILINE)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--gate", action="store_true", help="run what is marked gate, and nothing else")


def is_slow(path: Path) -> bool:
    return path.as_posix().startswith(SLOW)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out files by their names and texts: imports would cost more than the tests that are left out."""
    if collection_path.suffix != ".py" or collection_path.name == "conftest.py":
        return None
    text = collection_path.read_text(encoding="utf-8")
    is_helper = ROOT / "tests" in collection_path.parents and not collection_path.name.startswith("test_")
    left_out = "mark.gate" not in text if config.option.gate else _GATE_FILE.search(text)
    skips_slow = config.option.markexpr == "not slow" and is_slow(collection_path)
    return True if is_helper or left_out or skips_slow else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    def is_chosen(item: pytest.Item) -> bool:
        is_gate = item.get_closest_marker("gate") is not None
        return is_gate == config.option.gate or (is_gate and session.isinitpath(item.path))

    for item in items:
        if is_slow(item.path) or (isinstance(item, pytest.DoctestItem) and item.name in SLOW_EXAMPLES):
            item.add_marker("slow")
    left_out = [item for item in items if not is_chosen(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if is_chosen(item)]
