"""The site of guides and API: rendered by pdoc from the docstrings, and checked for broken references.

``python -m tests.site FOLDER`` writes it to a folder.
"""

from __future__ import annotations

import re
import sys
import textwrap
import warnings
from importlib import import_module
from pathlib import Path

import pdoc

import sbert

TEMPLATES = Path(__file__).parent / "pdoc"
# The packages with a guide, and what their pages refer to.
PAGES = [
    "sbert",
    *("sbert.search", "sbert.chunking", "sbert.training", "sbert.losses", "sbert.evaluation", "sbert.data"),
    *("sbert.modules", "sbert.saving", "sbert.backends", "sbert.visualization", "sbert.cli"),
    *("sbert.functional", "sbert.pipeline"),
]
# pdoc cannot resolve the annotations of the constructor that a NamedTuple makes.
_NO_PROBLEM = "Error parsing type annotation ForwardRef"
# Names in docstrings that are to exist: "sbert.search.Index".
_REFERENCE = re.compile(r"``(sbert(?:\.\w+)+)(?:\(.*?\))?``", re.DOTALL)
_SECTION = re.compile(
    r"^(?P<indent> *)(?P<name>Args|Returns|Yields|Shape|Raises|References|Example|Examples|Attributes):$"
)
_ITEM = re.compile(r"^(?P<names>\*{0,2}\w[^:`]{0,60}): (?P<text>.*)$")


def markdown(docstring: str) -> str:
    """A docstring of this project as Markdown.

    Sections become headings, arguments lists, doctests and indented formulas blocks of code.
    """
    lines, out, section = docstring.splitlines(), [], ""
    at = 0
    while at < len(lines):
        line = lines[at]
        found = _SECTION.match(line)
        if found:
            section = found[1]
            block = []
            at += 1
            while at < len(lines) and (not lines[at].strip() or lines[at].startswith("    ")):
                block.append(lines[at])
                at += 1
            body = textwrap.dedent("\n".join(block))
            out += ["", f"**{section}**", "", *(_items(body) if section in ("Args", "Raises") else _blocks(body)), ""]
            continue
        block = []
        while at < len(lines) and not _SECTION.match(lines[at]):
            block.append(lines[at])
            at += 1
        out += _blocks("\n".join(block))
    return "\n".join(out)


def _items(body: str) -> list[str]:
    """``name: text`` with further lines indented, as a list."""
    out = []
    for line in body.splitlines():
        found = _ITEM.match(line)
        out.append(f"- **`{found['names']}`**: {found['text']}" if found else f"  {line.strip()}" if line else "")
    return out


def _blocks(body: str) -> list[str]:
    """Paragraphs: doctests and what is indented below a paragraph as code, the rest as it is."""
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
                out += ["", *lines]
    return out


def broken(modules: list[pdoc.doc.Module]) -> list[str]:
    """Names that docstrings mention and that do not exist."""
    found = []

    def visit(doc: pdoc.doc.Doc[object]) -> None:
        names = _REFERENCE.findall(doc.docstring)
        found.extend(f"{doc.fullname}: {name} does not exist" for name in names if not exists(name))
        if isinstance(doc, pdoc.doc.Namespace):
            for member in doc.own_members:
                visit(member)

    for module in modules:
        visit(module)
    return found


def exists(name: str) -> bool:
    """Whether a dotted name is a module or stands in one."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            value: object = import_module(".".join(parts[:end]))
        except ImportError:
            continue
        for part in parts[end:]:
            if not hasattr(value, part):
                return False
            value = getattr(value, part)
        return True
    return False


def render(folder: Path) -> list[str]:
    """Write the site, and return what is wrong with it."""
    pdoc.render.configure(docformat="markdown", template_directory=TEMPLATES)
    pdoc.render.env.filters["to_markdown"] = markdown
    # pdoc lists the names that a package imports, and these are imported late.
    vars(sbert).update({name: getattr(sbert, name) for name in sbert.__all__})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        pdoc.pdoc(*PAGES, output_directory=folder)
        found = broken([pdoc.doc.Module(import_module(name)) for name in pdoc.extract.walk_specs(PAGES)])
    said = [str(warning.message) for warning in caught]
    return [message for message in said if not message.startswith(_NO_PROBLEM)] + found


def main() -> int:
    """The number of problems, all of which are printed."""
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    problems = render(Path(sys.argv[1]))
    print(*problems, sep="\n", end="\n" if problems else "")
    return min(len(problems), 1)


if __name__ == "__main__":
    sys.exit(main())
