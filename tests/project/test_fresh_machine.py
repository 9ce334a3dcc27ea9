"""The tests run where only the commands of the README were run: without the packages of the extra for development."""

from __future__ import annotations

import gc
import importlib
import re
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.gate

ROOT = Path(__file__).parent.parent.parent


class Refuse:
    """In the place of packages that are not installed."""

    def __init__(self, packages: set[str]) -> None:
        self.packages = packages

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name.partition(".")[0] in self.packages:
            raise ImportError(f"{name} comes with the extra for development alone")


def development_packages() -> list[str]:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    return re.findall(r'"([\w-]+)', re.search(r"^dev = \[(.*)\]", text, re.MULTILINE)[1])


def test_every_file_of_the_tests_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Anew, so that no import is hidden by one of another test."""
    packages = set(development_packages())
    assert {"mypy", "ruff"} <= packages
    monkeypatch.setattr(sys, "meta_path", [Refuse(packages), *sys.meta_path])
    monkeypatch.syspath_prepend(str(ROOT))
    monkeypatch.setattr(gc, "disable", lambda: None)  # conftest.py calls it until all is collected.
    for name in [name for name in sys.modules if name.partition(".")[0] in {"tests", *packages}]:
        monkeypatch.delitem(sys.modules, name)
    found = [path.relative_to(ROOT) for path in sorted((ROOT / "tests").rglob("*.py")) if path.name != "__main__.py"]
    assert len(found) > 50
    for path in found:
        importlib.import_module(".".join(path.with_suffix("").parts))
    for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
        del sys.modules[name]  # Those of before come back.
