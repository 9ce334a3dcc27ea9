"""The tests of this folder run in a process of their own, which ``test_all_devices.py`` starts, unless one is named.

torch's autograd starts its threads at the first backward of a process, for the devices that there are at that time.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
STARTERS = ("test_all_devices.py", "test_mistakes.py")  # These start processes.
collect_ignore = [path.name for path in FOLDER.glob("test_*.py") if path.name not in STARTERS]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.parent != FOLDER)  # First: they take longest, and need the first backward.


@cache
def run_first_backward() -> None:
    import torch

    from tests.simulated_cuda.simulator import simulated

    with simulated():
        torch.ones(1, device="cuda", requires_grad=True).sum().backward()


@pytest.fixture(autouse=True)
def _has_devices(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    if request.path.name not in STARTERS:
        run_first_backward()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))
