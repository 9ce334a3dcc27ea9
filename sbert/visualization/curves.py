"""Training curves: loss, learning rate and evaluations over the steps."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from sbert.data.formats import TEXT, read_records
from sbert.inputs.arguments import known_arguments
from sbert.visualization.drawing import new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Entry = Mapping[str, Any]
History = Sequence[Entry] | str | os.PathLike[str]

_LOSS, _RATE = "tab:blue", "0.45"


@known_arguments
def training_curves(history: History, path: str | os.PathLike[str] | None = None) -> Figure:
    """Draw the loss, the learning rate and the evaluations of a training run over its steps.

    Args:
        history: The result of ``Trainer.fit``, or the path of a ``history.jsonl``.
        path: Where to save the image; the file extension gives the format. By default, it is only returned.

    Raises:
        FileNotFoundError: If the history file does not exist.
        ImportError: If matplotlib is not installed.
        TypeError: If ``history`` is not a history.
        ValueError: If the image format is unknown, the history is empty, or holds something else than entries.

    Example:
        >>> history = [{"step": 10, "loss": 0.7, "learning_rate": 2e-5}, {"step": 20, "loss": 0.4, "learning_rate": 0}]
        >>> figure = training_curves([*history, {"step": 20, "evaluation": {"spearman": 0.8}}])
        >>> sorted(axis.get_ylabel() for axis in figure.axes)
        ['learning rate', 'loss', 'spearman']
    """
    figure = new_figure(path)
    entries = list(_read_entries(history))
    steps = [entry for entry in entries if "loss" in entry]
    evaluations = [entry for entry in entries if "evaluation" in entry]
    if not steps and not evaluations:
        raise ValueError("the history has no entries, so there is nothing to draw; train at least one step")

    figure.set_size_inches(8, 6 if evaluations else 4)
    axes = figure.subplots(2 if evaluations else 1, 1, sharex=True, squeeze=False)[:, 0]
    _draw_steps(axes[0], steps)
    if evaluations:
        _draw_evaluations(axes[1], evaluations)
    axes[-1].set_xlabel("step")
    axes[-1].set_xlim(left=0)
    if path is not None:
        figure.savefig(path, dpi=150)
    return figure


def _read_entries(history: History) -> Iterator[Entry]:
    located: Iterable[tuple[str, Any]]
    if isinstance(history, (str, os.PathLike)):
        located = ((where, row[TEXT]) for where, row in read_records(history, None, "jsonl"))
    else:
        located = ((f"history[{row}]", entry) for row, entry in enumerate(history))
    for where, entry in located:
        if not isinstance(entry, Mapping) or "step" not in entry:
            raise ValueError(f"{where} is {entry!r:.60}, not an entry of a history; pass the result of Trainer.fit")
        yield entry


def _draw_steps(axis: Any, steps: list[Entry]) -> None:
    """The loss on the left scale, the learning rate on the right one."""
    at, rates = [entry["step"] for entry in steps], axis.twinx()
    # A single point makes no line.
    axis.plot(at, [entry["loss"] for entry in steps], color=_LOSS, marker="o" if len(at) == 1 else None, zorder=3)
    rates.plot(at, [entry["learning_rate"] for entry in steps], color=_RATE, linestyle="--", linewidth=1)
    rates.set_ylim(bottom=0)
    rates.ticklabel_format(axis="y", style="sci", scilimits=(0, 0))
    for side, name, color in ((axis, "loss", _LOSS), (rates, "learning rate", _RATE)):
        side.set_ylabel(name, color=color)
        side.tick_params(axis="y", colors=color)
        side.spines["top"].set_visible(False)
    axis.grid(alpha=0.25)


def _draw_evaluations(axis: Any, evaluations: list[Entry]) -> None:
    """One line for each metric, with the value of its best point: beside it, or in the legend of several."""
    names = list(dict.fromkeys(name for entry in evaluations for name in entry["evaluation"]))
    for number, name in enumerate(names, start=1):
        color = f"C{number}"  # The first of matplotlib's colours is that of the loss.
        points = [(entry["step"], entry["evaluation"][name]) for entry in evaluations if name in entry["evaluation"]]
        choose = min if name.endswith("loss") else max
        best = choose((point for point in points if not math.isnan(point[1])), key=itemgetter(1), default=None)
        label = name if best is None else f"{name}, best {best[1]:.4f}"
        axis.plot(*zip(*points, strict=True), color=color, marker="o", markersize=5, linewidth=1.2, label=label)
        if best is not None and len(names) == 1:
            place = {"xytext": (0, 7), "textcoords": "offset points", "ha": "center"}
            axis.annotate(f"{best[1]:.4f}", best, color=color, fontsize=9, **place)
    axis.margins(y=0.18)  # Space for the values above the points.
    axis.set_ylabel(names[0] if len(names) == 1 else "evaluation")
    if len(names) > 1:
        axis.legend(frameon=False)
    axis.grid(alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)
