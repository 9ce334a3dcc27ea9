"""The site of guides and API: rendered by pdoc from the docstrings, and checked for broken references.

``python -m tests.project.render_site FOLDER`` writes it to a folder.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
import warnings
from importlib import import_module
from pathlib import Path

from torch import nn

import sbert
from sbert import integrations
from tests.project.code_lines import PACKAGE

TEMPLATES = Path(__file__).parent / "pdoc"
# The packages with a guide, and what their pages refer to.
PAGES = [
    "sbert",
    *("sbert.search", "sbert.chunking", "sbert.training", "sbert.losses", "sbert.evaluation", "sbert.data"),
    *("sbert.modules", "sbert.saving", "sbert.backends", "sbert.visualization", "sbert.cli"),
    *("sbert.functional", "sbert.pipeline", "sbert.vector_files"),
    *("sbert.integrations", "sbert.saving.export"),
]
# pdoc cannot resolve the annotations of the constructor that a NamedTuple makes, nor find the keys of a TypedDict.
_NO_PROBLEM = ("Error parsing type annotation ForwardRef", "Cannot determine where sbert.pipeline.results.")
# Names in docstrings that are to exist: "sbert.search.Index".
_REFERENCE = re.compile(r"``(sbert(?:\.\w+)+)(?:\(.*?\))?``", re.DOTALL)
_SECTION = re.compile(r"^(Args|Returns|Yields|Shape|Raises|References|Example|Attributes):$")
_ITEM = re.compile(r"^(\*{0,2}\w[^:`]{0,60}): (.*)$")
# What torch says of its own modules says nothing of ours.
_INHERITED = {inspect.getdoc(member) for member in vars(nn.Module).values()}
_END = "end of the docstring"


def markdown(docstring: str) -> str:
    """A docstring of this project as Markdown.

    Sections become headings, arguments lists, doctests and indented formulas blocks of code.
    """
    if docstring in _INHERITED:
        return ""
    out: list[str] = []
    # Text, then the name and the indented lines of each section; text may follow a section, too.
    section, block = "", []
    for line in [*docstring.splitlines(), _END]:
        found = _SECTION.match(line)
        ends = bool(section) and bool(line) and not line.startswith(" ")
        if found or ends or line is _END:
            out += _section(section, textwrap.dedent("\n".join(block)))
            section, block = found[1] if found else "", []
        if not found:
            block.append(line)
    return "\n".join(out)


def _section(name: str, body: str) -> list[str]:
    """A section with its heading; text that is in none has no name."""
    if not name:
        return _blocks(body)
    parts = _items(body) if name in ("Args", "Raises", "Attributes") else _blocks(body, name == "References")
    return ["", f"**{name}**", "", *parts, ""]


def _items(body: str) -> list[str]:
    """``name: text`` with further lines indented, as a list."""
    out = []
    for line in body.splitlines():
        found = None if line.startswith(" ") else _ITEM.match(line)
        if found:
            name = found[1].replace("*", r"\*")
            out.append(f"- **{name}**: {found[2]}")
        else:
            out.append(f"  {line.strip()}" if line else "")
    return out


def _blocks(body: str, each_line: bool = False) -> list[str]:
    """Paragraphs: doctests and what is indented as code, the rest as it is, or as a list of its lines."""
    out: list[str] = []
    # Code in fences stays as it is.
    for number, part in enumerate(re.split(r"^(```.*?^```)$", body, flags=re.MULTILINE | re.DOTALL)):
        if number % 2:
            out += ["", *part.splitlines(), ""]
            continue
        for paragraph in re.split(r"\n\s*\n", part.strip("\n")):
            lines = paragraph.splitlines()
            if paragraph.startswith(">>> "):
                out += ["", "```pycon", *lines, "```", ""]
            elif lines and all(line.startswith("    ") for line in lines):
                out += ["", "```text", *textwrap.dedent(paragraph).splitlines(), "```", ""]
            else:
                out += ["", *(f"- {line}" if each_line and not line.startswith(" ") else line for line in lines)]
    return out


def broken(package: Path = PACKAGE) -> list[str]:
    """Names that docstrings of any file mention and that do not exist."""
    found = []
    for path in sorted(package.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
                names = _REFERENCE.findall(ast.get_docstring(node) or "")
                place = f"{path.relative_to(package)}: {getattr(node, 'name', 'the docstring of the file')}"
                found += [f"{place}: {name} does not exist" for name in names if not exists(name)]
    return found


def exists(name: str) -> bool:
    """Whether a dotted name is a module or stands in one; adapters of packages that are not installed are there."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            value: object = import_module(".".join(parts[:end]))
        except ImportError as error:
            if error.name and not error.name.startswith("sbert"):
                return True
            continue
        for part in parts[end:]:
            if not hasattr(value, part):
                return False
            value = getattr(value, part)
        return True
    return False


def render(folder: Path) -> list[str]:
    """Write the site, and return what is wrong with it."""
    import pdoc

    pdoc.render.configure(docformat="markdown", template_directory=TEMPLATES)
    pdoc.render.env.filters["to_markdown"] = markdown
    # pdoc lists the names that a package imports, and these are imported late.
    vars(sbert).update({name: getattr(sbert, name) for name in sbert.__all__})
    vars(integrations)["__all__"] = ["switching"]  # The adapters need the packages that they are for.
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        pdoc.pdoc(*PAGES, output_directory=folder)
    said = [str(warning.message) for warning in caught]
    return [message for message in said if not message.startswith(_NO_PROBLEM)] + broken()


def main() -> int:
    """The number of problems, all of which are printed."""
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    problems = render(Path(sys.argv[1]))
    print(*problems, sep="\n", end="\n" if problems else "")
    return min(len(problems), 1)


if __name__ == "__main__":
    sys.exit(main())
