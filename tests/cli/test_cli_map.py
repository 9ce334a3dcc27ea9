"""``sbert map`` writes a page, whole or not at all."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.conftest import TEXTS, Run

TITLE = "texts <b>.txt"


def data(page: Path) -> dict[str, Any]:
    """What the page draws."""
    found: Any = re.search('type="application/json">(.*?)</script>', page.read_text(encoding="utf-8"), re.DOTALL)
    return json.loads(found[1])  # type: ignore[no-any-return]


@pytest.fixture
def table(texts: Path) -> Path:
    """60 texts in two groups, with columns."""
    lines = [f"{('cats sleep', 'taxes rise')[row % 2]} {row},{row % 3},2026-01-{row % 28 + 1:02}" for row in range(60)]
    path = texts.with_name("table.csv")
    path.write_text("\n".join(["text,number,day", *lines]), encoding="utf-8")
    return path


def test_a_page_of_a_file(folder: Path, texts: Path, run: Run) -> None:
    page, texts = texts.with_name("map.html"), texts.rename(texts.with_name(TITLE))
    page.write_text("old", encoding="utf-8")
    assert run("map", folder, texts, "-o", page)[1] == f"{page}: 12 texts, laid out by t-SNE\n"
    found = data(page)
    assert found["texts"] == TEXTS
    assert found["neighbours"]["size"] == 10
    points = np.frombuffer(base64.b64decode(found["points"]), "<u2")
    assert (points.min(), points.max()) == (0, 65535)
    assert page.stat().st_mode == texts.stat().st_mode
    assert "<title>texts &lt;b&gt;.txt</title>" in page.read_text(encoding="utf-8")
    assert sorted(path.name for path in page.parent.iterdir()) == ["map.html", TITLE]
    assert run("map", folder, texts, "-o", page, "--topics", "0", "--quiet") == (0, "", "")
    assert data(page)["levels"] == []


def test_columns_and_an_image(folder: Path, table: Path, run: Run) -> None:
    arguments = ["map", folder, table, "--column", "text", "--columns", "number", "--color-by", "day"]
    code, out, _ = run(*arguments, "-o", "map.html", "--image", "map.svg")
    assert code == 0
    assert out.splitlines() == [f"map.{name}: 60 texts, laid out by t-SNE" for name in ("html", "svg")]
    found = data(Path("map.html"))
    assert [(column["name"], column["kind"]) for column in found["columns"]] == [("number", "number"), ("day", "date")]
    assert found["colour"] == "day"
    assert "<svg" in Path("map.svg").read_text(encoding="utf-8")
    code, _, error = run(*arguments[:-1], "text", "-o", "map.html")
    assert (code, "color_by='text' is not a column of" in error or "--color-by" in error) == (2, True)
    assert run("map", folder, table, "--column", "text")[2].startswith("sbert: error: there is no output; pass -o FILE")
