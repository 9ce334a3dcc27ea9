"""The tests of this folder run together in a process of their own.

torch's autograd starts its threads at the first backward of a process, for the devices that there are at that time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

_OUTCOMES = "SBERT_SIMULATED_CUDA"  # In that process: the file to which the outcome of each test is written.
_results: dict[str, str] = {}


def _runs_together(item: pytest.Item) -> bool:
    """Whether a test is one of this folder, but for those that start processes anyway."""
    starts = ("test_mistakes.py", "test_doctor_simulated.py")
    return item.path.parent == Path(__file__).parent and item.path.name not in starts


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not _runs_together(item))  # First: while one worker waits, the others have work.


@pytest.fixture(autouse=True)
def _first_backward(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before any other backward of this process, with the devices."""
    import torch

    from tests.simulated_cuda.simulator import simulated

    if _OUTCOMES in os.environ and not _results:
        _results["the first backward"] = ""
        with simulated():
            torch.ones(1, device="cuda", requires_grad=True).sum().backward()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if _OUTCOMES in os.environ and (report.when == "call" or not report.passed):
        with open(os.environ[_OUTCOMES], "a", encoding="utf-8") as file:
            outcome = "" if report.passed else f"{report.outcome}: {report.longreprtext}"
            print(json.dumps([report.nodeid, outcome]), file=file)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if _OUTCOMES in os.environ or not _runs_together(pyfuncitem):
        return None
    if not _results:
        _results.update(_run_once(pyfuncitem))
    outcome = _results.get(pyfuncitem.nodeid, "it did not run")
    if outcome.startswith("skipped"):
        pytest.skip(outcome)
    if outcome:
        pytest.fail(outcome, pytrace=False)
    return True


def _run_once(item: pytest.Item) -> dict[str, str]:
    """The failure of each test of this folder, "" for those that pass.

    Of the workers of pytest-xdist, one runs them, and the others wait.
    """
    base = item.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "simulated"
    outcomes, complete = folder / "outcomes.jsonl", folder / "complete.json"
    try:
        folder.mkdir()
    except FileExistsError:
        while not complete.exists():
            time.sleep(0.1)
        return dict(json.loads(complete.read_text(encoding="utf-8")))
    tests = [each.nodeid for each in item.session.items if _runs_together(each)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n0", *tests]
    outcomes.touch()
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=item.config.rootpath, env=environment | {_OUTCOMES: str(outcomes)}
    )
    results = dict.fromkeys(tests, f"the process ended: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    results.update(map(json.loads, outcomes.read_text(encoding="utf-8").splitlines()))
    complete.with_suffix(".part").write_text(json.dumps(results), encoding="utf-8")
    complete.with_suffix(".part").replace(complete)
    return results
