"""The tests of this folder run together in a process of their own.

torch's autograd starts its threads at the first backward of a process, for the devices that there are at that time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.etree import ElementTree

import pytest

_INSIDE = "SBERT_SIMULATED_CUDA"
_results: dict[str, str] = {}  # By file and name of a test.


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.slow)  # A process of its own takes more than four seconds to start.


@pytest.fixture(autouse=True)
def _first_backward() -> Iterator[None]:
    """Before any other backward of this process, with the devices; and each test tries the kernels for itself."""
    import torch

    from sbert.backends import attention
    from tests.simulated_cuda.simulator import simulated

    if _INSIDE in os.environ and not _results:
        _results["the first backward"] = ""
        with simulated():
            torch.ones(1, device="cuda", requires_grad=True).sum().backward()
    attention._failures.clear()
    yield
    attention._failures.clear()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if _INSIDE in os.environ:
        return None
    if not _results:
        _results.update(_run_once(pyfuncitem))
    outcome = _results.get(f"{pyfuncitem.path.stem}::{pyfuncitem.name}", "it did not run")
    if outcome.startswith("skipped"):
        pytest.skip(outcome)
    if outcome:
        pytest.fail(outcome, pytrace=False)
    return True


def _run_once(item: pytest.Item) -> dict[str, str]:
    """The failure of each test of this folder; of the workers of pytest-xdist, one runs them, and the others wait."""
    items = [each.nodeid for each in item.session.items if each.path.parent == Path(__file__).parent]
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return _run(items, item.config.rootpath)
    folder = item.config._tmp_path_factory.getbasetemp().parent / "simulated"  # type: ignore[attr-defined]
    report, unfinished = folder / "results.json", folder / "unfinished.json"
    try:
        folder.mkdir()
    except FileExistsError:
        while not report.exists():
            time.sleep(0.1)
        return dict(json.loads(report.read_text()))
    results = _run(items, item.config.rootpath)
    unfinished.write_text(json.dumps(results))
    unfinished.replace(report)
    return results


def _run(items: list[str], root: Path) -> dict[str, str]:
    """The failure of each test, "" for those that pass."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment |= {_INSIDE: "1"}
    with TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n0", f"--junitxml={report}"]
        done = subprocess.run([*command, *items], capture_output=True, text=True, cwd=root, env=environment)
        if not report.exists():
            return dict.fromkeys(map(_key, items), f"the process ended: {done.stdout[-2000:]}{done.stderr[-2000:]}")
        cases = list(ElementTree.parse(report).iter("testcase"))
    return {f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}": _words_of(case) for case in cases}


def _key(nodeid: str) -> str:
    return nodeid.rpartition("/")[2].replace(".py", "", 1)


def _words_of(case: ElementTree.Element) -> str:
    return "".join(map(_words, case))


def _words(outcome: ElementTree.Element) -> str:
    if outcome.tag not in ("failure", "error", "skipped"):
        return ""
    return f"{outcome.tag}: {outcome.text or outcome.get('message')}"
