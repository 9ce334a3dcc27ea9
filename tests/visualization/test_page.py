"""The page of a map, as HTML and in a real browser."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sbert.visualization.map_page import map_page, parse_column
from sbert.visualization.projection import Neighbours
from sbert.visualization.topics import Topics
from tests.visualization import browser

NASTY = "</script><b>bold</b><!-- <script>alert(1)</script> __TITLE__ & \u2028 \x00 \"quoted\" 'and' \\u003c"
HEIGHT, PANEL = 800, 20 * 16  # Of the window, and how wide the panel is.


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
    nasty, plain_topics = (Topics([0, 1, 0], [name, "two"]) for name in (NASTY, "one"))
    page = map_page(texts, np.eye(3, 2), [nasty], columns={NASTY: [NASTY, 1, NASTY]}, title=NASTY, note=NASTY)
    plain = map_page(["a", "b", "c"], np.eye(3, 2), [plain_topics])
    assert Scripts(page).elements == Scripts(plain).elements
    data = json.loads(Scripts(page).scripts[0])
    assert data["texts"] == [NASTY, "half a pair: ?", "文장é"]
    assert data["levels"][0]["names"] == [NASTY, "two"]
    assert data["columns"][0]["names"] == [NASTY, "1"]
    assert page.encode("utf-8")
    assert "&lt;/script&gt;&lt;b&gt;bold" in page
    assert not re.search(r"https?:|//[a-z]+\.", plain)
    assert "connect-src 'none'" in plain


@pytest.mark.parametrize(
    ("points", "more", "message"),
    [
        (np.zeros((2, 3)), {}, r"points have shape \(2, 3\); pass \(2, 2\)"),
        ([[0, 0], [np.nan, 0]], {}, r"vectors\[1\] is not finite"),
        (np.eye(2), {"topics": [Topics([0], ["a"])]}, r"labels are array\(\[0\]\); pass 2 integers"),
        (np.eye(2), {"topics": [Topics([0, 1], ["one"])]}, "labels name 2 topics, and names 1"),
        (np.eye(2), {"columns": {"n": [1]}}, "there are 2 texts, and n has 1 rows"),
        (np.eye(2), {"columns": {"n": [1, 2]}, "color_by": "m"}, r"or categories; the columns: n \(number\)"),
    ],
)
def test_what_cannot_be_drawn(points: Any, more: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        map_page(["a", "b"], points, **more)
    with pytest.raises(ValueError, match="no texts"):
        map_page([], np.zeros((0, 2)))


def test_columns_are_what_all_of_their_values_can_be() -> None:
    for values, kind, parsed in [
        (["1", "2.5", ""], "f", [1, 2.5, np.nan]),
        (["2026-01-31", None], "M", ["2026-01-31", "NaT"]),
        (["2026-01-31T10:00:00+02:00"], "M", ["2026-01-31T08:00:00"]),
        (np.array(["2026-01-31", "NaT"], "M8[ns]"), "M", ["2026-01-31", "NaT"]),
        ([None, "", "nan"], "O", ["", "", ""]),
        (["inf", "2"], "O", ["inf", "2"]),
        (["007", "8"], "O", ["007", "8"]),
        ([10**400, 1], "O", [str(10**400), "1"]),
    ]:
        found = parse_column(values)
        assert found.dtype.kind == kind
        np.testing.assert_array_equal(found, np.array(parsed, found.dtype))
    columns = {"same": ["a"] * 6, "own": list("abcdef"), "some": ["b", "b", "a", "", "a", "b"], "far": [*range(5), 1e9]}
    columns |= {"none": [None] * 6, "nan": [np.nan] * 6, "long": ["a" * 1000, *"bbbbb"]}
    page = map_page(list("abcdef"), np.eye(6, 2), columns=columns)
    assert "NaN" not in Scripts(page).scripts[0]
    data = json.loads(Scripts(page).scripts[0])["columns"]
    kinds = ["category", "text", "category", "number", "category", "category", "text"]
    assert [column["kind"] for column in data] == kinds
    assert len(data[6]["values"][0]) == 240
    assert data[2]["names"] == ["b", "a"]


def test_a_page_is_written_as_other_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts of large maps are shortened."""
    monkeypatch.setattr(sys.modules["sbert.visualization.map_page"], "_CHARACTERS", 600)
    large = json.loads(Scripts(map_page(["a" * 400, "b"], np.eye(2))).scripts[0])["texts"]
    assert large == ["a" * 299 + "…", "b"]
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


