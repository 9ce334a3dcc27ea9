"""The site: guides and tutorials from Markdown, the API by pdoc from the docstrings; its search; dead links.

``python -m tests.project.render_site FOLDER`` writes it to a folder.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import textwrap
import warnings
from collections import defaultdict
from html import unescape
from importlib import import_module
from pathlib import Path
from pydoc import ErrorDuringImport, locate
from typing import Any

from tests.project.code_lines import PACKAGE

ROOT, TEMPLATES = PACKAGE.parent, Path(__file__).parent / "site"
SOURCE = "https://github.com/sbert/sbert/blob/main"  # As in pyproject.toml.
# The packages that have pages of names, and the folders that have guides, in their order.
MODULES = (
    "sbert", "sbert.search", "sbert.chunking", "sbert.training", "sbert.losses", "sbert.evaluation", "sbert.data",
    "sbert.vector_files", "sbert.modules", "sbert.functional", "sbert.saving.export", "sbert.visualization",
)  # fmt: skip
GUIDES = ("pipeline", *(name.partition(".")[2] for name in MODULES[1:]), "saving", "backends", "integrations", "cli")
INTERNAL = {
    "GradientBuckets", "ModelVectors", "Ranks", "Signature", "Similarity", "TrainingBatch", "TrainingData",
    "check_similarity", "check_threshold", "directions", "in_range", "segment_sum", "write_line",
}  # fmt: skip
# Names in docstrings that have to exist: "sbert.search.Index".
_REFERENCE = re.compile(r"``(sbert(?:\.\w+)+)(?:\(.*?\))?``", re.DOTALL)
# Sections in which no names are explained, which pdoc does not know.
_SECTION = re.compile(r"^(?P<name>Shape|References|Example):\n(?P<text>(?:[ \t]+.+\n?|\n)+)", re.MULTILINE)


def broken(package: Path = PACKAGE) -> list[str]:
    """Names that docstrings of any file mention and that do not exist."""
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(package.rglob("*.py"))}
    names = [(path.relative_to(package), name) for path, text in texts.items() for name in _REFERENCE.findall(text)]
    return [f"{path}: {name} does not exist" for path, name in names if not exists(name)]


def exists(name: str) -> bool:
    """Whether a dotted name is there; adapters of packages that are not installed are."""
    try:
        return locate(name) is not None
    except ErrorDuringImport as error:
        return isinstance(error.value, ImportError)


def dead_links(folder: Path) -> list[str]:
    """Links from one page of a site to another that does not exist, or to a place that is not on it."""
    pages = {path.name: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.html"))}
    places = {name: {"", *re.findall(r'\bid="([^"]*)"', page)} for name, page in pages.items()}
    dead = []
    for name, page in pages.items():
        for link in sorted(set(re.findall(r'(?:href|src)="([^":]*)"', page))):
            file, _, place = unescape(link).partition("#")
            if not (folder / (file or name)).is_file() or place not in places.get(file or name, {""}):
                dead.append(f"{name}: the link {link} leads nowhere")
    return dead


def _as_heading(section: re.Match[str]) -> str:
    lines = textwrap.dedent(section["text"]).splitlines()
    listed = [f"- {line}" if line[:1].strip() and section["name"] == "References" else line for line in lines]
    return "\n".join([f"###### {section['name']}", "", *listed, ""])


def sources() -> dict[Path, str]:
    """The pages that are written in Markdown, in the order of the site, and the section of each."""
    guides = [PACKAGE.joinpath(*name.split("."), "guide.md") for name in GUIDES]
    guides = [path for path in [*guides, PACKAGE / "integrations" / "migrating.md"] if path.exists()]
    tutorials = sorted((ROOT / "examples" / "tutorials").glob("*.md"))
    start = {ROOT / "examples" / "install.md": "Start"}
    return start | dict.fromkeys(tutorials, "Tutorials") | dict.fromkeys(guides, "Guides")


def page_name(path: Path) -> str:
    """The file in the site of a page in Markdown; the first one is where readers arrive."""
    name = path.parent.name if path.stem == "guide" else path.stem
    return "index.html" if name == "install" else f"{name}.html"


class Site:
    """The pages of a folder, with the modules of the API as pdoc knows them."""

    def __init__(self, folder: Path, modules: dict[str, Any]) -> None:
        from pdoc import render, render_helpers

        self.folder, self.modules, self.helpers = folder, modules, render_helpers
        self.template = render.env.get_template("module.html.jinja2")
        self.entries: list[tuple[str, str, str, str]] = []  # Of the search: title, address, section, text.
        self.sources = sources()
        self.sections: dict[str, list[tuple[str, str]]] = defaultdict(list)
        for path, section in self.sources.items():
            title = path.read_text(encoding="utf-8").partition("# ")[2].partition("\n")[0]
            self.sections[section].append((page_name(path), title))
        self.sections["API"] = [(f"{name}.html", name) for name in modules]
        # The page of an object is that of the first package which has it.
        self.homes: dict[int, str] = {}
        self.addresses = {name: f"{name}.html" for name in modules}
        for module in modules:
            for member in self.public(module):
                home = self.homes.setdefault(id(member.obj), f"{module}.{member.name}.html")
                self.addresses[f"{module}.{member.name}"] = home

    def public(self, module: str) -> list[Any]:
        """The classes and functions of a module that users call."""
        members = self.modules[module].flattened_own_members
        return [m for m in members if m.kind in ("class", "function") and m.name not in INTERNAL and m.name[0] != "_"]

    def write(self, url: str, title: str, source: str, module: str = "sbert", **parts: Any) -> None:
        """Fill the template, and write the page."""
        shared = {"module": self.modules[module], "all_modules": self.modules, "sections": self.sections}
        html = self.template.render(url=url, title=title, source=f"{SOURCE}/{source}", **shared, **parts)
        known = {self.helpers.relative_link(module, name): name for name in self.modules}

        def follow(link: re.Match[str]) -> str:
            """A link of pdoc's leads to the page of a name, or to that of its module."""
            if "body" in parts or (link[1] and link[1] not in known):
                return link[0]
            name = f"{known.get(link[1], module)}.{link[2] or ''}".strip(".")
            while name not in self.addresses:
                name = name.rpartition(".")[0]
            return f'href="{self.addresses[name]}"'

        (self.folder / url).write_text(re.sub(r'href="([\w./]*)(?:#([\w.]+))?"', follow, html), encoding="utf-8")

    def write_markdown(self, path: Path) -> None:
        """A guide or a tutorial, with an entry of the search for each of its headings."""
        url, text = page_name(path), path.read_text(encoding="utf-8")
        text = re.sub(r"^(```\w+) skip$", r"\1", text, flags=re.MULTILINE)
        html = self.helpers.to_html(text)

        def follow(link: re.Match[str]) -> str:
            target, mark, place = link[1].partition("#")
            other = (path.parent / target).resolve()
            address = page_name(other) if other in self.sources else f"{SOURCE}/{other.relative_to(ROOT)}"
            return f'href="{address}{mark}{place}"'

        html = re.sub(r'href="([^":#][^":]*)"', follow, html)
        parts = re.split(r'<h[1-4] id="([^"]*)">(.*?)</h[1-4]>', html)[1:]
        addresses = [url, *(f"{url}#{place}" for place in parts[3::3])]
        sections = [self.sources[path]] + [parts[1]] * len(addresses)
        self.entries += zip(parts[1::3], addresses, sections, parts[2::3], strict=False)
        self.write(url, parts[1], path.relative_to(ROOT).as_posix(), body=html)

    def write_module(self, name: str) -> None:
        """A page that lists the names of a package, and one for each name of which it is the first."""
        module, members = self.modules[name], self.public(name)
        table = [(self.homes[id(member.obj)], member.name, member.docstring.partition("\n")[0]) for member in members]
        self.write(f"{name}.html", name, Path(module.obj.__file__).relative_to(ROOT).as_posix(), name, names=table)
        self.entries.append((name, f"{name}.html", "API", module.docstring))
        for member in members:
            url = f"{name}.{member.name}.html"
            if self.homes[id(member.obj)] == url:
                source = member.source_file.relative_to(ROOT).as_posix()
                self.write(url, member.name, source, name, shown=member)
                methods = [] if member.kind == "function" else member.own_members
                for part in (member, *(method for method in methods if method.docstring and method.name[0] != "_")):
                    self.entries.append((part.qualname, f"{url}#{part.qualname}", name, part.docstring))


def render(folder: Path) -> list[str]:
    """Write the site, and return what is wrong with it."""
    from pdoc import doc, docstrings, render
    from torch import nn

    import sbert

    nn.Module.forward.__doc__ = ""  # Of torch, for every loss and module.
    vars(sbert).update({name: getattr(sbert, name) for name in sbert.__all__})  # They are imported when needed.
    read_google = docstrings.google
    docstrings.google = lambda docstring: read_google(_SECTION.sub(_as_heading, docstring))
    folder.mkdir(parents=True, exist_ok=True)
    render.configure(docformat="google", show_source=False, template_directory=TEMPLATES)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Of adapters whose packages are not installed.
            site = Site(folder, {name: doc.Module(import_module(name)) for name in MODULES})
            for path in site.sources:
                site.write_markdown(path)
            for name in site.modules:
                site.write_module(name)
    finally:
        docstrings.google = read_google
    for name in ("style.css", "site.js", "favicon.svg"):
        shutil.copy(TEMPLATES / name, folder)
    (folder / "search.js").write_text(f"const ENTRIES = {json.dumps(site.entries)};", encoding="utf-8")
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
