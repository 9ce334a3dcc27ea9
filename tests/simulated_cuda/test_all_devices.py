"""The other files of this folder, in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.project.code_lines import PACKAGE
from tests.simulated_cuda.conftest import STARTERS

pytestmark = pytest.mark.simulated_cuda


def test_all_files() -> None:
    files = [path for path in sorted(Path(__file__).parent.glob("test_*.py")) if path.name not in STARTERS]
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", "--tb=short", *map(str, files)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(command, capture_output=True, text=True, cwd=PACKAGE.parent, env=environment)
    print(done.stdout)
    assert done.returncode == 0, f"{done.stdout[-10_000:]}{done.stderr[-2000:]}"
