"""The site of guides and API: rendered by pdoc from the docstrings, and checked for broken references and dead links.

``python -m tests.project.render_site FOLDER`` writes it to a folder.
"""

from __future__ import annotations

import ast
import re
import sys
import textwrap
import warnings
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit

from tests.project.code_lines import PACKAGE

# One page each, in the order of the README: the guide of a package, then its public names.
PAGES = (
    "sbert", "sbert.pipeline", "sbert.vector_files", "sbert.search", "sbert.chunking", "sbert.training", "sbert.losses",
    "sbert.evaluation", "sbert.data", "sbert.modules", "sbert.functional", "sbert.saving", "sbert.saving.export",
    "sbert.backends", "sbert.visualization", "sbert.integrations", "sbert.integrations.switching", "sbert.cli",
)  # fmt: skip
# Names in docstrings that have to exist: "sbert.search.Index".
_REFERENCE = re.compile(r"``(sbert(?:\.\w+)+)(?:\(.*?\))?``", re.DOTALL)
_INNER_LINK = re.compile(r'<a href="#(\w[\w.]*)">([^<]*)</a>')
# Sections in which no names are explained, which pdoc does not know.
_SECTION = re.compile(r"^(?P<name>Shape|References|Example):\n(?P<text>(?:[ \t]+.+\n?|\n)+)", re.MULTILINE)


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
        values = {name: value for name, value in attrs if value is not None}
        self.names |= {values["id"]} if "id" in values else set()
        self.links |= {values[name] for name in ("href", "src") if name in values}


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


def _as_heading(section: re.Match[str]) -> str:
    lines = textwrap.dedent(section["text"]).splitlines()
    listed = [f"- {line}" if line[:1].strip() and section["name"] == "References" else line for line in lines]
    return "\n".join([f"###### {section['name']}", "", *listed, ""])


def render(folder: Path) -> list[str]:
    """Write the site, and return what is wrong with it."""
    from pdoc import doc, docstrings, render
    from torch import nn

    nn.Module.forward.__doc__ = ""  # Of torch, for every loss and module.
    read_google = docstrings.google
    docstrings.google = lambda docstring: read_google(_SECTION.sub(_as_heading, docstring))
    render.configure(docformat="google", show_source=False, footer_text="sbert")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Of adapters whose packages are not installed.
            pages = {name: doc.Module(import_module(name)) for name in PAGES}
            for name, page in pages.items():
                path = folder / f"{name.replace('.', '/')}.html"
                path.parent.mkdir(parents=True, exist_ok=True)
                html = render.html_module(page, pages)
                # Of attributes that have no entry of their own.
                html = _INNER_LINK.sub(lambda link, html=html: link[0] if f'id="{link[1]}"' in html else link[2], html)
                path.write_text(html, encoding="utf-8")
            (folder / "index.html").write_text(render.html_index(pages), encoding="utf-8")
            (folder / "search.js").write_text(render.search_index(pages), encoding="utf-8")
    finally:
        docstrings.google = read_google
    return broken() + dead_links(folder)


def main() -> int:
    """Whether there are problems, all of which are printed."""
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    problems = render(Path(sys.argv[1]))
    print(*problems, sep="\n", end="\n" if problems else "")
    return min(len(problems), 1)


if __name__ == "__main__":
    sys.exit(main())
