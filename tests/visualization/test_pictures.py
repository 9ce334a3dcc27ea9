"""Heat maps, maps and curves hold what they were given, and their texts lie apart."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_hex

from sbert.visualization import corpus_map, similarity_heatmap, training_curves

SENTENCES = ["A fox.", "It costs $5 or $6.", "Two\nlines", "long " * 40]

STEPS: list[dict[str, Any]] = [
    {"step": 10, "loss": 0.9, "learning_rate": 2e-5, "gradient_norm": 1.0},
    {"step": 20, "loss": 0.5, "learning_rate": 1e-5, "gradient_norm": 1.0},
    {"step": 30, "loss": 0.6, "learning_rate": 0.0, "gradient_norm": 1.0},
]
EVALUATIONS: list[dict[str, Any]] = [
    {"step": 15, "evaluation": {"spearman": 0.71, "accuracy": 0.5}},
    {"step": 30, "evaluation": {"spearman": 0.69, "accuracy": float("nan")}},
]


def lines(axis: Any) -> list[list[tuple[float, float]]]:
    return [list(zip(*line.get_data(), strict=True)) for line in axis.get_lines()]


def legend(axis: Any) -> list[str]:
    return [text.get_text() for text in axis.get_legend().get_texts()]


class Model:
    """Vectors that are known."""

    def encode(self, sentences: Any) -> np.ndarray:
        return np.eye(len(sentences), dtype=np.float32)

    def similarity(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return a @ b.T


def extents(labels: Any) -> list[Any]:
    return [label.get_window_extent() for label in labels if label.get_text()]


def test_heat_map_of_a_few_sentences(tmp_path: Path) -> None:
    scores = np.linspace(-0.2, 1, 16).reshape(4, 4)
    figure = similarity_heatmap(SENTENCES, scores, tmp_path / "heat.png")
    axis = figure.axes[0]
    np.testing.assert_allclose(axis.images[0].get_array(), scores, atol=1e-6)
    assert axis.images[0].get_clim() == (-1, 1)
    assert [label.get_text() for label in axis.get_yticklabels()][:3] == ["A fox.", "It costs $5 or $6.", "Two lines"]
    assert all(len(label.get_text()) <= 32 for label in axis.get_xticklabels())
    assert [text.get_text() for text in axis.texts[:5]] == ["-0.20", "-0.12", "-0.04", "0.04", "0.12"]
    assert (tmp_path / "heat.png").read_bytes().startswith(b"\x89PNG")
    by_model = similarity_heatmap(SENTENCES, Model())
    np.testing.assert_array_equal(by_model.axes[0].images[0].get_array(), np.eye(4))
    other = similarity_heatmap(["a", "b"], [[0.0, -7.0], [-7.0, 0.0]])  # Not cosines.
    assert other.axes[0].images[0].get_clim() == (-7.0, 0.0)
    near = [[1.0, 0.25, 0.5], [0.25, 1.0, 0.5], [0.25, 0.5, 1.0]]
    by_data = similarity_heatmap(["a", "b", "c"], near, scale="data").axes[0].images[0]
    assert by_data.get_clim() == (0.25, 0.5), "the diagonal, always 1, does not count"


@pytest.mark.parametrize("count", [12, 24])
def test_labels_of_a_heat_map_lie_apart_and_within(count: int) -> None:
    figure = similarity_heatmap([f"{'word ' * (i % 14)}{i}" for i in range(count)], np.eye(count))
    figure.draw_without_rendering()
    axis = figure.axes[0]
    rows = extents(axis.get_yticklabels())
    assert len(rows) == count
    assert not any(one.overlaps(other) for one, other in combinations(rows, 2))
    assert min(box.x0 for box in [*rows, *extents(axis.get_xticklabels())]) >= -1
    if count > 12:
        columns = extents(axis.get_xticklabels())
        assert not any(one.overlaps(other) for one, other in combinations(columns, 2))


def test_map_in_the_colours_of_clusters(tmp_path: Path) -> None:
    points = np.arange(14.0).reshape(7, 2)
    axis = corpus_map(points, tmp_path / "map.svg", labels=np.array([1, 0, 1, 1, -1, 0, 2])).axes[0]
    assert [text.get_text() for text in axis.get_legend().get_texts()] == ["none (1)", "1 (3)", "0 (2)", "2 (1)"]
    np.testing.assert_array_equal(axis.collections[1].get_offsets(), points[[0, 2, 3]])
    colours = [to_hex(one.get_facecolor()[0]) for one in axis.collections]
    assert len(set(colours)) == 4
    assert colours[0] == to_hex("0.7")
    assert corpus_map(points).axes[0].get_legend() is None
    assert (tmp_path / "map.svg").exists()
    many = corpus_map(np.random.default_rng(0).normal(size=(40, 2)), labels=range(40), legend=False).axes[0]
    looks = {(to_hex(one.get_facecolor()[0]), one.get_paths()[0].vertices.tobytes()) for one in many.collections}
    assert len(looks) == 40


def test_a_legend_has_the_largest_clusters_and_the_others() -> None:
    names = [name for number in range(1, 16) for name in [f"c{number}"] * number]  # Of 1 to 15 texts.
    points = np.random.default_rng(0).normal(size=(122, 2))
    axis = corpus_map(points, labels=[*names, None, float("nan")]).axes[0]
    assert legend(axis) == ["none (2)", *(f"c{number} ({number})" for number in range(15, 3, -1)), "3 others (6)"]
    assert len({to_hex(one.get_facecolor()[0]) for one in axis.collections}) == 14


def test_texts_of_a_map_cover_neither_each_other_nor_points() -> None:
    points = np.random.default_rng(0).normal(size=(24, 2)) * (1, 0.6)
    figure = corpus_map(points, labels=["a"] * 24, texts=[f"text of ${i} and $x_1" for i in range(24)])
    axis = figure.axes[0]
    figure.draw_without_rendering()
    boxes = extents(axis.texts)
    assert len(boxes) >= 18
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))
    assert not any(box.contains(x, y) for box in boxes for x, y in axis.transData.transform(points))


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: similarity_heatmap([], np.zeros((0, 0))), "no sentences"),
        (lambda: similarity_heatmap(["a", "b"], np.eye(3)), r"scores have shape \(3, 3\); pass \(2, 2\), or a model"),
        (lambda: similarity_heatmap(["a", "b"], [[1, 0], [np.nan, 1]]), r"scores\[1\] is not finite"),
        (lambda: corpus_map(np.eye(3), labels=[0, 1]), "3 vectors and 2 labels"),
        (lambda: corpus_map(np.eye(3), texts=["a"]), "3 vectors and 1 texts"),
        (lambda: training_curves([]), "no entries"),
        (lambda: training_curves(STEPS, "curves.doc"), r"'curves\.doc' has no file extension of matplotlib; .*png"),
    ],
)
def test_what_cannot_be_drawn(draw: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        draw()


def test_names_stand_on_the_map_in_place_of_a_legend() -> None:
    points = np.concatenate([np.random.default_rng(0).normal((middle, 0), size=(40, 2)) for middle in (0, 50)])
    left, right = (f"a name as long as the {side} one is" for side in ("left", "right"))  # Too long to be centred.
    axis = corpus_map(points, labels=[left] * 40 + [right] * 39 + [None], legend=False).axes[0]
    assert axis.get_legend() is None
    for text, middle in zip(axis.texts, (0, 50), strict=True):
        assert text.get_text() == (right if middle else left)
        np.testing.assert_allclose(text.xy, [middle, 0], atol=2)


# ---------------------------------------------------------------------------------------------------------- curves


def test_curves_hold_the_history(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text("".join(json.dumps(entry) + "\n" for entry in [*STEPS, *EVALUATIONS]), encoding="utf-8")
    figure = training_curves(path, tmp_path / "curves.svg")
    assert (tmp_path / "curves.svg").read_bytes().startswith(b"<?xml")
    loss, scores, rate = sorted(
        figure.axes, key=lambda axis: ("loss", "evaluation", "learning rate").index(axis.get_ylabel())
    )
    assert lines(loss)[0] == [(10, 0.9), (20, 0.5), (30, 0.6)]
    assert lines(rate) == [[(10, 2e-5), (20, 1e-5), (30, 0.0)]]
    assert lines(scores)[0] == [(15, 0.71), (30, 0.69)]
    # The best of each, and not what is no number.
    assert legend(scores) == ["spearman 0.7100 at step 15", "accuracy 0.5000 at step 15"]
    assert scores.get_xlabel() == "step"


def evaluations(figure: Any) -> Any:
    """The lower of the two axes."""
    return next(axis for axis in figure.axes if axis.get_legend() is not None)


def test_the_best_step_is_marked_and_step_0_has_its_score() -> None:
    history = [*STEPS, *({"step": step, "evaluation": {"loss": 0.4, "f1": f1}} for step, f1 in ((0, 0.5), (30, 0.7)))]
    for metric, best in ((None, 0), ("f1", 30)):
        figure = training_curves(history, metric=metric)
        axis = evaluations(figure)
        assert axis.get_ylabel() == "evaluation"
        assert legend(axis) == ["loss 0.4000 → 0.4000 at step 0", "f1 0.5000 → 0.7000 at step 30"]
        (mark,) = (line for line in axis.get_lines() if line.get_linestyle() == ":" and line.get_marker() == "None")
        assert list(mark.get_xdata()) == [best, best]
        assert axis.get_xlim()[0] < 0 < 30 < axis.get_xlim()[1], "the first and the last marker are whole"
    with pytest.raises(ValueError, match="metric='f2' is not among the scores: loss, f1"):
        training_curves(history, metric="f2")
    axis = evaluations(training_curves([{"step": i, "evaluation": {"loss": 0.1 * i}} for i in (1, 2)]))
    assert (axis.get_ylabel(), legend(axis)) == ("loss", ["loss 0.1000 at step 1"]), "the lowest loss is the best"


@pytest.mark.parametrize(("first", "scale"), [(40.0, "log"), (0.9, "linear")])
def test_the_loss_is_logarithmic_where_the_first_values_dwarf_the_rest(first: float, scale: str) -> None:
    steps = [{**STEPS[0], "step": step, "loss": first if step == 1 else 0.4 + step / 50} for step in range(1, 6)]
    figure = training_curves(steps)
    figure.draw_without_rendering()
    axis = next(axis for axis in figure.axes if axis.get_ylabel() == "loss")
    assert axis.get_yscale() == scale
    labels = [label.get_text() for label in axis.get_yticklabels()]
    assert {"0.5", "1", "10"} <= set(labels) if scale == "log" else "0.5" in labels
    ticks = [tick for tick in axis.get_xticks() if axis.get_xlim()[0] <= tick <= axis.get_xlim()[1]]
    assert len(ticks) > 2
    assert all(tick == round(tick) for tick in ticks), "there is no half step"


@pytest.mark.parametrize("bad", ["no json", "[1]", '{"loss": 1}'])
def test_a_file_that_is_no_history(tmp_path: Path, bad: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(f"{json.dumps(STEPS[0])}\n{bad}\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"bad\.jsonl, line 2( is .*, not an entry of a history|: not valid JSON)"):
        training_curves(path)
    with pytest.raises(FileNotFoundError):
        training_curves(tmp_path / "none.jsonl")
