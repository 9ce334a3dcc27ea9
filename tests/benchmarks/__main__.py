"""List the measuring programs, one line each: python -m tests.benchmarks."""

from __future__ import annotations

import ast
from pathlib import Path

FOLDER = Path(__file__).parent


def listing() -> dict[str, str]:
    """The first line of each program's docstring, by the program's name; no program is imported."""
    sources = {path.stem: path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("[!_]*.py"))}
    trees = {name: ast.parse(source) for name, source in sources.items() if "\ndef main()" in source}
    return {name: (ast.get_docstring(tree) or "").split("\n", 1)[0] for name, tree in trees.items()}


def main() -> None:
    programs = listing()
    width = max(map(len, programs))
    print("python -m tests.benchmarks.NAME --help says more of each.\n")
    for name, line in programs.items():
        print(f"{name:{width}}  {line}")


if __name__ == "__main__":
    main()
