"""The site of guides and API: what it refers to exists."""

from __future__ import annotations

import csv
import json
import subprocess
from pathlib import Path

import pytest

from tests.project import render_site as site

pytestmark = pytest.mark.gate


def test_every_name_that_docstrings_mention_exists() -> None:
    assert site.broken() == []


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("pdoc")
    folder = tmp_path_factory.mktemp("site")
    assert site.render(folder) == []
    return folder


def test_pages_have_guides_and_names(folder: Path) -> None:
    assert ">Install</h1>" in (folder / "index.html").read_text(encoding="utf-8")
    assert '"sbert.losses.CoSENTLoss.html"' in (folder / "sbert.losses.html").read_text(encoding="utf-8")
    page = (folder / "sbert.losses.CoSENTLoss.html").read_text(encoding="utf-8")
    assert "Shape</h6>" in page
    assert not list(folder.glob("*Signature*"))


def test_what_users_look_for_is_found_first(folder: Path) -> None:
    scripts = [(folder / name).read_text(encoding="utf-8") for name in ("search.js", "site.js")]
    with (site.TEMPLATES / "queries.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    ask = f"console.log(JSON.stringify({json.dumps([row['query'] for row in rows])}.map((query) => find(query)[0][1])))"
    found = subprocess.run(["node"], input="".join([*scripts, ask]), capture_output=True, text=True, check=True).stdout
    pages = [address.partition("#")[0] for address in json.loads(found)]
    assert dict(zip([row["query"] for row in rows], pages, strict=True)) == {row["query"]: row["page"] for row in rows}
