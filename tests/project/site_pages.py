"""The pages of the site: a guide is the docstring of its package, an API page its public names; and the search."""

from __future__ import annotations

import csv
import inspect
import io
import os
import re
import textwrap
from collections.abc import Iterator
from contextlib import redirect_stdout, suppress
from html import escape, unescape
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import sbert
from tests.project import site_api
from tests.project.site_api import Entry

TEMPLATES = Path(__file__).parent / "site"
README = Path(__file__).parent.parent.parent / "README.md"
# The guides, in the order in which the site lists them.
GUIDES = {
    "sbert": "Encode and compare",
    "sbert.search": "Search and cluster",
    "sbert.chunking": "Long documents",
    "sbert.training": "Train",
    "sbert.losses": "Losses",
    "sbert.evaluation": "Evaluate",
    "sbert.data": "Read data",
    "sbert.modules": "Build a model",
    "sbert.saving": "Save and share",
    "sbert.saving.export": "Other runtimes",
    "sbert.pipeline": "Devices and clients",
    "sbert.vector_files": "From one file to a cluster",
    "sbert.backends": "Speed and GPUs",
    "sbert.visualization": "Maps and pictures",
    "sbert.integrations": "Integrations",
    "sbert.integrations.switching": "Names of sentence-transformers",
    "sbert.cli": "Command line",
}
# The packages with public names. Those that `sbert` has from others stand on the page of the other.
API = [
    *("sbert.modules", "sbert.training", "sbert.search", "sbert.chunking", "sbert.losses", "sbert.evaluation"),
    *("sbert.data", "sbert.functional", "sbert.visualization", "sbert.pipeline", "sbert.vector_files"),
    *("sbert.saving", "sbert.saving.export", "sbert"),
]
_TEXTS = re.compile(r"^(?P<name>Shape|Returns|Yields|References|Example):\n(?P<text>(?:[ \t]+.+\n?|\n)+)", re.MULTILINE)
_CODE = re.compile(r"<code>([A-Za-z_][\w.]*)((?:\([^<]*\))?)</code>")
_HEADING = re.compile(r'<h([23]) id="([^"]+)">(.*?)</h\1>', re.DOTALL)


class Page(NamedTuple):
    """A page of the site.

    Args:
        path: Below the folder of the site.
        title: Its one heading of the first level.
        body: The HTML below it.
        contents: Level, anchor and text of the headings that the page lists beside itself.
    """

    path: str
    title: str
    body: str = ""
    contents: tuple[tuple[int, str, str], ...] = ()


def markdown(docstring: str) -> str:
    """A docstring as HTML; a section in which no names are explained is a heading and its text."""
    from pdoc import docstrings, render_helpers

    return str(render_helpers.to_html(docstrings.google(_TEXTS.sub(_text, docstring))))


def _text(section: re.Match[str]) -> str:
    lines = textwrap.dedent(section["text"]).splitlines()
    listed = [f"- {line}" if line[:1].strip() else line for line in lines]
    return "\n".join([f"###### {section['name']}", "", *(listed if section["name"] == "References" else lines), ""])


def plain(html: str) -> str:
    """The words of a piece of HTML."""
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", html)).split())


def _file(package: str) -> str:
    """The name of a package's page: ``search.html``."""
    short = "switching" if package.endswith(".switching") else package.removeprefix("sbert.")
    return f"{short}.html"


