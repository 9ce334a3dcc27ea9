"""The tests run where only the commands of the README were run: without the packages of the extra for development."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
# Refuses the packages named on the command line, then imports every file of the tests.
IMPORT_ALL = """
import importlib, sys
from pathlib import Path

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in sys.argv[1:]:
            raise ImportError(f"{name} comes with the extra for development alone")

sys.meta_path.insert(0, Refuse())
sys.path.insert(0, "")
for path in sorted(Path("tests").rglob("*.py")):
    if path.name != "__main__.py":
        importlib.import_module(".".join(path.with_suffix("").parts))
        print(path)
"""


def development_packages() -> list[str]:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    return re.findall(r'"([\w-]+)', re.search(r"^dev = \[(.*)\]", text, re.MULTILINE)[1])


@pytest.mark.slow  # All files of the tests are imported once more: no import may be hidden by one of another test.
def test_every_file_of_the_tests_can_be_imported() -> None:
    packages = development_packages()
    assert {"mypy", "ruff"} <= set(packages)
    command = [sys.executable, "-W", "ignore", "-c", IMPORT_ALL, *packages]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert len(done.stdout.split()) > 50
