"""The page of a map, as HTML and in a real browser."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sbert.visualization.map_page import map_page
from tests.visualization import browser

NASTY = "</script><b>bold</b><!-- <script>alert(1)</script> __TITLE__ & \u2028 \x00 \"quoted\" 'and' \\u003c"
HEIGHT, PANEL = 800, 17 * 16  # Of the window, and how wide the panel is.


class Scripts(HTMLParser):
    """What a browser takes for scripts and elements."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.scripts: list[str] = []
        self.elements: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self.elements and self.elements[-1] == "script":
            self.scripts[-1] += data


def test_no_text_ends_the_script() -> None:
    texts = [NASTY, "half a pair: \ud83d", "文장é"]
    page = map_page(texts, np.eye(3, 2), [0, 1, 0], names=[NASTY, "two"], title=NASTY)
    plain = map_page(["a", "b", "c"], np.eye(3, 2), [0, 1, 0], names=["one", "two"])
    assert Scripts(page).elements == Scripts(plain).elements
    data = json.loads(Scripts(page).scripts[0])
    assert data["texts"] == [NASTY, "half a pair: ?", "文장é"]
    assert data["names"] == [NASTY, "two"]
    assert page.encode("utf-8")
    assert "&lt;/script&gt;&lt;b&gt;bold" in page
    assert not re.search(r"https?:|//[a-z]+\.", plain)


