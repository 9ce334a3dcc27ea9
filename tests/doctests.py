"""A pytest plugin: examples in docstrings run as they are pasted."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent


def pytest_itemcollected(item: pytest.Item) -> None:
    """An example has the names that it imports, as in a new interpreter, and none of its module's."""
    if isinstance(item, pytest.DoctestItem):
        item.dtest.globs = {"__name__": "__main__"}


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, Any, Any]:
    """Modules of ``sbert`` are skipped if they import a package that is not there; a test that does so is broken."""
    report = yield
    if report.skipped and "unable to import" in str(report.longrepr) and ROOT in collector.path.parents:
        report.outcome = "failed"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """The tests have no examples: looking for them would walk through all of their objects."""
    collectors = yield
    return [
        collector for collector in collectors if ROOT not in file_path.parents or isinstance(collector, pytest.Module)
    ]
