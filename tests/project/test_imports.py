"""Imports point one way, have no circles, and cost little."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from graphlib import TopologicalSorter
from importlib.metadata import packages_distributions, requires
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
    ["saving", "data"],
    ["pipeline"],
    ["vector_files"],
    ["encoder"],
    ["chunking"],
    ["search"],
    ["evaluation"],
    ["visualization"],
    ["training"],
    ["cross_encoder"],
    ["__init__"],
    ["integrations"],
    ["cli"],
    ["__main__"],
]
RANKS = {name: rank for rank, names in enumerate(FLOORS) for name in names}
FILES = sorted(PACKAGE.rglob("*.py"))


def room(path: Path) -> str:
    """The folder or file at the top of the package that a file belongs to."""
    relative = path.relative_to(PACKAGE)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


def imports(path: Path) -> Iterator[Path]:
    """The files of the package that a file imports from, wherever in it, for types alone, too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        yield from (file_of(name) for name in names if name.split(".")[0] == "sbert")


def file_of(name: str) -> Path:
    """The file of a module, or of the module that a name stands in."""
    place = PACKAGE.parent.joinpath(*name.split("."))
    for path in (place / "__init__.py", place.with_suffix(".py"), place.parent / "__init__.py"):
        if path.exists():
            return path
    return place.parent.with_suffix(".py")


# The files that read a clock, and for what: figures, and how long to wait. Nothing is chosen by how long it took.
CLOCKS = {
    "cli/benchmark.py": "figures",
    "integrations/sentence_transformers/training.py": "figures",
    "pipeline/batcher.py": "how long requests wait for others, and figures",
    "pipeline/progress.py": "the rate of the progress bar",
    "storage/folders.py": "how long to wait for readers",
    "training/training_run.py": "figures",
}


def reads_clock(path: Path) -> bool:
    """Whether a file names a clock: of time, of events on a GPU, or a package that measures."""
    tree = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    names = {name for node in tree for name in (getattr(node, "attr", ""), getattr(node, "module", "") or "")}
    clocks = {"time", "perf_counter", "monotonic", "process_time", "thread_time", "clock_gettime"}
    return bool(
        names & {*clocks, *(f"{name}_ns" for name in clocks), "elapsed_time", "timeit", "torch.utils.benchmark"}
    )


def test_nothing_is_chosen_by_time() -> None:
    """What a busy machine measures is noise, and a process would keep it."""
    assert {path.relative_to(PACKAGE).as_posix() for path in FILES if reads_clock(path)} == set(CLOCKS)


@pytest.fixture(scope="module")
def graph() -> dict[Path, set[Path]]:
    return {path: set(imports(path)) - {path} for path in FILES}


def test_direction(graph: dict[Path, set[Path]]) -> None:
    assert set(RANKS) == {room(path) for path in FILES}, "a room stands on no floor, or a floor has no room"
    wrong = [
        f"{path.relative_to(PACKAGE)} imports from {other.relative_to(PACKAGE)}, which stands no lower"
        for path, others in graph.items()
        for other in others
        if room(path) != room(other) and RANKS[room(path)] <= RANKS[room(other)]
    ]
    assert wrong == []


def distributions(requirements: list[str]) -> set[str]:
    """The names of the packages that are required in any case, as their index spells them."""
    needed = [requirement for requirement in requirements if "extra ==" not in requirement]
    return {re.split(r"[^\w.-]", each)[0].lower().replace("_", "-") for each in needed}


def others(nodes: Iterable[ast.AST]) -> set[str]:
    """The packages that statements import, without those of Python and this one."""
    modules: list[str] = []
    for node in nodes:
        modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        modules += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
    return {name.split(".")[0] for name in modules} - {*sys.stdlib_module_names, "sbert"}


