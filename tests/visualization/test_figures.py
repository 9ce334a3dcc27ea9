"""Pictures lie in the caller's axes, say what they cannot write, and can be told apart by all readers on any ground."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_hex, to_rgb
from matplotlib.font_manager import fontManager

from sbert.visualization import similarity_heatmap, training_curves
from sbert.visualization.drawing import COLOURS, style_of

SENTENCES = ["A long sentence about a cat that sleeps.", "It costs $5.", "Taxes go up and up, every year.", "No."]
HISTORY: list[dict[str, Any]] = [
    *({"step": step, "loss": 1 / step, "learning_rate": 1e-5} for step in (1, 2, 3)),
    *({"step": step, "evaluation": {f"score {i}": 0.1 * i + step / 50 for i in range(6)}} for step in (0, 3)),
]
DRAWN: dict[str, Any] = {
    "heat map": lambda **options: similarity_heatmap(SENTENCES, np.eye(4), **options),
    "many rows": lambda **options: similarity_heatmap(SENTENCES * 8, np.eye(32), **options),
    "curves": lambda **options: training_curves(HISTORY, **options),
}


@pytest.fixture(autouse=True)
def close() -> Iterator[None]:
    plt.close("all")  # Those of other tests.
    yield
    plt.close("all")


@pytest.mark.parametrize("draw", DRAWN.values(), ids=DRAWN)
@pytest.mark.parametrize("style", ["default", "dark_background"])
def test_the_axes_of_the_caller(draw: Any, style: str, tmp_path: Path) -> None:
    """Side by side, nothing lies outside the figure; its ground is opaque, and has another colour than the letters."""
    with plt.style.context(style):
        figure, axes = plt.subplots(1, 2, figsize=(12, 5))
        assert draw(ax=axes[0]) is figure
        assert draw(ax=axes[1], path=tmp_path / "both.png") is figure
        assert (tmp_path / "both.png").stat().st_size > 5000
        box = figure.get_tightbbox()
        assert (box.x0, box.y0) >= (-0.01, -0.01)
        assert (box.x1, box.y1) <= (12.01, 5.01)
        left, right = ([axis.get_tightbbox() for axis in figure.axes if side(axis, figure) == i] for i in (0, 1))
        assert max(box.x1 for box in left) <= min(box.x0 for box in right), "they do not overlap"
        alone = draw()
        assert alone is not figure
        assert plt.get_fignums() == [figure.number]  # A notebook shows what pyplot does not know once.
        for one in (figure, alone):
            assert one.get_facecolor()[3] == 1
            ground = one.get_facecolor()[:3]
            letters = [label for axis in one.axes for label in (*axis.get_xticklabels(), *axis.get_yticklabels())]
            assert min(contrast(to_rgb(label.get_color()), ground) for label in letters) > 3


def side(axis: Any, figure: Any) -> int:
    return int(axis.get_window_extent().x0 > figure.bbox.width / 2)


def test_axes_that_cannot_be_used() -> None:
    with pytest.raises(TypeError, match=r"ax is of type Figure; pass axes of matplotlib, such as one of plt"):
        training_curves(HISTORY, ax=plt.figure())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="ax has a place of its own, which cannot be split; pass axes of a grid"):
        training_curves(HISTORY, ax=plt.figure().add_axes((0, 0, 1, 1)))


# ---------------------------------------------------------------------------------------------------------- colours


def contrast(one: Any, other: Any) -> float:
    """The contrast of two colours, 1 to 21, as WCAG 2 defines it."""
    rgb = np.array([one, other])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    dark, bright = sorted(linear @ (0.2126, 0.7152, 0.0722))
    return float((bright + 0.05) / (dark + 0.05))


def test_lines_of_one_picture_differ_and_are_seen_on_any_ground() -> None:
    grounds = ((0, 0, 0), (1, 1, 1))
    assert min(contrast(to_rgb(colour), ground) for colour in COLOURS for ground in grounds) >= 3
    assert len({tuple(style_of(number).values()) for number in range(20)}) == 20
    axis = next(axis for axis in training_curves(HISTORY).axes if axis.get_legend() is not None)
    handles = axis.get_legend().legend_handles
    assert {to_hex(handle.get_color()) for handle in handles} <= set(COLOURS)
    looks = [(to_hex(h.get_color()), h.get_linestyle(), h.get_marker()) for h in handles]
    assert len(set(looks)) == len(looks) >= 3


# ------------------------------------------------------------------------------------------------------------ fonts


def test_one_message_names_the_package_of_a_font(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine that has matplotlib's own fonts alone."""
    own = [font for font in fontManager.ttflist if "mpl-data" in str(font.fname)]
    monkeypatch.setattr(fontManager, "ttflist", own)
    monkeypatch.setattr("matplotlib.font_manager.findSystemFonts", list)
    texts = ["แมวนอน", "बिल्ली", "고양이", "猫がいる", "a\x07b"]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        figure = similarity_heatmap(texts, np.eye(5))
        figure.draw_without_rendering()
    (message,) = (str(warning.message) for warning in caught)
    scripts = "CJK, DEVANAGARI, HANGUL, HIRAGANA, THAI"
    assert message.startswith(f"no installed font has the characters of {scripts}, which become □; install one, on ")
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels == ["□" * 6, "□" * 6, "□" * 3, "□" * 4, "ab"]


def test_a_font_that_is_installed_later(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Matplotlib's list of fonts is as old as its first start; here, it lacks even its own font of symbols."""
    symbols = next(font for font in fontManager.ttflist if font.name == "STIXGeneral" and font.weight == 400)
    others = [font for font in fontManager.ttflist if font.name.startswith("DejaVu")]
    monkeypatch.setattr(fontManager, "ttflist", others)
    monkeypatch.setattr("matplotlib.font_manager.findSystemFonts", lambda: [symbols.fname])
    figure = similarity_heatmap(["a \u2a7d b", "c"], np.eye(2))
    label = figure.axes[0].get_yticklabels()[0]
    assert label.get_text() == "a \u2a7d b"
    figure.draw_without_rendering()


# ---------------------------------------------------------------------------------------------------- what they show


def test_an_order_by_similarity() -> None:
    """Three topics in turn stand together afterwards, with the numbers of their rows."""
    topics = np.arange(30) % 3
    scores = np.where(topics[:, None] == topics, 0.8, 0.1) + 0.2 * np.eye(30)
    drawn = [similarity_heatmap([f"text {i}" for i in range(30)], scores, order=True).axes[0] for _ in range(2)]
    labels = [[label.get_text() for label in axis.get_yticklabels()] for axis in drawn]
    assert labels[0] == labels[1]
    rows = [int(label.split()[1]) for label in labels[0]]
    assert [label.split()[2] for label in labels[0]] == [str(row + 1) for row in rows]
    assert sorted(rows) == list(range(30))
    assert sum(one % 3 != other % 3 for one, other in pairwise(rows)) == 2
    np.testing.assert_allclose(drawn[0].images[0].get_array(), scores[np.ix_(rows, rows)], atol=1e-6)
