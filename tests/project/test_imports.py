"""Imports point one way, and cost little."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.project.code_lines import PACKAGE, by_room

NO_ROOMS = {"__init__.py", "__main__.py", "__pycache__", "py.typed"}
# Each floor imports from those below it: a room's files from each other, too.
FLOORS = [
    ["inputs", "storage", "batch", "distributed"],
    ["functional"],
    ["backends"],
    ["modules", "losses"],
    ["saving", "data", "visualization"],
    ["pipeline"],
    ["vector_files"],
    ["encoder"],
    ["chunking"],
    ["search"],
    ["evaluation"],
    ["training", "export"],
    ["cross_encoder"],
    ["__init__"],
    ["integrations"],
    ["cli"],
    ["__main__"],
]
RANKS = {name: rank for rank, names in enumerate(FLOORS) for name in names}


def part(path: Path) -> str:
    """The room's name: the file's, or that of the folder it stands in."""
    relative = path.relative_to(PACKAGE)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


def imported(path: Path) -> set[str]:
    """The rooms that a file imports from."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names] if node.module == "sbert" else [node.module]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for name in names:
            parts = (name or "").split(".")
            if parts[0] == "sbert":
                known = len(parts) > 1 and parts[1] in RANKS
                found.add(parts[1] if known else "__init__")
    return found


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_direction(path: Path) -> None:
    here = part(path)
    assert here in RANKS, f"{here} stands in no layer"
    wrong = {name for name in imported(path) if name != here and RANKS[name] >= RANKS[here]}
    assert not wrong, f"{here} imports from {wrong}, which stand no lower"


def test_no_dead_layers() -> None:
    files = list(PACKAGE.rglob("*.py"))
    assert set(RANKS) == {part(path) for path in files}
    arrows = {(part(path), name) for path in files for name in imported(path) if name != part(path)}
    print(f"{len(RANKS)} rooms, {len(arrows)} arrows between them")


def test_the_package_stays_small() -> None:
    """Lines of code: before adding some, look for what can go."""
    assert sum(by_room().values()) <= 25_000
    assert len([entry for entry in PACKAGE.iterdir() if entry.name not in NO_ROOMS]) <= 23


def test_transformers_is_imported_late() -> None:
    code = "import sys; from sbert import SentenceEncoder; print(*sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"transformers", "tokenizers", "safetensors", "huggingface_hub"} & set(result.stdout.split())


def test_torch_is_imported_later_than_the_command_line() -> None:
    code = "import sys, sbert.cli.main; assert not {'torch', 'numpy'} & set(sys.modules), 'heavy'"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_public_name_is_there() -> None:
    import sbert

    assert {name for name in sbert.__all__ if getattr(sbert, name).__name__ == name} == set(sbert.__all__)
    assert set(sbert.__all__) <= set(dir(sbert))
    with pytest.raises(AttributeError, match="no attribute 'SentenceTransformer'"):
        _ = sbert.SentenceTransformer


def packages(statement: str) -> set[str]:
    """What a statement imports beside torch, the standard library and this package."""
    code = f"import sys, torch; before = {{*sys.modules}}; {statement}; print(*{{*sys.modules}} - before)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in run.stdout.split()} - {"sbert"} - sys.stdlib_module_names


def test_imports_take_little_beside_torch() -> None:
    """How long they take: ``python -m tests.benchmarks.cold_start``."""
    assert packages("from sbert import SentenceEncoder") <= {"numpy"}
    first = "from sbert import SentenceEncoder; SentenceEncoder(device='cpu').encode('A sentence.')"
    assert packages(first) <= {"numpy", "safetensors", "tokenizers"}
