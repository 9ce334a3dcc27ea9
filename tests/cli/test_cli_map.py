"""``sbert map`` writes a page, whole or not at all."""

from __future__ import annotations

import base64
import json
import re
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import numpy as np
import pytest

from sbert.visualization.map_page import read_page
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
    assert run("map", folder, texts, "-o", page, "--topics", "0", "--title", "T", "--quiet") == (0, "", "")
    assert data(page)["levels"] == []


def test_columns_and_an_image(folder: Path, table: Path, run: Run) -> None:
    arguments = ["map", folder, table, "--column", "text", "--columns", "number", "--color-by", "day"]
    code, out, _ = run(*arguments, "-o", "map.html", "--image", "map.svg")
    assert code == 0
    assert re.fullmatch(
        r"map.html: 60 texts, laid out by t-SNE; keeps \d+% of the 15 nearest texts, .*", out.split("\n")[0]
    )
    found = data(Path("map.html"))
    assert [(column["name"], column["kind"]) for column in found["columns"]] == [("number", "number"), ("day", "date")]
    assert found["colour"] == "day"
    assert "<svg" in Path("map.svg").read_text(encoding="utf-8")
    code, _, error = run(*arguments[:-1], "text", "-o", "map.html")
    assert (code, "color_by='text' is no column of" in error or "--color-by" in error) == (2, True)
    assert run("map", folder, table, "--column", "text")[2].startswith("sbert: error: there is no output; pass -o FILE")


def test_new_texts_on_an_old_map(folder: Path, table: Path, run: Run) -> None:
    assert run("map", folder, table, "--column", "text", "-o", "old.html")[0] == 0
    Path("new.txt").write_text("cats sleep 100\ntaxes rise 101\n", encoding="utf-8")
    code, out, error = run("map", folder, "new.txt", "--onto", "old.html", "-o", "new.html", "--color-by", "new")
    assert (code, "62 texts, laid out by that of old.html, with 2 new texts" in out) == (0, True), error
    old, old_points, old_topics = read_page("old.html")
    with pytest.warns(UserWarning, match=r"new.html has columns \(new\), which are left out"):
        texts, points, topics = read_page("new.html")
    assert texts == [*old, "cats sleep 100", "taxes rise 101"]
    np.testing.assert_allclose(points[:60], old_points, atol=1e-4)
    for row, group in ((60, 0), (61, 1)):
        distances = np.linalg.norm(points[:60] - points[row], axis=1)
        assert (distances.argsort()[:5] % 2 == group).all()
    assert [level.names for level in topics] == [level.names for level in old_topics]
    for option in (("--method", "pca"), ("--topics", "3")):
        error = run("map", folder, "new.txt", "--onto", "old.html", "-o", "x.html", *option)[2]
        assert "--onto takes the layout and topics of the old page; leave --method and --topics out" in error
    error = run("map", folder, "new.txt", "--onto", "new.html", "-o", "x.html")[2]
    assert "new.html has columns (new), which are left out" in error
    assert "--serve 70000: " in run("map", folder, "new.txt", "--serve", "70000")[2]


@pytest.mark.slow  # A server is a process of its own.
def test_a_map_is_served_on_this_machine_alone(folder: Path, table: Path) -> None:
    command = [sys.executable, "-m", "sbert", "map", str(folder), str(table), "--column", "text", "--serve", "0"]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # Jobs in the background ignore Ctrl-C.
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        address = re.match(r"http://127.0.0.1:\d+", line)
        assert address is not None, line
        page = urlopen(f"{address[0]}/").read().decode()
        assert "connect-src 'self'" in page
        hits = json.loads(urlopen(f"{address[0]}/search?query=cats%20sleep%202").read())
        assert len(hits) == 50
        assert [row % 2 for row, _ in hits[:8]] == [0] * 8
        assert all(a[1] >= b[1] for a, b in pairwise(hits))
        for path, headers, status in (("/x", {}, 404), ("/", {"Host": "example.org"}, 403)):
            with pytest.raises(HTTPError) as raised:
                urlopen(Request(address[0] + path, headers=headers))
            assert raised.value.code == status
            raised.value.close()
        process.send_signal(signal.SIGINT)
        assert process.wait(120) == 130
    finally:
        process.kill()
        process.wait()
        process.stdout.close()  # type: ignore[union-attr]


def test_without_open_tsne(folder: Path, texts: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openTSNE", None)
    code, out, _ = run("map", folder, texts, "-o", "map.html")
    assert (code, "laid out by PCA, because t-SNE needs openTSNE" in out) == (0, True)
    assert data(Path("map.html"))["levels"] == []


def test_a_full_disk_leaves_the_old_page(folder: Path, texts: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("map.html").write_text("old", encoding="utf-8")
    monkeypatch.setattr("sbert.storage.files.os.fsync", lambda _: (_ for _ in ()).throw(OSError("no room")))
    code, _, error = run("map", folder, texts, "-o", "map.html")
    assert (code, "no room" in error) == (2, True)
    assert Path("map.html").read_text(encoding="utf-8") == "old"
    assert sorted(path.name for path in texts.parent.iterdir()) == ["map.html", texts.name]
