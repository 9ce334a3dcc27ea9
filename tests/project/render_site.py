"""The site: guides and tutorials from Markdown, the API by pdoc from the docstrings; its search; dead links.

``python -m tests.project.render_site FOLDER`` writes it to a folder.
"""

from __future__ import annotations

import ast
import json
import math
import re
import shutil
import sys
import textwrap
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag, urlsplit

from tests.project.code_lines import PACKAGE

ROOT, TEMPLATES = PACKAGE.parent, Path(__file__).parent / "site"
SOURCE = "https://github.com/sbert/sbert/blob/main"  # As in pyproject.toml.
# The packages in the order of their guides.
MODULES = (
    "sbert", "sbert.pipeline", "sbert.search", "sbert.chunking", "sbert.training", "sbert.losses", "sbert.evaluation",
    "sbert.data", "sbert.vector_files", "sbert.modules", "sbert.functional", "sbert.saving", "sbert.saving.export",
    "sbert.backends", "sbert.visualization", "sbert.integrations", "sbert.integrations.switching", "sbert.cli",
)  # fmt: skip
NO_NAMES = ("sbert.backends", "sbert.pipeline", "sbert.integrations.switching")  # For the library alone.
INTERNAL = {"GradientBuckets", "Ranks", "Signature", "TrainingBatch", "ModelVectors", "write_line"}
# Names in docstrings that have to exist: "sbert.search.Index".
_REFERENCE = re.compile(r"``(sbert(?:\.\w+)+)(?:\(.*?\))?``", re.DOTALL)
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


def sources() -> dict[Path, str]:
    """The pages that are written in Markdown, in the order of the site, and the section of each."""
    guides = [PACKAGE.joinpath(*name.split(".")[1:], "guide.md") for name in MODULES]
    guides = [path for path in [*guides, PACKAGE / "integrations" / "migrating.md"] if path.exists()]
    tutorials = sorted((ROOT / "examples" / "tutorials").glob("*.md"))
    start = {ROOT / "examples" / "install.md": "Start"}
    return start | dict.fromkeys(tutorials, "Tutorials") | dict.fromkeys(guides, "Guides")


def page_name(path: Path) -> str:
    """The file in the site of a page in Markdown; the first one is where readers arrive."""
    name = path.parent.name if path.stem == "guide" else path.stem
    return "index.html" if name == "install" else f"{name}.html"


