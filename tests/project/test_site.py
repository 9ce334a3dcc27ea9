"""The site of guides and API: what it refers to exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.project import render_site as site

pytestmark = pytest.mark.gate


def test_every_name_that_docstrings_mention_exists() -> None:
    assert site.broken() == []


def test_a_name_that_does_not_exist_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "file.py").write_text('"""See ``sbert.search.Index``, ``sbert.search.Indes`` and ``sbert.nothing``."""')
    assert [line.split(": ", 2)[2] for line in site.broken(tmp_path)] == [
        "sbert.search.Indes does not exist",
        "sbert.nothing does not exist",
    ]


def test_all_pages_are_rendered_and_lead_somewhere(tmp_path: Path) -> None:
    pytest.importorskip("pdoc")
    assert site.render(tmp_path) == []
    page = (tmp_path / "sbert" / "losses.html").read_text(encoding="utf-8")
    assert 'id="CoSENTLoss"' in page
    assert "Shape</h6>" in page
    assert re.search(r"<table>.*CosineSimilarityLoss.*</table>", page, re.DOTALL)  # Of the guide.
    assert "semantic_search" in (tmp_path / "search.js").read_text(encoding="utf-8")


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
