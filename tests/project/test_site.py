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
