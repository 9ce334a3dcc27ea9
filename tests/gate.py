"""A pytest plugin: what is marked ``gate`` runs with ``--gate`` alone, as in ``.ci/run``.

These tests test other tests, measure, or repeat the paper. Without the option their files are not even imported; a
file that is named on the command line always runs.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

_WHOLE_FILE = re.compile(r"^pytestmark = \[?\s*pytest\.mark\.gate\b", re.MULTILINE)  # As the first mark.


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--gate", action="store_true", help="run what is marked gate, and nothing else")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Look for the mark in the text of a file: an import would cost more than the tests that it leaves out."""
    if collection_path.suffix != ".py" or collection_path.name == "conftest.py":
        return None
    text = collection_path.read_text(encoding="utf-8")
    ignored = "mark.gate" not in text if config.option.gate else _WHOLE_FILE.search(text)
    return True if ignored else None


def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    def is_chosen(item: pytest.Item) -> bool:
        is_gate = item.get_closest_marker("gate") is not None
        return is_gate == config.option.gate or (is_gate and session.isinitpath(item.path))

    left_out = [item for item in items if not is_chosen(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if is_chosen(item)]
