"""The language of the code and its documents: python -m tests.project.names.

Lists public names and files with several meanings, variables whose names say nothing, and words for which the field has
a term.
"""

from __future__ import annotations

import ast
import csv
import io
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.project.code_lines import PACKAGE

THEIRS = PACKAGE / "integrations" / "sentence_transformers"  # Names of another package over those of this one.
INTERFACES = ("add_arguments", "run")  # Each command of the command line has them.
VAGUE = ("each", "given", "own")
# What to write in place of a word; a word with a capital letter is looked for as it stands.
WORDS = {
    r"numbers (?:a|of a|per) (?:row|vector)": "dim",
    r"few bits": "low precision",
    r"\brough(?:ly)?\b": "low precision, prefilter",
    r"by halves": "pairwise summation",
    r"furnish": "materialize",
    r"\bkin\b": "BERT-family models",
    r"\b(?:whoever|nobody|somebody|anybody)\b": "the caller, no other thread, another process",
    r"\b(?:vector|tensor|number|score|pair|figure|byte|bit)s? a (?:text|token|word|row|pair|sentence)\b": "one per",
    r"\bless (?:rows|texts|tokens|vectors|files|lines)\b": "fewer",
    r"(?<!there )\bis no (?:valid |whole )?(?:shard|Parquet|Hits|file|folder|number|model)\b": "is not a …",
    r"\bbehind (?:a|the) (?:prompts?|models?|texts?)\b": "after",
    r"\bbit by bit\b": "bit-for-bit",
    r"\bcannot be had\b": "the limit is …",
    r"\bin vain\b": "wasted",
    r"\banew\b": "again, from scratch",
    r"\bin turns\b": "alternately",
    r"\bthe library's (?:small |own )?model\b|\bmodel of the library\b": "the bundled model",
    r"\bfrom the first release on\b": "once released",
    r"\bbeginnings\b": "starts",
    r"\b(?:un)?sealed\b": "with_checksum, without_checksum",
    r"\btwins?\b": "copy_without_hooks",
    r"\bgap\b": "max_relative_error",
    r"\bblame\b": "load_error",
    r"are to see (?:its|their)": "forward hooks are registered",
}
# The same for names alone: in a sentence, these are words like others.
NAMES = {
    "found": "result",
    "made": "new",
    "told": "warned",
    "kept": "cached",
    "places": "positions",
    "ways": "implementations",
}
DOCUMENTS = ("README.md", ".github/CONTRIBUTING.md", "tests/benchmarks/README.md", "examples/paper/README.md")


def definitions(path: Path) -> Iterator[str]:
    """Public names that a file defines at its top level: not those that it imports, nor those it passes on."""
    nodes = list(ast.parse(path.read_text(encoding="utf-8")).body)
    while nodes:
        node = nodes.pop()
        if isinstance(node, (ast.If, ast.Try)):
            nodes += [*node.body, *node.orelse]
        elif isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name
        elif isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            value = ast.unparse(node.value)
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [target.id for target in targets if isinstance(target, ast.Name)]
            # The same object, and what a type checker calls a type.
            is_other = not re.match(r"(typing\.)?(TypeVar|ParamSpec)\(", value)
            yield from (name for name in names if value.rpartition(".")[2] != name and is_other)


@cache
def _their_names() -> set[str]:
    with (THEIRS / "names.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if "." not in row["section"]]  # Others are parameters.
    return {name for row in rows for name in row["theirs"].split()}


def ambiguous_names() -> dict[str, list[str]]:
    """Public names that several files define, and the files."""
    files: dict[str, set[str]] = defaultdict(set)
    for path in sorted(PACKAGE.rglob("*.py")):
        exempt = INTERFACES if path.parent == PACKAGE / "cli" else _their_names() if THEIRS in path.parents else ()
        for name in definitions(path):
            if not name.startswith("_") and name not in exempt:
                files[name].add(path.relative_to(PACKAGE).as_posix())
    return {name: sorted(paths) for name, paths in files.items() if len(paths) > 1}


def ambiguous_files() -> dict[str, list[str]]:
    """Names that several files have; commands are called as they are typed, and THEIRS as the files of the package."""
    files: dict[str, list[str]] = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        if not path.name.startswith("__") and path.parent not in (PACKAGE / "cli", THEIRS):
            files[path.name].append(path.relative_to(PACKAGE).as_posix())
    return {name: paths for name, paths in files.items() if len(paths) > 1}


def vague_variables() -> list[str]:
    """Variables, parameters and loops whose name says nothing."""
    result = []
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            is_new = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
            name = node.id if isinstance(node, ast.Name) and is_new else getattr(node, "arg", None)
            if name in VAGUE and (is_new or isinstance(node, ast.arg)):
                result.append(f"{path.relative_to(PACKAGE)}: {name}")
    return result


def wrong_words() -> dict[str, str]:
    """Words and names of the package, the examples and the documents that have a better one, and that."""
    root, wrong = PACKAGE.parent, {}
    documents = [root / name for name in DOCUMENTS] + sorted(PACKAGE.rglob("*.md"))
    for path in [*sorted(PACKAGE.rglob("*.py")), *sorted((root / "examples").rglob("*.py")), *documents]:
        text = path.read_text(encoding="utf-8")
        said = "\n".join(_tokens(text)) if path.suffix == ".py" else text
        place, names = path.relative_to(root), set(said.split("\n")) if path.is_relative_to(PACKAGE) else set()
        wrong |= {f"{place}: {name}": better for name, better in NAMES.items() if name in names}
        for word, better in WORDS.items():
            wrong |= {f"{place}: {match[0]}": better for match in re.finditer(word, said, re.IGNORECASE)}
    return wrong


def _tokens(source: str) -> Iterator[str]:
    """Comments, strings and names."""
    kinds = {tokenize.COMMENT, tokenize.STRING, tokenize.NAME}
    return (token.string for token in tokenize.generate_tokens(io.StringIO(source).readline) if token.type in kinds)


if __name__ == "__main__":
    for name, paths in {**ambiguous_names(), **ambiguous_files()}.items():
        print(f"{name}: {', '.join(paths)}")
    print(*vague_variables(), sep="\n")
    for place, better in wrong_words().items():
        print(f"{place} -> {better}")
