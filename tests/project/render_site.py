"""The site of guides and API: rendered from the docstrings, and checked for broken references and dead links.

``python -m tests.project.render_site FOLDER`` writes it to a folder.
"""

from __future__ import annotations

import ast
import json
import re
import shutil
import sys
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag, urlsplit

import sbert
from tests.project.code_lines import PACKAGE
from tests.project.site_pages import API, GUIDES, TEMPLATES, Site, first_page, style

# A page that is larger takes a second on a slow network.
LARGEST = 200_000
# Names in docstrings that are to exist: "sbert.search.Index".
_REFERENCE = re.compile(r"``(sbert(?:\.\w+)+)(?:\(.*?\))?``", re.DOTALL)


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


def outside(folder: Path) -> list[str]:
    """What pages load from other servers."""
    loads = re.compile(r'<(?:script|img|link|iframe)\b[^>]*?(?:src|href)="((?:https?:)?//[^"]*)"')
    pages = {path: loads.findall(path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("*.html"))}
    return [f"{path.relative_to(folder)}: loads {link}" for path, links in pages.items() for link in links]


def read_entries(folder: Path) -> list[dict[str, Any]]:
    """What the search of a site looks through."""
    text = (folder / "entries.js").read_text(encoding="utf-8")
    entries: list[dict[str, Any]] = json.loads(text.partition("=")[2].rpartition(";")[0])
    return entries


def dead_entries(folder: Path) -> list[str]:
    """Results of the search, those of other words for it among them, that lead nowhere."""
    names = {path.relative_to(folder).as_posix(): _Page(path).names for path in folder.rglob("*.html")}
    targets = [(entry, *urldefrag(entry["url"])) for entry in read_entries(folder)]
    wrong = [entry for entry, path, name in targets if name not in names.get(path, ())]
    return [f"the search for {entry['name']} leads to {entry['url']}, which does not exist" for entry in wrong]


def unwieldy(folder: Path) -> list[str]:
    """Pages that are too large, or have no heading of the first level, or several."""
    wrong = []
    for path in [*folder.glob("*.html"), *folder.glob("guide/*.html"), *folder.glob("api/*.html")]:
        size, headings = path.stat().st_size, path.read_text(encoding="utf-8").count("<h1")
        wrong += [f"{path.relative_to(folder)}: {size:,} bytes are more than {LARGEST:,}"] if size > LARGEST else []
        wrong += [f"{path.relative_to(folder)}: {headings} headings of the first level"] if headings != 1 else []
    return wrong


def render(folder: Path, pictures: bool = True) -> list[str]:
    """Write the site, with or without the pictures of the guides, and return what is wrong with it."""
    import jinja2

    from tests.project import site_pictures

    site = Site()
    drawn = site_pictures.draw(folder / "pictures") if pictures else {}
    guides = [site.guide(package, drawn.get(package, "")) for package in GUIDES]
    api = [*(site.reference(package) for package in sorted(API)), site.type_page(), site.command_page()]
    pages = [first_page(drawn.get("index", "")), *guides, *api]
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, trim_blocks=True)
    template = environment.get_template("page.html.jinja2")
    neighbours = list(zip([None, *guides], guides, [*guides[1:], None], strict=False))
    for page in pages:
        path = folder / page.path
        path.parent.mkdir(parents=True, exist_ok=True)
        root = "../" * page.path.count("/")
        html = template.render(
            page=page, guides=guides, api=api, neighbours=neighbours, root=root, version=sbert.__version__
        )
        path.write_text(html, encoding="utf-8")
    entries = json.dumps(list(site.search_entries(pages)), ensure_ascii=False, indent=0)
    (folder / "entries.js").write_text(f"const ENTRIES = {entries};\n", encoding="utf-8")
    (folder / "style.css").write_text(style(), encoding="utf-8")
    shutil.copy(TEMPLATES / "search.js", folder)
    return broken() + dead_links(folder) + outside(folder) + dead_entries(folder) + unwieldy(folder)


def main() -> int:
    """The number of problems, all of which are printed."""
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    problems = render(Path(sys.argv[1]))
    print(*problems, sep="\n", end="\n" if problems else "")
    return min(len(problems), 1)


if __name__ == "__main__":
    sys.exit(main())
