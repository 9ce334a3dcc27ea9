"""The site of guides and API: rendered by pdoc from the docstrings, and checked for broken references and dead links.

``python -m tests.project.render_site FOLDER`` writes it to a folder.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
import warnings
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit

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
    "sbert.integrations",
]
# pdoc cannot resolve the annotations of the constructor that a NamedTuple makes, nor find the keys of a TypedDict.
_NO_PROBLEM = ("Error parsing type annotation ForwardRef", "Cannot determine where sbert.pipeline.results.")
# Names in docstrings that are to exist: "sbert.search.Index".
_REFERENCE = re.compile(r"``(sbert(?:\.\w+)+)(?:\(.*?\))?``", re.DOTALL)
_TEXTS = re.compile(r"^(?P<name>Shape|Returns|Yields|References|Example):\n(?P<text>(?:[ \t]+.+\n?|\n)+)", re.MULTILINE)
# What torch says of its own modules says nothing of ours.
_INHERITED = {inspect.getdoc(member) for member in vars(nn.Module).values()}


def markdown(docstring: str) -> str:
    """A docstring as Markdown; a section in which no names are explained is a heading and its text."""
    from pdoc import docstrings

    return docstrings.google("" if docstring in _INHERITED else _TEXTS.sub(_text, docstring))


def _text(section: re.Match[str]) -> str:
    lines = textwrap.dedent(section["text"]).splitlines()
    listed = [f"- {line}" if line[:1].strip() else line for line in lines]
    return "\n".join([f"###### {section['name']}", "", *(listed if section["name"] == "References" else lines), ""])


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


class _Page(HTMLParser):
    """The links of a page, and the names to which others link."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.names: set[str] = {""}
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value for name, value in attrs if value is not None}
        self.names |= {given["id"]} if "id" in given else set()
        self.links |= {given[name] for name in ("href", "src") if name in given}


def dead_links(folder: Path) -> list[str]:
    """Links from one page of a site to another that does not exist, or to a place that is not on it."""
    pages = {path.resolve(): _Page(path) for path in sorted(folder.rglob("*.html"))}
    dead = []
    for path, page in pages.items():
        for link in sorted(link for link in page.links if not urlsplit(link).scheme):
            file, name = map(unquote, urldefrag(link))
            target = (path.parent / file).resolve() if file else path
            if not target.is_file() or (target in pages and name not in pages[target].names):
                dead.append(f"{path.relative_to(folder.resolve())}: the link {link} leads nowhere")
    return dead


def render(folder: Path, show_source: bool = True) -> list[str]:
    """Write the site, and return what is wrong with it."""
    import pdoc

    pdoc.render.configure(docformat="markdown", template_directory=TEMPLATES, show_source=show_source)
    pdoc.render.env.filters["to_markdown"] = markdown
    # pdoc lists the names that a package imports, and these are imported late.
    vars(sbert).update({name: getattr(sbert, name) for name in sbert.__all__})
    vars(integrations)["__all__"] = ["switching"]  # The adapters need the packages that they are for.
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        pdoc.pdoc(*PAGES, output_directory=folder)
    said = [str(warning.message) for warning in caught]
    return [message for message in said if not message.startswith(_NO_PROBLEM)] + broken() + dead_links(folder)


def main() -> int:
    """The number of problems, all of which are printed."""
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    problems = render(Path(sys.argv[1]))
    print(*problems, sep="\n", end="\n" if problems else "")
    return min(len(problems), 1)


if __name__ == "__main__":
    sys.exit(main())
