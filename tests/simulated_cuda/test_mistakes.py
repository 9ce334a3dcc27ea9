"""What the simulated device catches: mistakes that only a GPU would show, planted in copies of the sources."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.backends.test_families import build
from tests.project.code_lines import PACKAGE
from tests.simulated_cuda.mistakes import MISTAKES

pytestmark = [
    pytest.mark.gate,
    pytest.mark.simulated_cuda,
    pytest.mark.filterwarnings("ignore::DeprecationWarning:transformers"),
]


def test_each_mistake_is_caught(tmp_path: Path) -> None:
    """All in one process, and with nothing changed, nothing is caught."""
    for family in ("bert", "mpnet", "qwen3"):
        build(family, tmp_path / family)
    command = [sys.executable, "-m", "tests.simulated_cuda.mistakes", str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, cwd=PACKAGE.parent)
    assert run.returncode == 0, run.stderr[-2000:]
    caught = dict(map(json.loads, run.stdout.splitlines()))
    assert caught.pop("none") is None
    assert caught.keys() == {mistake.name for mistake in MISTAKES if mistake.old}
    wrong = {x.name: caught[x.name] for x in MISTAKES if x.old and not re.search(x.words, caught[x.name] or "")}
    assert wrong == {}
