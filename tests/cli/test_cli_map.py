"""``sbert map`` writes a page, whole or not at all."""

from __future__ import annotations

import base64
import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sbert.search import topic_words
from tests.cli.conftest import TEXTS, Run

TITLE = "texts <b>.txt"


def data(page: Path) -> dict[str, Any]:
    """What the page draws."""
    found: Any = re.search('type="application/json">(.*?)</script>', page.read_text(encoding="utf-8"), re.DOTALL)
    values = json.loads(found[1])
    points = np.frombuffer(base64.b64decode(values["points"]), "<f4").reshape(-1, 2)
    return {**values, "points": points, "labels": np.frombuffer(base64.b64decode(values["labels"]), "<i4")}


def test_a_page_of_a_file(folder: Path, texts: Path, run: Run) -> None:
    page, texts = texts.with_name("map.html"), texts.rename(texts.with_name(TITLE))
    page.write_text("old", encoding="utf-8")
    assert run("map", folder, texts, "-o", page, "--clusters", "4")[1] == f"{page}: 12 texts, laid out by t-SNE\n"
    found = data(page)
    assert found["texts"] == TEXTS
    sizes = np.bincount(found["labels"])
    words = topic_words(TEXTS, found["labels"], 3)
    assert found["names"] == [", ".join(words[label]) for label in range(4)]
    assert all(name.count(", ") == 2 for name in found["names"])
    assert len(sizes) == 4
    assert (np.diff(sizes) <= 0).all()
    assert np.abs(found["points"]).max() == pytest.approx(1, abs=1e-6)
    assert page.stat().st_mode == texts.stat().st_mode
    assert "<title>texts &lt;b&gt;.txt</title>" in page.read_text(encoding="utf-8")
    assert sorted(path.name for path in page.parent.iterdir()) == ["map.html", TITLE]
    assert run("map", folder, texts, "-o", page, "--clusters", "0", "--title", "T", "--quiet") == (0, "", "")
    assert (data(page)["names"], set(data(page)["labels"])) == ([], {-1})


def test_without_scikit_learn(folder: Path, texts: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("sklearn.cluster", "sklearn.manifold"):
        monkeypatch.setitem(sys.modules, name, None)
    assert run("map", folder, texts, "-o", "map.html")[0] == 0
    assert data(Path("map.html"))["names"] == []
    code, _, error = run("map", folder, texts, "-o", "map.html", "--clusters", "3")
    assert (code, 'pip install "sbert[cluster]"' in error) == (2, True)


def test_a_full_disk_leaves_the_old_page(folder: Path, texts: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("map.html").write_text("old", encoding="utf-8")
    monkeypatch.setattr("sbert.storage.files.os.fsync", lambda _: (_ for _ in ()).throw(OSError("no room")))
    code, _, error = run("map", folder, texts, "-o", "map.html")
    assert (code, "no room" in error) == (2, True)
    assert Path("map.html").read_text(encoding="utf-8") == "old"
    assert sorted(path.name for path in texts.parent.iterdir()) == ["map.html", texts.name]
