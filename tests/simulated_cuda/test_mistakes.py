"""What the tests of this folder catch: mistakes that only a GPU would show, planted in copies of the sources."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from tests.project.code_lines import PACKAGE
from tests.simulated_cuda.mistakes import MISTAKES

pytestmark = [pytest.mark.gate, pytest.mark.simulated_cuda]


def test_each_mistake_is_caught() -> None:
    """By tests that pass where nothing is changed."""
    command = [sys.executable, "-m", "tests.simulated_cuda.mistakes"]
    run = subprocess.run(command, capture_output=True, text=True, cwd=PACKAGE.parent)
    assert run.returncode == 0, run.stderr[-2000:]
    caught = {name: (code, said) for name, code, said in map(json.loads, run.stdout.splitlines())}
    assert caught.keys() == {mistake.name for mistake in MISTAKES}
    wrong = {
        x.name: caught[x.name] for x in MISTAKES if caught[x.name][0] != 1 or not re.search(x.words, caught[x.name][1])
    }
    assert wrong == {}
