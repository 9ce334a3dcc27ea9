"""What CONTRIBUTING says about the code is so: each file holds the names that it gives for it."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
TEXT = (ROOT / ".github" / "CONTRIBUTING.md").read_text(encoding="utf-8")
FILE = r"`((?:sbert|tests|examples)/[\w/<>]*\w>?\.(?:py|md))`"
NAME = r"`([A-Za-z_]\w*)(?:\([^`]*\))?`"  # A function may have its arguments.


def named_files() -> list[tuple[str, str]]:
    """The names of the recipes, each with its file: the one that directly follows it, else the last one before."""
    pairs = []
    for item in re.split(r"\n\n|\n(?=\d\. )", TEXT.partition("## How to add")[2].partition("## Style")[0]):
        file = ""
        for match in re.finditer(rf"{FILE}|{NAME}(?:\s(?:in|of)\s{FILE})?", item):
            file, name, after = match[1] or file, match[2], match[3]
            if name:
                assert after or file, f"{name} has no file"
                pairs.append((name, after or file))
    return pairs


def test_each_file_has_the_names_that_are_given_for_it() -> None:
    pairs = named_files()
    assert {("POOLINGS", "sbert/modules/pooling.py"), ("FAMILIES", "tests/backends/test_families.py")} <= set(pairs)
    assert len(pairs) > 40
    missing = []
    for name, file in pairs:
        paths = sorted(ROOT.glob(re.sub("<.*?>", "*", file)))
        if not any(re.search(rf"\b{name}\b", path.read_text(encoding="utf-8")) for path in paths):
            missing.append(f"{file} has no {name}")
    assert missing == []


def test_the_checks_are_the_steps_of_the_script() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    for command in (
        "ruff check .",
        "ruff format --check .",
        "mypy",
        "python -m tests.project.render_site",
        "pytest --gate",
    ):
        assert command in script
        assert command in TEXT
