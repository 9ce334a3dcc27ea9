"""What CONTRIBUTING says about the code is so: the files hold the names that it gives."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
TEXT = (ROOT / ".github" / "CONTRIBUTING.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"\b(?:sbert|tests|examples)/[\w/]*\w\.(?:py|md)", TEXT)))


def test_named_constants_stand_in_the_named_files() -> None:
    source = "\n".join((ROOT / name).read_text(encoding="utf-8") for name in NAMED if name.endswith(".py"))
    constants = set(re.findall(r"`(_?[A-Z]{3,}[A-Z_]*)`", TEXT)) - {"SBERT_DATA"}
    assert {"POOLINGS", "EVALUATORS", "FAMILIES"} <= constants
    assert [name for name in constants if not re.search(rf"^{name}\b", source, re.MULTILINE)] == []


def test_the_checks_are_the_steps_of_the_script() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    for command in ("ruff check .", "ruff format --check .", "mypy", "python -m tests.project.render_site"):
        assert command in script
        assert command in TEXT