class Site:
    """All pages, the public names on them, and what the search knows."""

    def __init__(self) -> None:
        self.guides = {package: Page(f"guide/{_file(package)}", title) for package, title in GUIDES.items()}
        self.api = {package: Page(f"api/{_file(package)}", package) for package in sorted(API)}
        self.commands = Page("api/cli.html", "sbert COMMAND --help")
        self.types = Page("api/types.html", "Types in signatures")
        self.entries: dict[str, list[Entry]] = {}
        self.urls: dict[str, str] = {}  # By the name from the package on, and by the place of the definition.
        self.aliases: dict[str, str] = {}
        for package in API:
            new = [entry for entry in site_api.entries(package) if entry.home not in self.urls]
            self.entries[package] = new
            for entry in new:
                for name in (f"{package}.{entry.name}", entry.home):
                    self.urls.setdefault(name, f"{self.api[package].path}#{entry.name}")
        for name in sbert.__all__:
            value = getattr(sbert, name)
            self.urls[f"sbert.{name}"] = self.urls[f"{value.__module__}.{value.__qualname__}"]
        self._titles: dict[str, list[str]] = {}
        for name, url in self.urls.items():
            self._titles.setdefault(name.rpartition(".")[2], []).append(url)

    def find(self, name: str, package: str) -> str | None:
        """The address of a name in a text about a package."""
        if name in self.guides and name != "sbert":
            return self.guides[name].path
        if (url := self.urls.get(name) or self.urls.get(f"{package}.{name}")) is not None:
            return url
        owner, _, member = name.rpartition(".")
        urls = set(self._titles.get(owner or name, ()))
        if not name[:1].isupper() or len(urls) != 1:
            return None
        url = urls.pop()
        return url if not owner else next((u for u in self.urls.values() if u == f"{url}.{member}"), None)

    def linked(self, html: str, package: str) -> str:
        """HTML of a page one folder down, with links from the names of the library to their entries."""

        def link(match: re.Match[str]) -> str:
            url = self.find(match[1], package)
            return f'<a href="../{url}">{match[0]}</a>' if url else match[0]

        return _CODE.sub(link, html)

    def find_type(self, name: str, scope: dict[str, Any]) -> str | None:
        """The address of a name in a signature; names of types get an entry on the page of types."""
        if alias := site_api.find_alias(name, scope):
            module, text = alias
            self.aliases[f"{module}.{name}"] = text
            return f"types.html#{module}.{name}"
        value = scope.get(name) or site_api.find_imported(name, scope)
        url = self.urls.get(f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', '')}")
        return f"../{url}" if url else None

    def guide(self, package: str, pictures: str) -> Page:
        """The docstring of a package, with its pictures before the second heading."""
        html = self.linked(markdown(inspect.cleandoc(import_module(package).__doc__ or "")), package)
        before, heading, after = html.partition("<h2")
        body = f"{before}{pictures}{heading}{after}"
        if package in self.entries:
            body += f'<p>All names: <a href="../{self.api[package].path}">{package}</a></p>'
        if package == "sbert.cli":
            body += f'<p>All options: <a href="../{self.commands.path}">{self.commands.title}</a></p>'
        contents = tuple((int(level), anchor, plain(text)) for level, anchor, text in _HEADING.findall(body))
        return self.guides[package]._replace(body=body, contents=contents)

    def reference(self, package: str) -> Page:
        """The public names of a package: a table of all, then each."""
        entries = self.entries[package]
        elsewhere = [name for name in sbert.__all__ if not self.urls[f"sbert.{name}"].startswith("api/sbert.")]
        links = [f'<a href="../{self.urls[f"sbert.{name}"]}"><code>{name}</code></a>' for name in elsewhere]
        top = [entry for entry in entries if "." not in entry.name]
        rows = [
            f'<tr><td><a href="#{entry.name}"><code>{entry.name}</code></a></td><td>{_summary(entry)}</td></tr>'
            for entry in top
        ]
        also = f"<p>Other names that <code>sbert</code> has, too: {', '.join(links)}.</p>" if package == "sbert" else ""
        guide = self.guides.get(package)
        guides = f'<p>Guide: <a href="../{guide.path}">{guide.title}</a></p>' if guide else ""
        body = f"{guides}<table><tbody>{''.join(rows)}</tbody></table>{also}"
        body += "".join(self._entry(entry, package) for entry in entries)
        contents = tuple((2 + entry.name.count("."), entry.name, entry.name.rpartition(".")[2]) for entry in entries)
        return self.api[package]._replace(body=body, contents=contents)

    def _entry(self, entry: Entry, package: str) -> str:
        level = 2 + min(entry.name.count("."), 1)
        known = [self.urls[base] for base in entry.bases if base in self.urls]
        bases = ", ".join(f'<a href="../{url}">{url.partition("#")[2]}</a>' for url in known)
        signature = site_api.highlight(entry.signature, lambda name: self.find_type(name, entry.scope))
        return (
            f'<section class="entry{" member" if level == 3 else ""}" id="{entry.name}">'
            f'<h{level}>{entry.name}<a class="anchor" href="#{entry.name}" aria-label="Link">#</a></h{level}>'
            f'<pre class="signature">{signature}</pre>'
            + (f'<p class="base">A kind of {bases}.</p>' if bases else "")
            + f"{self.linked(markdown(entry.docstring), package)}</section>"
        )

    def type_page(self) -> Page:
        """What the short names of types in signatures stand for."""
        rows = "".join(
            f'<tr id="{name}"><td><code>{name.rpartition(".")[2]}</code></td><td><code>{escape(text)}</code></td>'
            f"<td><code>{name.rpartition('.')[0]}</code></td></tr>"
            for name, text in sorted(self.aliases.items(), key=lambda item: item[0].rpartition(".")[2])
        )
        lead = "<p>Signatures use short names for types. This is what they stand for, and where they are defined.</p>"
        return self.types._replace(body=f"{lead}<table><tbody>{rows}</tbody></table>")

    def command_page(self) -> Page:
        """The help of every command."""
        from sbert.cli import main as cli

        os.environ["COLUMNS"] = "88"
        parts, contents = [], []
        for command in cli._COMMANDS:
            with redirect_stdout(io.StringIO()) as out, suppress(SystemExit):
                cli.main([command, "--help"])
            parts.append(f'<h2 id="{command}">sbert {command}</h2><pre class="help">{escape(out.getvalue())}</pre>')
            contents.append((2, command, f"sbert {command}"))
        guide = self.guides["sbert.cli"]
        lead = f'<p>Guide: <a href="../{guide.path}">{guide.title}</a></p>'
        return self.commands._replace(body=lead + "".join(parts), contents=tuple(contents))

    def search_entries(self, pages: list[Page]) -> Iterator[dict[str, str]]:
        """What the search looks through: public names, what other words stand for, and the sections of all guides."""
        for package in ("sbert", *API[:-1]):
            for entry in self.entries[package]:
                url = f"{self.api[package].path}#{entry.name}"
                label = f"{package}.{entry.name}"
                yield _found(entry.name, entry.kind, url, label, "API", plain(_summary(entry)))
        sections = [found for page in pages for found in self._sections(page)]
        texts = {found["url"]: found for found in sections}
        for words, url in synonyms():
            for word in words:
                yield {**texts[url], "name": word, "kind": "synonym", "text": texts[url]["text"][:140]}
        yield from sections

    def _sections(self, page: Page) -> Iterator[dict[str, str]]:
        """The beginning of a guide, and what stands below each of its headings."""
        if not page.path.startswith("guide/") and page.path != self.commands.path:
            return
        text = re.sub(r"<pre><span>.*?</pre>", "", page.body, flags=re.DOTALL)  # Examples say little in a list.
        first, *sections = re.split(r"(?=<h[23] id=)", text)
        yield _found(page.title, "page", page.path, page.title, "Guide", plain(first))
        for section in sections:
            _, anchor, heading = _HEADING.match(section).groups()  # type: ignore[union-attr]
            name, text = plain(heading), plain(section.partition("</h")[2].partition(">")[2])
            label = page.title if name == page.title else f"{page.title}: {name}"
            yield _found(name, "section", f"{page.path}#{anchor}", label, "Guide", text)


def _found(name: str, kind: str, url: str, label: str, page: str, text: str) -> dict[str, str]:
    return {"name": name, "kind": kind, "url": url, "label": label, "page": page, "text": text}


def _summary(entry: Entry) -> str:
    """The first paragraph of a docstring, as HTML."""
    return re.sub(r"</?p>", "", markdown(entry.docstring.partition("\n\n")[0]))


def synonyms() -> list[tuple[list[str], str]]:
    """Words that people search for, and the page that they look for."""
    with (TEMPLATES / "synonyms.csv").open(encoding="utf-8", newline="") as file:
        return [(row["words"].split("|"), row["page"]) for row in csv.DictReader(file)]


def first_page(picture: str) -> Page:
    """The tasks that people come for, after the example of the README, and a picture."""
    readme = README.read_text(encoding="utf-8")
    example = re.search(r"^```python\n.*?^```$", readme, re.MULTILINE | re.DOTALL)[0]  # type: ignore[index]
    install = re.search(r"^pip install torch.*$", readme, re.MULTILINE)[0]  # type: ignore[index]
    text = (TEMPLATES / "index.md").read_text(encoding="utf-8")
    html = markdown(text.replace("EXAMPLE", example).replace("INSTALL", install)).replace("<p>PICTURE</p>", picture)
    title = "sbert: sentence embeddings"
    return Page("index.html", title, html.replace("<ul>", '<div class="tasks"><ul>').replace("</ul>", "</ul></div>"))


def style() -> str:
    """The style sheet, with the colours of code in both schemes."""
    from pygments.formatters import HtmlFormatter

    light, dark = (HtmlFormatter(style=name).get_style_defs("pre") for name in ("friendly", "github-dark"))
    colours = [re.sub(r"background(-color)?: [^;}]+;?", "", text) for text in (light, dark)]
    css = (TEMPLATES / "style.css").read_text(encoding="utf-8")
    return f"{css}\n{colours[0]}\n@media (prefers-color-scheme: dark) {{\n{colours[1]}\n}}\n"