def terms_of(text: str) -> Iterator[str]:
    """The stems of words, and of the parts of names such as ``EarlyStopping`` and ``batch_size``; as in site.js."""
    for word in re.findall(r"\w+", text):
        for part in {word, *re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", word)}:
            yield re.sub(r"(ing|ings|ed|es|s|e)$", "", part.lower()) if len(part) > 4 else part.lower()


def search_index(entries: list[tuple[str, str, str, str]]) -> dict[str, Any]:
    """Titles, addresses and sections of entries, and the weight of each term in them; the fourth part is the text."""
    weights: dict[str, Counter[int]] = defaultdict(Counter)
    for number, (title, _, section, text) in enumerate(entries):
        for words, weight in ((title, 8), (section, 2), (text, 1)):
            terms = Counter(terms_of(words))
            for term, count in terms.items():
                weights[term][number] += weight * min(count, 3) / (3 + len(terms)) ** 0.5
    scaled = {
        term: {number: round(weight * math.log(1 + len(entries) / len(found)), 2) for number, weight in found.items()}
        for term, found in weights.items()
    }
    return {"entries": [entry[:3] for entry in entries], "terms": scaled}


class Site:
    """The pages of a folder.

    Args:
        folder: Where they are written.
        modules: Those of the API, as pdoc knows them.
    """

    def __init__(self, folder: Path, modules: dict[str, Any]) -> None:
        from pdoc import render, render_helpers

        self.folder, self.modules, self.helpers = folder, modules, render_helpers
        self.template = render.env.get_template("module.html.jinja2")
        self.sources = sources()
        self.entries: list[tuple[str, str, str, str]] = []
        self.sections: dict[str, list[tuple[str, str]]] = defaultdict(list)
        for path, section in self.sources.items():
            title = re.search(r"^# (.*)", path.read_text(encoding="utf-8"), re.MULTILINE)[1]
            self.sections[section].append((page_name(path), title))
        self.sections["API"] = [(f"{name}.html", name) for name in modules if name not in NO_NAMES]
        self.names: dict[str, list[Any]] = {name: self.public(name) for name in modules}
        # The page of each object is that of the first package which has it; and of each name and method, its address.
        self.homes: dict[int, str] = {}
        self.addresses = {name: f"{name}.html" for name in modules if name not in NO_NAMES}
        for module, members in self.names.items():
            for member in members:
                home = self.homes.setdefault(id(member.obj), f"{module}.{member.name}.html")
                self.addresses[f"{module}.{member.name}"] = home
                for method in self.methods(member):
                    self.addresses[f"{module}.{method.qualname}"] = f"{home}#{method.qualname}"

    def public(self, module: str) -> list[Any]:
        """The classes and functions of a module that users call."""
        members = [] if module in NO_NAMES else self.modules[module].flattened_own_members
        return [m for m in members if m.kind in ("class", "function") and m.name not in INTERNAL and m.name[0] != "_"]

    def methods(self, member: Any) -> list[Any]:
        """Those of a class that have an explanation."""
        own = member.own_members if member.kind == "class" else []
        return [method for method in own if method.docstring and method.name[0] != "_"]

    def write(self, url: str, title: str, source: str, module: str = "sbert", **parts: Any) -> str:
        """Fill the template, and write the page; what it says."""
        known = {self.helpers.relative_link(module, name): name for name in self.modules}
        shared = {"module": self.modules[module], "all_modules": self.modules, "sections": self.sections}
        html = self.template.render(url=url, title=title, source=f"{SOURCE}/{source}", **shared, **parts)

        def follow(link: re.Match[str]) -> str:
            """A link of pdoc's leads to a page of one name, or to that of its module."""
            if link[1] and link[1] not in known:
                return link[0]
            name = f"{known.get(link[1], module)}.{link[2] or ''}".strip(".")
            parents = [name.rsplit(".", count)[0] for count in range(1, name.count(".") + 1)]
            return f'href="{next(self.addresses[n] for n in [name, *parents] if n in self.addresses)}"'

        html = re.sub(r'href="([\w./]*)(?:#([\w.]+))?"', follow, html) if "body" not in parts else html
        (self.folder / url).write_text(html, encoding="utf-8")
        return re.sub(r"<[^>]*>", " ", html.partition("<main")[2])

    def write_markdown(self, path: Path) -> None:
        """A guide or a tutorial, with an entry of the search for each of its headings."""
        url, section = page_name(path), self.sources[path]
        text = re.sub(r"^```(\w+) skip$", r"```\1", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
        html = self.helpers.to_html(
            re.sub(r"^```\n+```text$", "```\n\n<!-- output -->\n\n```text", text, flags=re.MULTILINE)
        )
        html = re.sub(r'<!-- output -->\s*<div class="', '<div class="output ', html)

        def follow(link: re.Match[str]) -> str:
            target, _, place = link[2].partition("#")
            other = (path.parent / target).resolve()
            if other in self.sources:
                return f'{link[1]}="{page_name(other)}{"#" * bool(place)}{place}"'
            if link[1] == "src":
                shutil.copy(other, self.folder)
                return f'src="{other.name}"'
            return f'{link[1]}="{SOURCE}/{other.relative_to(ROOT)}"'

        def explain(code: re.Match[str]) -> str:
            module = ".".join(path.parent.relative_to(ROOT).parts)
            names = (code[1], f"{module}.{code[1]}", f"sbert.{code[1]}", *(f"{name}.{code[1]}" for name in MODULES))
            address = next((self.addresses[name] for name in names if name in self.addresses), None)
            return f'<a href="{address}">{code[0]}</a>' if address else code[0]

        html = re.sub(r'(href|src)="([^":#][^":]*)"', follow, html)
        html = re.sub(r"(?<!<pre>)<code>([\w.]+)</code>(?!</a>)", explain, html)
        parts = re.split(r'<h[1-4] id="([^"]*)">(.*?)</h[1-4]>', html)[1:]
        name = parts[1]
        for place, heading, said in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
            address = url if heading == name else f"{url}#{place}"
            self.entries.append((heading, address, section if heading == name else name, re.sub(r"<[^>]*>", " ", said)))
        self.write(url, name, str(path.relative_to(ROOT)), body=html)

    def write_module(self, name: str) -> None:
        """A page that lists the names of a package, and one for each name of which it is the first."""
        module = self.modules[name]
        source = str(Path(module.obj.__file__).relative_to(ROOT))
        table = [(self.homes[id(m.obj)], m.name, m.docstring.partition("\n")[0]) for m in self.names[name]]
        self.write(f"{name}.html", name, source, name, names=table)
        self.entries.append((name, f"{name}.html", "API", module.docstring))
        for member in self.names[name]:
            url = f"{name}.{member.name}.html"
            if self.homes[id(member.obj)] == url:
                source = str(member.source_file.relative_to(ROOT))
                lines = f"#L{member.source_lines[0]}" if member.source_lines else ""
                said = self.write(url, member.name, source + lines, name, member=member)
                self.entries.append((member.name, url, name, member.docstring or said))
                for method in self.methods(member):
                    address = self.addresses[f"{name}.{method.qualname}"]
                    self.entries.append((method.qualname, address, name, method.docstring))


def render(folder: Path) -> list[str]:
    """Write the site, and return what is wrong with it."""
    from pdoc import doc, docstrings, render
    from torch import nn

    nn.Module.forward.__doc__ = ""  # Of torch, for every loss and module.
    read_google = docstrings.google
    docstrings.google = lambda docstring: read_google(_SECTION.sub(_as_heading, docstring))
    render.configure(docformat="google", show_source=False, template_directory=TEMPLATES)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Of adapters whose packages are not installed.
            site = Site(folder, {name: doc.Module(import_module(name)) for name in MODULES})
            for path in site.sources:
                site.write_markdown(path)
            for name in site.addresses.keys() & set(MODULES):
                site.write_module(name)
    finally:
        docstrings.google = read_google
    for name in ("style.css", "site.js", "favicon.svg"):
        shutil.copy(TEMPLATES / name, folder)
    index = json.dumps(search_index(site.entries))
    (folder / "search.js").write_text(f"const INDEX = {index};", encoding="utf-8")
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