def test_labels_stand_at_the_density_peak_of_their_own_cluster() -> None:
    points, labels = parted()
    topics = Topics(labels, ["parted", "middle", "scattered"])
    page = map_page([f"text {i}" for i in range(len(points))], points, [topics])
    peaks = json.loads(Scripts(page).scripts[0])["levels"][0]["peaks"]
    for label in (0, 1):
        nearest = np.square(points - points[peaks[label]]).sum(1).argsort()[:50]
        assert (labels[nearest] == label).mean() > 0.89
    # There is no place where most points are of the third, so no label may say so; and the page says that.
    assert peaks[2] == -1
    assert "1 topic is scattered among others, and named only in the legend." in page


# ----------------------------------------------------------------------------------------------------- a browser

ROWS = 20_000
FIRST = [NASTY, "The Red Fox", "a red boat", "lakes and boats", "café 문장", "C++ \u202e \x1b[31m"]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[browser.Browser]:
    """20,000 points of three topics, the first of which has two parts; points 0 to 4 stand apart from all others."""
    program = browser.find()
    if program is None:
        pytest.skip("there is no chromium; apt-get install chromium")
    random = np.random.default_rng(0)
    points = np.concatenate([[[-9, 9], [9, 9], [9, -9], [-9, -9], [0, 9]], random.normal(size=(ROWS - 5, 2))])
    labels = np.concatenate([[0, 1, 2, -1, 0], np.digitize(points[5:, 0], [-0.5, 0.5])])
    finer = np.where(labels == 0, np.where(points[:, 1] > 0, 0, 3), labels)
    topics = [Topics(labels, ["a, b", "c", NASTY]), Topics(finer, ["a", "c", NASTY, "b"])]
    days, ids = [f"2026-01-{row % 28 + 1:02}" for row in range(ROWS)], [f"id {row}" for row in range(ROWS)]
    columns = {"number": list(range(ROWS)), "kind": ["x", "y"] * (ROWS // 2), "day": days, "id": ids}
    near = (np.arange(ROWS)[:, None] + [1, 2]) % ROWS  # Each text is similar to the next two.
    neighbours = Neighbours(near, np.tile(np.float32([0.8, 0.6]), (ROWS, 1)))
    texts = [*FIRST, *(f"text {i}" for i in range(len(FIRST), ROWS))]
    folder = tmp_path_factory.mktemp("page")
    (folder / "map.html").write_text(map_page(texts, points, topics, neighbours, columns), encoding="utf-8")
    with browser.Browser(program, folder / "profile", (1200, HEIGHT)) as opened:
        opened.open(folder / "map.html")
        yield opened


@pytest.fixture
def fresh(page: browser.Browser) -> browser.Browser:
    """The page as it is at first."""
    page.key("Escape")
    page.run("document.activeElement.blur(), openDrawer(false), fit()")
    page.run("element('colour').value = 0, element('colour').dispatchEvent(new Event('change'))")
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


def legend(page: browser.Browser) -> list[str]:
    names: list[str] = page.run("[...document.querySelectorAll('#legend span')].map((x) => x.textContent)")
    return names


def listed(page: browser.Browser) -> list[str]:
    texts: list[str] = page.run("[...document.querySelectorAll('#hits span')].map((x) => x.textContent)")
    return texts


def lit(page: browser.Browser) -> list[int]:
    rows: list[int] = page.run("[...lit.keys()].filter((i) => lit[i])")
    return rows


def choose_colour(page: browser.Browser, name: str) -> None:
    page.run(f"[...element('colour').options].find((option) => option.textContent === '{name}').selected = true")
    page.run("element('colour').dispatchEvent(new Event('change'))")
    page.painted()


def pixel(page: browser.Browser, row: int) -> list[int]:
    colour: list[int] = page.run(f"(([x, y]) => [...context.getImageData(x, y, 1, 1).data])(toScreen({row}))")
    return colour


def test_all_points_are_drawn_and_nothing_is_fetched(fresh: browser.Browser) -> None:
    assert fresh.run("drawn") == ROWS
    assert fresh.run("element('count').textContent") == "20,000 texts"
    assert pixel(fresh, 0)[3] > 100
    assert pixel(fresh, 1)[:3] != pixel(fresh, 2)[:3]
    assert sorted(legend(fresh)) == sorted(["a, b", "c", NASTY])
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
    x, y = place(fresh, 4)
    fresh.mouse("mouseMoved", x + 60, y)
    assert shown(fresh) is None


def test_search_lights_and_lists_what_it_finds(fresh: browser.Browser) -> None:
    fresh.key("/")
    fresh.write("fox RED")  # In any order.
    fresh.painted()
    assert fresh.run("element('count').textContent") == "1 of 20,000 texts by words, 2 by meaning"
    assert (lit(fresh), listed(fresh)) == ([1, 2, 3], ["The Red Fox", "a red boat", "lakes and boats"])
    assert fresh.run("document.querySelector('#hits .rule').textContent") == "similar in meaning"
    assert fresh.run("drawn") == ROWS
    hit, other = pixel(fresh, 1), pixel(fresh, 4)
    assert max(other[:3]) - min(other[:3]) < 30 < max(hit[:3]) - min(hit[:3])  # Grey, and a colour.
    for text in ("The Red Fox", "a red boat", "lakes and boats", "The Red Fox"):
        fresh.key("Enter")
        assert shown(fresh) == text
    fresh.mouse("mouseMoved", *place(fresh, 4))
    assert shown(fresh) is None  # What the search leaves out says nothing.
    fresh.key("Escape")
    fresh.painted()
    assert fresh.run("[element('search').value, hits, drawn]") == ["", ROWS, ROWS]


def test_words_have_stems_and_may_be_unfinished(fresh: browser.Browser) -> None:
    found = {"boat": [2, 3], "Boats, red": [2], "lak": [3], "문": [4], "CAFÉ": [4], "c++": [5], "</script>": [0]}
    for query, rows in found.items():
        assert sorted(fresh.run(f"withWords({query!r})")) == rows, query
    ranked = fresh.run("['red red fox', 'a red fox', 'a redder fox'].map((text) => relevance(text, ['red']))")
    assert ranked[0] > ranked[1] > ranked[2]
    assert fresh.run("['bus', 'class', 'this', 'red', 'ring'].map(stem)") == ["bus", "clas", "this", "red", "ring"]


def test_a_click_pins_a_text_and_lists_what_is_similar(fresh: browser.Browser) -> None:
    fresh.click(*place(fresh, 1))
    fresh.painted()
    assert fresh.run("element('heading').textContent") == "more like this"
    assert listed(fresh) == ["a red boat", "lakes and boats"]
    scores = fresh.run("[...document.querySelectorAll('#hits small')].map((x) => x.textContent)")
    assert scores == ["0.80", "0.60"]
    card = fresh.run("[...element('card').children].map((x) => x.textContent)")
    assert card == ["The Red Fox", "c › c", "number: 1", "kind: y", "day: 2026-01-02", "id: id 1"]
    fresh.click(PANEL + 200, 600)
    assert fresh.run("element('reading').hidden")


def test_columns_colour_and_filter(fresh: browser.Browser) -> None:
    assert fresh.run("[...element('colour').options].map((x) => x.textContent)") == ["topics", "number", "kind", "day"]
    topics = [pixel(fresh, row) for row in (1, 2)]
    choose_colour(fresh, "number")
    assert [pixel(fresh, row) for row in (1, 2)] != topics
    assert pixel(fresh, 0) == pixel(fresh, 1)  # The same end of the scale.
    assert legend(fresh) == []
    fresh.run("element('low').value = 500, element('low').dispatchEvent(new Event('input'))")
    middle = sum(row >= 9999.5 for row in range(ROWS))
    assert fresh.run("hits") == middle
    assert fresh.run("element('count').textContent") == f"{middle:,} of 20,000 texts"
    choose_colour(fresh, "kind")
    assert legend(fresh) == ["x", "y"]
    fresh.run("document.querySelectorAll('#legend button')[1].click()")
    assert fresh.run("hits") == middle / 2  # Both filters hold.
    choose_colour(fresh, "day")
    assert fresh.run("element('bounds').textContent") == "2026-01-01 to 2026-01-28 (day)"
    fresh.key("Escape")
    assert fresh.run("hits") == ROWS


def test_an_area_is_selected_and_saved(fresh: browser.Browser) -> None:
    fresh.key("s")
    x, y = place(fresh, 1)
    corners = [(x - 40, y - 30), (x + 20, y - 30), (x + 20, y + 40), (x - 40, y + 40)]
    fresh.mouse("mousePressed", *corners[0], button="left", clickCount=1)
    for corner in corners[1:]:
        fresh.mouse("mouseMoved", *corner, button="left", buttons=1)
    fresh.mouse("mouseReleased", *corners[-1], button="left", clickCount=1)
    assert lit(fresh) == [1]
    assert fresh.run("selecting") is False
    lines = fresh.run("csv()").split("\r\n")
    assert lines[0] == '"text","topic 1","topic 2","number","kind","day","id"'
    assert lines[1:] == ['"The Red Fox","c","c","1","y","2026-01-02","id 1"', ""]
    assert fresh.run("(save(), document.querySelectorAll('a').length)") == 0
    fresh.run("element('clear').click()")
    assert fresh.run("hits") == ROWS


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


def test_the_legend_shows_one_topic_and_keys_reach_everything(fresh: browser.Browser) -> None:
    fresh.run("element('search').focus()")
    reached = []
    for _ in range(12):
        fresh.key("Tab")
        reached.append(fresh.run("document.activeElement.id || document.activeElement.children[1]?.textContent"))
    buttons = ["colour", *legend(fresh), "lasso", "save", "map", "in", "out", "all"]
    assert [name for name in reached if name in buttons][: len(buttons)] == buttons
    second = "[...document.querySelectorAll('#legend button')].find((x) => x.children[1].textContent === 'c')"
    fresh.run(f"{second}.focus()")
    fresh.key("Enter")
    labels = fresh.run("[...levels[0].labels]")
    assert fresh.run("hits") == labels.count(1)
    assert fresh.run("document.querySelectorAll('#legend [aria-pressed=true]').length") == 1
    assert fresh.run("document.activeElement.children[1].textContent") == "c"
    fresh.run(f"{second}.click()")
    assert fresh.run("hits") == ROWS


def test_the_panel_collapses_when_the_window_becomes_narrow(fresh: browser.Browser) -> None:
    """In a narrow window it lies over the map: a line with the search, and on request most of the height."""

    def heights() -> tuple[int, bool]:
        """That of the panel, and whether there is a legend."""
        fresh.painted()
        return fresh.run("element('panel').offsetHeight"), fresh.run("element('legend').offsetHeight > 0")

    fresh.run("element('search').focus()")  # Which opens the panel.
    assert heights() == (HEIGHT, True)
    try:
        fresh.resize(600, HEIGHT)
        height, legend = heights()
        assert (height < HEIGHT / 6, legend) == (True, False)
        fresh.run("element('drawer').click()")
        assert heights() == (HEIGHT * 3 / 4, True)
    finally:
        fresh.resize(1200, HEIGHT)
    assert heights() == (HEIGHT, True)


def test_nothing_went_wrong(page: browser.Browser) -> None:
    """After all of the above: no error on the console, but the one refusal that was asked for."""
    entries: list[dict[str, Any]] = [entry["entry"] for entry in page.of("Log.entryAdded")]
    # That pixels are read back slowly is the tests' doing.
    expected = ("127.0.0.1:9", "Canvas2D: Multiple readback")
    said = [entry["text"] + entry.get("url", "") for entry in entries]
    assert [text for text in said if not any(part in text for part in expected)] == []
    assert page.of("Runtime.exceptionThrown") == []
    assert [call["args"] for call in page.of("Runtime.consoleAPICalled")] == []
