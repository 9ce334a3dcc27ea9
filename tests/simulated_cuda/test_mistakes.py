"""What the simulated device catches: mistakes that only a GPU would show, planted in copies of the sources."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from tests.backends.test_families import build
from tests.project.code_lines import PACKAGE
from tests.simulated_cuda.mistakes import MISTAKES, Mistake

pytestmark = [pytest.mark.simulated_cuda, pytest.mark.filterwarnings("ignore::DeprecationWarning:transformers")]


@pytest.fixture(scope="module")
def caught(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str | None]:
    folder = tmp_path_factory.mktemp("models")
    for family in ("bert", "mpnet"):
        build(family, folder / family)
    command = [sys.executable, "-m", "tests.simulated_cuda.mistakes", str(folder)]
    run = subprocess.run(command, capture_output=True, text=True, cwd=PACKAGE.parent)
    assert run.returncode == 0, run.stderr[-2000:]
    return dict(map(json.loads, run.stdout.splitlines()))


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_a_mistake_is_caught(mistake: Mistake, caught: dict[str, str | None]) -> None:
    words = caught[mistake.name]
    if not mistake.old:
        assert words is None, words
    else:
        assert words is not None, "not caught"
        assert re.search(mistake.words, words), words
