"""A type checker tells users exactly what they get."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mypy")


@pytest.mark.slow
def test_types_that_users_get() -> None:
    path = Path(__file__).with_name("user_types.py")
    result = subprocess.run([sys.executable, "-m", "mypy", str(path)], capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
