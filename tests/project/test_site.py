"""The site of guides and reference: references that exist."""

from __future__ import annotations

from pathlib import Path

from tests.project import render_site as site


def test_every_name_that_docstrings_mention_exists() -> None:
    assert site.broken() == []


def test_a_name_that_does_not_exist_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "file.py").write_text('"""See ``sbert.search.Index``, ``sbert.search.Indes`` and ``sbert.nothing``."""')
    assert [line.split(": ", 2)[2] for line in site.broken(tmp_path)] == [
        "sbert.search.Indes does not exist",
        "sbert.nothing does not exist",
    ]
