"""Each page of the documentation runs as it is pasted: in a fresh interpreter, in an empty folder, without a network.

The blocks of a page run in their order. A block ```` ```text ```` that follows one directly is what that one prints; a
block with ``skip`` behind its language does not run. No empty line stands inside a class or function, where the prompt
of Python 3.11 ends it. A page with ``<!-- slow -->`` runs in the gate alone.
``python -m tests.project.test_pages PAGE`` runs one page in the current folder; without a page, it counts blocks.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent.parent
PATTERNS = ("sbert/**/guide.md", "sbert/integrations/migrating.md", "examples/install.md", "examples/tutorials/*.md")
PAGES = sorted(page for pattern in PATTERNS for page in ROOT.glob(pattern))
BLOCK = re.compile(r"^```(python|bash)\n(.*?)^```$(?:\n+```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)


def run(page: Path) -> None:
    """Run the blocks of a page, and compare what they print with what it shows."""
    text = page.read_text(encoding="utf-8")
    sys.modules["__main__"] = ModuleType("__main__")  # As that of a shell, it has no file.
    for block in BLOCK.finditer(text):
        language, code, shown = block.groups()
        above = text.count("\n", 0, block.start()) + 1
        if re.search("\n\n+ ", code):
            sys.exit(f"{page}:{above}: an empty line before an indented one")
        if language == "bash":
            command = ["bash", "-euo", "pipefail", "-c", code]
            printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        else:
            with redirect_stdout(io.StringIO()) as out:
                exec(compile("\n" * above + code, str(page), "exec"), vars(sys.modules["__main__"]))
            printed = out.getvalue()
        if shown is not None and printed.rstrip() != shown.rstrip():
            sys.exit(f"{page}:{above}: the block prints\n{printed}and the page shows\n{shown}")


def parameter(page: Path) -> object:
    marks = pytest.mark.gate if "<!-- slow -->" in page.read_text(encoding="utf-8") else ()
    return pytest.param(page, id=str(page.relative_to(ROOT)), marks=marks)


@pytest.mark.parametrize("page", [parameter(page) for page in PAGES])
def test_page(page: Path, tmp_path: Path) -> None:
    folders = {"HF_HOME": str(tmp_path / "hub"), "XDG_CACHE_HOME": str(tmp_path / "cache"), "HF_HUB_OFFLINE": "1"}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    (tmp_path / "empty").mkdir()
    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-m", "tests.project.test_pages", str(page)],
        cwd=tmp_path / "empty",
        env={**os.environ, **folders, "PATH": path, "PYTHONPATH": str(ROOT), "COLUMNS": "80"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr


if __name__ == "__main__":
    if len(sys.argv) == 2:
        run(Path(sys.argv[1]).resolve())
    else:
        print(*(f"{len(BLOCK.findall(page.read_text()))} {page.relative_to(ROOT)}" for page in PAGES), sep="\n")
