"""Pictures hold what the history says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sbert.visualization import training_curves

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


def test_curves_hold_the_history() -> None:
    figure = training_curves([*STEPS, *EVALUATIONS])
    loss, scores, rate = sorted(
        figure.axes, key=lambda axis: ("loss", "evaluation", "learning rate").index(axis.get_ylabel())
    )
    assert lines(loss) == [[(10, 0.9), (20, 0.5), (30, 0.6)]]
    assert lines(rate) == [[(10, 2e-5), (20, 1e-5), (30, 0.0)]]
    assert lines(scores)[0] == [(15, 0.71), (30, 0.69)]
    # The best of each, and not what is no number.
    named = [text.get_text() for text in scores.get_legend().get_texts()]
    assert named == ["spearman, best 0.7100", "accuracy, best 0.5000"]
    assert all(line.get_marker() == "o" for line in scores.get_lines())
    assert figure.axes[1].get_xlabel() == "step"


def test_one_figure_of_merit_is_named_beside_its_axis() -> None:
    figure = training_curves([*STEPS, {"step": 30, "evaluation": {"spearman": 0.7}}])
    assert figure.axes[1].get_ylabel() == "spearman"
    assert figure.axes[1].get_legend() is None
    assert [text.get_text() for text in figure.axes[1].texts] == ["0.7000"]
    figure = training_curves([*STEPS, *({"step": i, "evaluation": {"loss": 0.1 * i}} for i in (1, 2))])
    assert [text.get_text() for text in figure.axes[1].texts] == ["0.1000"], "the lowest loss is the best"


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_a_file_in_and_a_picture_out(tmp_path: Path, ending: str) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text("".join(json.dumps(entry) + "\n" for entry in [*STEPS, *EVALUATIONS]), encoding="utf-8")
    figure = training_curves(path, tmp_path / f"curves.{ending}")
    assert lines(figure.axes[0]) == [[(10, 0.9), (20, 0.5), (30, 0.6)]]
    begins = (tmp_path / f"curves.{ending}").read_bytes()[:5]
    assert begins == {"png": b"\x89PNG\r", "svg": b"<?xml"}[ending]


def test_what_cannot_be_drawn(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no entries"):
        training_curves([])
    with pytest.raises(ValueError, match=r"'curves\.doc' has no file extension that matplotlib supports.*png"):
        training_curves(STEPS, "curves.doc")
    with pytest.raises(FileNotFoundError):
        training_curves(tmp_path / "none.jsonl")
    for bad in ("no json", "[1]", '{"loss": 1}'):
        path = tmp_path / "bad.jsonl"
        path.write_text(f"{json.dumps(STEPS[0])}\n{bad}\n", encoding="utf-8")
        with pytest.raises(ValueError, match=r"bad\.jsonl, line 2( is .*, not an entry of a history|: not valid JSON)"):
            training_curves(path)
