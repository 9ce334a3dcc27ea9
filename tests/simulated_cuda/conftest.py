"""The tests of this folder run in processes of their own, one per file.

torch's autograd starts its threads at the first backward of a process, for the devices that there are at that time.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.etree import ElementTree

import pytest

_INSIDE = "SBERT_SIMULATED_CUDA"
_results: dict[Path, dict[str, str]] = {}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.slow)  # A process of its own takes more than four seconds to start.


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if _INSIDE in os.environ:
        return None
    if pyfuncitem.path not in _results:
        items = [item.nodeid for item in pyfuncitem.session.items if item.path == pyfuncitem.path]
        _results[pyfuncitem.path] = _run(items, pyfuncitem.config.rootpath)
    outcome = _results[pyfuncitem.path].get(pyfuncitem.name, "it did not run")
    if outcome.startswith("skipped"):
        pytest.skip(outcome)
    if outcome:
        pytest.fail(outcome, pytrace=False)
    return True


def _run(items: list[str], root: Path) -> dict[str, str]:
    """The failure of each test by its name, "" for those that pass."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment |= {_INSIDE: "1", "TRITON_INTERPRET": "1"}  # Triton looks at it when it is imported.
    with TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", f"--junitxml={report}", *items]
        done = subprocess.run(command, capture_output=True, text=True, cwd=root, env=environment)
        if not report.exists():
            pytest.fail(f"the process ended with {done.returncode}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
        cases = list(ElementTree.parse(report).iter("testcase"))
    return {str(case.get("name")): "".join(map(_words, case)) for case in cases}


def _words(outcome: ElementTree.Element) -> str:
    if outcome.tag not in ("failure", "error", "skipped"):
        return ""
    return f"{outcome.tag}: {outcome.text or outcome.get('message')}"