@pytest.mark.parametrize(
    ("points", "more", "message"),
    [
        (np.zeros((2, 3)), [], r"points have shape \(2, 3\); pass \(2, 2\)"),
        ([[0, 0], [np.nan, 0]], [], r"vectors\[1\] is not finite"),
        (np.eye(2), [[0]], r"labels are array\(\[0\]\); pass 2 integers"),
        (np.eye(2), [np.array([0.0, 1.0])], r"labels are array\(\[0., 1.\]\); pass 2 integers"),
        (np.eye(2), [[0, -2]], r"labels are array\(\[ 0, -2\]\); pass 2 integers, -1 for"),
        (np.eye(2), [[0, 1], ["one"]], "labels name 2 clusters, and names 1"),
    ],
)
def test_what_cannot_be_drawn(points: Any, more: list[Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        map_page(["a", "b"], points, *more)
    with pytest.raises(ValueError, match="no texts"):
        map_page([], np.zeros((0, 2)))


def test_a_page_is_written_as_other_pictures(tmp_path: Path) -> None:
    texts, path = ["a cat", "half a pair: \ud83d"], tmp_path / "map.html"
    path.write_text("old")
    page = map_page(texts, np.eye(2), path=path)
    assert page == map_page(texts, np.eye(2))
    assert path.read_bytes() == page.encode()
    with pytest.raises(FileNotFoundError):
        map_page(texts, np.eye(2), path=tmp_path / "no" / "map.html")
    with pytest.raises(TypeError, match=r"map_page\(\) takes no argument 'file'"):
        map_page(texts, np.eye(2), file=str(path))  # type: ignore[call-arg]
    assert [each.name for each in tmp_path.iterdir()] == ["map.html"]


def parted() -> tuple[np.ndarray, np.ndarray]:
    """Points of three clusters: the median of the first lies where the second is, and the third is scattered."""
    random = np.random.default_rng(0)
    parts = ((70, -6), (3, 0), (70, 6), (100, 0))
    blobs = [random.normal(size=(n, 2)) * 0.6 + (middle, 0) for n, middle in parts]
    scattered = random.uniform((-7, -2), (7, 2), (30, 2))
    labels = np.repeat([0, 0, 0, 1, 2], [70, 3, 70, 100, 30])
    return np.concatenate([*blobs, scattered]).astype(np.float32), labels


def own_share(points: np.ndarray, labels: np.ndarray, label: int, at: Any) -> float:
    """The part of the 50 points nearest to another that belong to a cluster."""
    nearest = np.square(points - at).sum(1).argsort()[:50]
    return float((labels[nearest] == label).mean())


def test_labels_stand_at_the_density_peak_of_their_own_cluster() -> None:
    points, labels = parted()
    assert own_share(points, labels, 0, np.median(points[labels == 0], axis=0)) < 0.1  # Else any place would do.
    page = map_page([f"text {i}" for i in range(len(points))], points, labels, ["parted", "middle", "scattered"])
    peaks = json.loads(Scripts(page).scripts[0])["peaks"]
    for label in (0, 1):
        assert labels[peaks[label]] == label
        assert own_share(points, labels, label, points[peaks[label]]) > 0.5
    # There is no place where most points are of the third, so no label may say so; and the page says that.
    assert peaks[2] == -1
    assert "1 cluster is scattered among others, and named only in the legend." in page


# ----------------------------------------------------------------------------------------------------- a browser

ROWS = 20_000


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[browser.Browser]:
    """20,000 points in three clusters; points 0 to 4 stand apart from all others."""
    program = browser.find()
    if program is None:
        pytest.skip("there is no chromium; apt-get install chromium")
    random = np.random.default_rng(0)
    points = np.concatenate([[[-9, 9], [9, 9], [9, -9], [-9, -9], [0, 9]], random.normal(size=(ROWS - 5, 2))])
    labels = np.concatenate([[0, 1, 2, -1, 0], random.integers(0, 3, ROWS - 5)])
    texts = [NASTY, "The Red Fox", "a red boat", "a LAKE", "café 문장", *(f"text {i}" for i in range(5, ROWS))]
    folder = tmp_path_factory.mktemp("page")
    (folder / "map.html").write_text(map_page(texts, points, labels, ["a, b", "c", NASTY]), encoding="utf-8")
    with browser.Browser(program, folder / "profile", (1200, HEIGHT)) as opened:
        opened.open(folder / "map.html")
        yield opened


@pytest.fixture
def fresh(page: browser.Browser) -> browser.Browser:
    """The page as it is at first."""
    page.key("Escape")
    page.run("document.activeElement.blur(), fit()")
    page.painted()
    return page


def place(page: browser.Browser, row: int) -> tuple[float, float]:
    """Where in the window a point stands."""
    x, y = page.run(f"toScreen({row})")
    return x + PANEL, y


def shown(page: browser.Browser) -> str | None:
    """What the tip says, if there is one."""
    said: str | None = page.run("tip.hidden ? null : tip.firstChild.textContent")
    return said


def pixel(page: browser.Browser, row: int) -> list[int]:
    colour: list[int] = page.run(f"(([x, y]) => [...context.getImageData(x, y, 1, 1).data])(toScreen({row}))")
    return colour


def test_all_points_are_drawn_and_nothing_is_fetched(fresh: browser.Browser) -> None:
    assert fresh.run("drawn") == ROWS
    assert fresh.run("element('count').textContent") == "20,000 texts"
    assert pixel(fresh, 0)[3] > 100
    assert pixel(fresh, 1)[:3] != pixel(fresh, 2)[:3]
    assert fresh.run("[...document.querySelectorAll('#legend span')].map((x) => x.textContent)") == ["a, b", "c", NASTY]
    # Nothing of the texts has become part of the page.
    assert fresh.run("document.querySelectorAll('b').length") == 0
    asked = [request["request"]["url"] for request in fresh.of("Network.requestWillBeSent")]
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    assert fresh.run("fetch('http://127.0.0.1:9/').then(() => 'fetched', () => 'refused')") == "refused"


def test_hover_says_what_a_point_is(fresh: browser.Browser) -> None:
    for row, text in ((0, NASTY), (4, "café 문장"), (1, "The Red Fox")):
        x, y = place(fresh, row)
        fresh.mouse("mouseMoved", x + 3, y + 2)
        fresh.painted()
        assert shown(fresh) == text
        left, top, right, bottom = fresh.run(
            "(({left, top, right, bottom}) => [left, top, right, bottom])(tip.getBoundingClientRect())"
        )
        assert PANEL <= left < right <= 1200
        assert 0 <= top < bottom <= HEIGHT
        assert not (left <= x <= right and top <= y <= bottom)
    fresh.mouse("mouseMoved", *place(fresh, 4))
    x, y = place(fresh, 4)
    fresh.mouse("mouseMoved", x + 60, y)
    assert shown(fresh) is None
    for row in range(5):
        for right, down in ((8, 0), (-8, 0), (0, 8), (0, -8)):
            assert fresh.run(f"(([x, y]) => nearest(x + {right}, y + {down}))(toScreen({row}))") == row
    # The grid finds what a look at every point finds.
    slow = """(([x, y]) => { let best = -1, least = Infinity; for (let i = 0; i < count; i += 1) {
        const [u, v] = toScreen(i), d = Math.hypot(u - x, v - y); if (d < least) { least = d; best = i; } }
        return [best, least, nearest(x, y)]; })"""
    for x, y in np.random.default_rng(1).uniform((0, 0), (900, 800), (40, 2)).tolist():
        best, distance, found = fresh.run(f"{slow}([{x}, {y}])")
        assert found == (best if distance <= fresh.run("radius() + 8") else -1)


def test_search_marks_what_it_finds(fresh: browser.Browser) -> None:
    fresh.key("/")
    fresh.write("RED")
    fresh.painted()
    assert fresh.run("[...lit.keys()].filter((i) => lit[i])") == [1, 2]
    assert fresh.run("element('count').textContent") == "2 of 20,000 texts"
    assert fresh.run("drawn") == ROWS
    hit, other = pixel(fresh, 1), pixel(fresh, 4)
    assert max(other[:3]) - min(other[:3]) < 30 < max(hit[:3]) - min(hit[:3])  # Grey, and a colour.
    for text in ("The Red Fox", "a red boat", "The Red Fox"):
        fresh.key("Enter")
        assert shown(fresh) == text
    fresh.mouse("mouseMoved", *place(fresh, 4))
    assert shown(fresh) is None  # What the search leaves out says nothing.
    fresh.write(" no such text")
    assert fresh.run("element('count').textContent") == "0 of 20,000 texts"
    fresh.key("Enter")
    assert shown(fresh) is None
    fresh.key("Escape")
    fresh.painted()
    assert fresh.run("[element('search').value, hits, drawn]") == ["", ROWS, ROWS]


def test_zoom_and_drag_change_the_view(fresh: browser.Browser) -> None:
    before = fresh.run("({...view})")
    x, y = place(fresh, 1)
    fresh.mouse("mouseWheel", x, y, deltaX=0, deltaY=-600)
    fresh.painted()
    assert fresh.run("view.scale") > 2 * before["scale"]
    np.testing.assert_allclose(place(fresh, 1), (x, y), atol=0.01)  # What is under the mouse stays there.
    assert fresh.run("drawn") < ROWS
    fresh.mouse("mouseMoved", x, y)
    assert shown(fresh) == "The Red Fox"
    fresh.drag((700, 400), (650, 430))
    np.testing.assert_allclose(place(fresh, 1), (x - 50, y + 30), atol=0.01)
    fresh.click(*fresh.run("(({x, y}) => [x + 5, y + 5])(element('all').getBoundingClientRect())"))
    fresh.painted()
    assert fresh.run("({...view})") == before
    for key, change in (("+", 1.5), ("-", 1 / 1.5)):
        fresh.run("fit()")
        fresh.key(key)
        assert fresh.run("view.scale") == pytest.approx(before["scale"] * change)
    fresh.run("fit()")
    fresh.key("ArrowLeft")
    assert fresh.run("view.x") < before["x"]
    fresh.key("0")
    assert fresh.run("({...view})") == before


def test_the_legend_shows_one_cluster_and_keys_reach_everything(fresh: browser.Browser) -> None:
    fresh.run("element('search').focus()")
    reached = []
    for _ in range(8):
        fresh.key("Tab")
        reached.append(fresh.run("document.activeElement.id || document.activeElement.textContent.slice(0, 4)"))
    assert [name for name in reached if name in ("map", "in", "out", "all")] == ["map", "in", "out", "all"]
    assert reached[0].startswith("a, b")
    fresh.run("document.querySelectorAll('#legend button')[1].focus()")
    fresh.key("Enter")
    labels = fresh.run("[...labels]")
    assert fresh.run("hits") == labels.count(1)
    assert fresh.run("document.querySelectorAll('[aria-pressed=true]').length") == 1
    fresh.run("canvas.focus()")
    fresh.key("n")
    assert shown(fresh) == "The Red Fox"
    fresh.key("n")
    assert fresh.run("labels[current]") == 1
    fresh.key("p")
    assert shown(fresh) == "The Red Fox"
    fresh.run("document.querySelectorAll('#legend button')[1].click()")
    assert fresh.run("hits") == ROWS


def test_nothing_went_wrong(page: browser.Browser) -> None:
    """After all of the above: no error on the console, but the one refusal that was asked for."""
    entries: list[dict[str, Any]] = [entry["entry"] for entry in page.of("Log.entryAdded")]
    # That pixels are read back slowly is the tests' doing.
    expected = ("127.0.0.1:9", "Canvas2D: Multiple readback")
    said = [entry["text"] + entry.get("url", "") for entry in entries]
    assert [text for text in said if not any(part in text for part in expected)] == []
    assert page.of("Runtime.exceptionThrown") == []
    assert [call["args"] for call in page.of("Runtime.consoleAPICalled")] == []