def test_what_the_core_imports_is_declared_or_comes_with_transformers() -> None:
    """tokenizers, safetensors and huggingface_hub do: if transformers leaves one of them out, it must be declared."""
    settings = (PACKAGE.parent / "pyproject.toml").read_text(encoding="utf-8")
    core, extras = settings.partition("\ndependencies = ")[2].partition("\n[project.urls]")[0].split("\n", 1)
    declared, optional = (distributions(re.findall(r'"(\w[^"]*)"', part)) for part in (core, extras))
    available = declared | optional | distributions(requires("transformers") or [])
    homes = {name: distributions(found) for name, found in packages_distributions().items()}
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in FILES if room(path) != "integrations"]
    imported = {name for tree in trees for name in others(ast.walk(tree))} - {"typing_extensions"}  # For types.
    assert {"huggingface_hub", "safetensors", "tokenizers"} <= imported
    assert {name for name in imported if not homes.get(name, {name.lower()}) & available} == set()


# What other rooms import from the backends: their door, and the one file of names of transformers.
DOOR = {"backends/__init__.py", "backends/huggingface.py"}


def test_the_backends_have_one_door(graph: dict[Path, set[Path]]) -> None:
    used = {
        other.relative_to(PACKAGE).as_posix()
        for path, others in graph.items()
        for other in others
        if room(other) == "backends" != room(path)
    }
    assert used == DOOR


def test_no_circles(graph: dict[Path, set[Path]]) -> None:
    TopologicalSorter(graph).prepare()  # The error names the circle.


def test_the_package_stays_small() -> None:
    """Lines of code: before adding some, look for what can go."""
    assert sum(by_room().values()) <= 20_231
    assert sum(by_room(PACKAGE.parent / "tests").values()) <= 21_900
    assert len([entry for entry in PACKAGE.iterdir() if entry.name not in NO_ROOMS]) <= 22
    assert len(FILES) <= 209


def test_every_public_name_is_there() -> None:
    import sbert

    assert {name for name in sbert.__all__ if getattr(sbert, name).__name__ == name} == set(sbert.__all__)
    for name, hint in (
        ("SentenceTransformer", "; use sbert.SentenceEncoder"),
        ("InputExample", "; use a tuple of texts with the label last, or a dict"),
        ("topic_words", "; it is sbert.search.topic_words"),
        ("SentenceEncodr", "; did you mean 'SentenceEncoder'?"),
        ("trainning", "; did you mean 'training'?"),
        ("__path_of_pytest__", ""),
        ("quux", ""),
    ):
        with pytest.raises(AttributeError) as caught:
            getattr(sbert, name)
        assert str(caught.value) == f"module 'sbert' has no attribute {name!r}{hint}"
        if hint:
            with pytest.raises(ImportError, match=re.escape(str(caught.value))):
                exec(f"from sbert import {name}")


def test_dir_lists_what_is_public() -> None:
    """Of the package, also the rooms, which are there without an import; of a room, what its page documents."""
    import sbert

    code = "import sbert, sys; before = {*sys.modules}; dir(sbert); print({*sys.modules} - before, sbert.search.Index)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "set() <class 'sbert.search.index.index.Index'>\n"
    rooms = [getattr(sbert, name) for name in sbert.ROOMS]
    for package, names in (
        (sbert, [*sbert.__all__, *sbert.ROOMS]),
        *((room, getattr(room, "__all__", ())) for room in rooms),
    ):
        assert not names or {name for name in dir(package) if not name.startswith("__")} == set(names)


@pytest.mark.slow  # A process that imports torch: what is imported shows in a new one alone.
def test_imports_take_little_beside_torch() -> None:
    """Neither does transformers. How long they take: ``python -m tests.benchmarks.cold_start``."""
    first = "import sys, torch; before = {*sys.modules}; from sbert import SentenceEncoder"
    show = "print(*{*sys.modules} - before)"
    code = f"{first}; {show}; SentenceEncoder(device='cpu').encode('A sentence.'); {show}"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported = [{name.partition(".")[0] for name in line.split()} for line in run.stdout.splitlines()]
    once, encoded = (names - {"sbert"} - sys.stdlib_module_names for names in imported)
    assert once <= {"numpy"}
    assert encoded <= {"numpy", "safetensors", "tokenizers"}
