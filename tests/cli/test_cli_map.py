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

from sbert import Normalize, Pooling, SentenceEncoder, Transformer
from sbert.cli.main import main
from sbert.search import topic_words
from tests import small

TEXTS = [f"{text} {number}" for number in ("one", "two", "three") for text in small.CORPUS]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("map") / "model"
    reader = Transformer(small.bert_model(), small.wrapped(small.wordpiece(), 64))
    SentenceEncoder(reader, Pooling("mean"), Normalize(), device="cpu").save(folder)
    return str(folder)


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    path = tmp_path / "texts <b>.txt"
    path.write_text("\n".join([*TEXTS, "", "  "]), encoding="utf-8")
    return path


def data(page: Path) -> dict[str, Any]:
    """What the page draws."""
    found: Any = re.search('type="application/json">(.*?)</script>', page.read_text(encoding="utf-8"), re.DOTALL)
    values = json.loads(found[1])
    points = np.frombuffer(base64.b64decode(values["points"]), "<f4").reshape(-1, 2)
    return {**values, "points": points, "labels": np.frombuffer(base64.b64decode(values["labels"]), "<i4")}


def test_a_page_of_a_file(model: str, texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "map.html"
    page.write_text("old", encoding="utf-8")
    assert main(["map", model, str(texts), "-o", str(page), "--clusters", "4"]) == 0
    assert capsys.readouterr().out == f"{page}: 12 texts, laid out by t-SNE\n"
    found = data(page)
    assert found["texts"] == TEXTS
    sizes = np.bincount(found["labels"])
    words = topic_words(TEXTS, found["labels"], 3)
    assert found["names"] == [", ".join(words[label]) for label in range(4)]
    assert all(name.count(", ") == 2 for name in found["names"])
    assert len(sizes) == 4
    assert (np.diff(sizes) <= 0).all()
    assert np.abs(found["points"]).max() == pytest.approx(1, abs=1e-6)
    (tmp_path / "ordinary").touch()
    assert page.stat().st_mode == (tmp_path / "ordinary").stat().st_mode
    (tmp_path / "ordinary").unlink()
    assert "<title>texts &lt;b&gt;.txt</title>" in page.read_text(encoding="utf-8")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["map.html", texts.name]
    assert main(["map", model, str(texts), "-o", str(page), "--clusters", "0", "--title", "T", "--quiet"]) == 0
    assert capsys.readouterr().out == ""
    assert (data(page)["names"], set(data(page)["labels"])) == ([], {-1})


def test_without_scikit_learn(
    model: str, texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("sklearn.cluster", "sklearn.manifold"):
        monkeypatch.setitem(sys.modules, name, None)
    page = tmp_path / "map.html"
    assert main(["map", model, str(texts), "-o", str(page)]) == 0
    assert data(page)["names"] == []
    assert main(["map", model, str(texts), "-o", str(page), "--clusters", "3"]) == 2
    assert 'pip install "sbert[cluster]"' in capsys.readouterr().err


def test_errors_leave_the_old_page(
    model: str, texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page, empty = tmp_path / "map.html", tmp_path / "empty.txt"
    page.write_text("old", encoding="utf-8")
    empty.write_text("\n \n", encoding="utf-8")
    for words, message in (
        ([str(texts), "-o", str(tmp_path / "no" / "map.html")], "the folder .* does not exist; create it"),
        ([str(texts), "-o", str(tmp_path)], "is a folder; name a file"),
        ([str(texts), "-o", str(page), "--clusters", "-1"], "argument --clusters: '-1' is not possible"),
        ([str(texts), "-o", str(page), "--method", "som"], "invalid choice: 'som'"),
        ([str(empty), "-o", str(page)], "contains no text"),
        ([str(tmp_path / "none.txt"), "-o", str(page)], "none.txt does not exist"),
    ):
        assert main(["map", model, *words]) == 2
        assert re.search(message, capsys.readouterr().err)
    monkeypatch.setattr("sbert.storage.files.os.fsync", lambda _: (_ for _ in ()).throw(OSError("no room")))
    assert main(["map", model, str(texts), "-o", str(page)]) == 2
    assert "no room" in capsys.readouterr().err
    assert page.read_text(encoding="utf-8") == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty.txt", "map.html", texts.name]
