"""The site of guides and API: what it refers to exists, its pages fit the screen, its search finds what is meant."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from torch import Tensor

from tests.project import render_site as site
from tests.project import site_api
from tests.project.site_pages import synonyms
from tests.visualization.browser import Browser, find

pytestmark = pytest.mark.gate


def test_every_name_that_docstrings_mention_exists() -> None:
    assert site.broken() == []


def test_a_name_that_does_not_exist_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "file.py").write_text('"""See ``sbert.search.Index``, ``sbert.search.Indes`` and ``sbert.nothing``."""')
    assert [line.split(": ", 2)[2] for line in site.broken(tmp_path)] == [
        "sbert.search.Indes does not exist",
        "sbert.nothing does not exist",
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, without its pictures, which take longest."""
    pytest.importorskip("pdoc")
    folder = tmp_path_factory.mktemp("site")
    assert site.render(folder, pictures=False) == []
    return folder


@pytest.fixture(scope="module")
def pages(folder: Path) -> dict[str, str]:
    paths = [path for path in folder.rglob("*.html") if path.parent.name != "pictures"]
    return {path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8") for path in paths}


@pytest.mark.slow  # All pages of the site, since a link of one leads to another.
def test_signatures_have_the_types_of_the_source_and_no_decorators(pages: dict[str, str]) -> None:
    assert 'id="CoSENTLoss"' in pages["api/losses.html"]
    assert 'href="types.html#sbert.functional.Vectors">Vectors</a>' in pages["api/search.html"]
    assert 'id="sbert.functional.Vectors"' in pages["api/types.html"]
    wrong = ("ForwardRef", "collections.abc", "typing.", "@dataclass", "@overload", "&lt;function")
    signatures = [
        text.partition("</pre>")[0] for page in pages.values() for text in page.split('class="signature">')[1:]
    ]
    assert len(signatures) > 200
    assert [text for text in signatures if any(word in text for word in wrong)] == []


@pytest.mark.slow
def test_the_search_knows_public_names_alone(folder: Path) -> None:
    names = [entry for entry in site.read_entries(folder) if entry["kind"] in {"class", "function", "attribute"}]
    assert len(names) > 200
    for entry in names:
        assert not any(part.startswith("_") for part in entry["label"].split(".")), entry
        package = entry["label"].removesuffix(f".{entry['name']}")
        assert entry["name"].partition(".")[0] in site_api.public_names(package), entry
    assert not any("PAIR" in entry["name"] for entry in names)


@pytest.fixture(scope="module", params=[1400, 390])
def browser(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    program = find()
    if program is None:
        pytest.skip("needs chromium")
    with Browser(program, tmp_path_factory.mktemp("profile"), (request.param, 900)) as browser:
        yield browser


@pytest.mark.slow
def test_nothing_runs_out_of_a_page_and_nothing_is_fetched(
    browser: Browser, folder: Path, pages: dict[str, str]
) -> None:
    for path in pages:
        browser.open(folder / path)
        assert browser.run("document.documentElement.scrollWidth <= innerWidth"), path
    requests = [event["request"]["url"] for event in browser.of("Network.requestWillBeSent")]
    assert [url for url in requests if not url.startswith(("file:", "data:"))] == []
    assert browser.of("Runtime.exceptionThrown") == []


def search(browser: Browser, text: str) -> list[str]:
    script = f"""(() => {{
        const input = document.querySelector("input[type=search]");
        input.value = {json.dumps(text)};
        input.dispatchEvent(new Event("input"));
        return [...document.querySelectorAll(".search li a")].map((link) => link.getAttribute("href"));
    }})()"""
    links: list[str] = browser.run(script)
    return links


@pytest.mark.slow
def test_the_search_ranks_names_first_and_knows_other_words(browser: Browser, folder: Path) -> None:
    browser.open(folder / "index.html")
    first = {
        "Index": "api/search.html#Index",
        "index": "api/search.html#Index",
        "encode": "api/sbert.html#SentenceEncoder.encode",
        "semantic_search": "api/search.html#semantic_search",
        "HybridIndex.add": "api/search.html#HybridIndex.add",
        "SoftmaxLoss": "api/losses.html#SoftmaxLoss",
        "normalise": "guide/sbert.html#encode-and-compare",
        "Multi GPU": "guide/pipeline.html#several-devices-in-one-machine",
        "fine-tune": "guide/training.html",
        "fine tuning": "guide/training.html",
        "huggingface": "guide/saving.html#share-a-model",
    }
    assert {text: search(browser, text)[0] for text in first} == first
    assert "guide/training.html#options" in search(browser, "OOM")
    assert search(browser, "slurm arrays")  # Words of a text.
    assert search(browser, "zzz qqq") == []
    for words, url in synonyms():
        for word in words:
            assert url in search(browser, word), word


@pytest.mark.slow
def test_a_result_is_chosen_by_the_keyboard(browser: Browser, folder: Path) -> None:
    browser.open(folder / "guide" / "search.html")
    browser.run("document.querySelector('input[type=search]').focus()")
    browser.write("SoftmaxLoss")
    browser.key("Enter")
    browser.painted()
    assert browser.run("location.href").endswith("api/losses.html#SoftmaxLoss")


@pytest.mark.slow
def test_pictures_of_the_guides_are_drawn(tmp_path: Path) -> None:
    from tests.project import site_pictures

    shown = site_pictures.draw(tmp_path)
    images = {path.name for path in tmp_path.iterdir()}
    assert images == {"heatmap.png", "map.png", "map.html", "curves.png"}
    assert all(f"../pictures/{name}" in shown["sbert.visualization"] for name in images)
    assert "<b>$ sbert search" in shown["sbert.cli"]


def test_pages_that_load_from_elsewhere_or_are_unwieldy_are_found(tmp_path: Path) -> None:
    (tmp_path / "api").mkdir()
    (tmp_path / "index.html").write_text("<h1></h1><img alt='' src=\"https://a.bc/d.png\"><a href='https://a.bc'></a>")
    (tmp_path / "api" / "two.html").write_text("<h1></h1><h1></h1>" + " " * site.LARGEST)
    entries = [{"name": "here", "url": "index.html"}, {"name": "there", "url": "api/two.html#there"}]
    (tmp_path / "entries.js").write_text(f"const ENTRIES = {json.dumps(entries)};")
    assert site.outside(tmp_path) == ["index.html: loads https://a.bc/d.png"]
    size = (tmp_path / "api" / "two.html").stat().st_size
    assert site.unwieldy(tmp_path) == [
        f"api/two.html: {size:,} bytes are more than {site.LARGEST:,}",
        "api/two.html: 2 headings of the first level",
    ]
    assert site.dead_entries(tmp_path) == ["the search for there leads to api/two.html#there, which does not exist"]


Short = np.ndarray | Tensor


def example(first: Short, /, *second: int, third: str = "a", **rest: Any) -> list[Short]:
    return []


def test_signatures_are_those_of_the_source() -> None:
    parameters = ["first: Short", "/", "*second: int", 'third: str = "a"', "**rest: Any"]
    assert site_api.write_signature("example", example).split("\n    ") == [
        "example(",
        *(f"{parameter}," for parameter in parameters[:-1]),
        "**rest: Any,\n) -> list[Short]",
    ]
    assert site_api.write_signature("example", SimpleNamespace, "class ") == "class example"


def test_dead_links_are_found(tmp_path: Path) -> None:
    (tmp_path / "sbert").mkdir()
    (tmp_path / "sbert" / "other.html").write_text("<p id='here'></p><a href='../page.html#there'>there</a>")
    links = [
        *("sbert/other.html", "sbert/other.html#here", "sbert/other.html#%68ere", "#there", "#", "https://a.bc/d#e"),
        *("sbert/other.html#nowhere", "sbert/missing.html", "#Class.name", "sbert"),
    ]
    (tmp_path / "page.html").write_text("<b id='there'></b>" + "".join(f"<a href='{link}'></a>" for link in links))
    assert site.dead_links(tmp_path) == [
        f"page.html: the link {link} leads nowhere"
        for link in ("#Class.name", "sbert", "sbert/missing.html", "sbert/other.html#nowhere")
    ]
