"""Training curves: loss, learning rate and evaluations over the steps."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from statistics import median
from typing import TYPE_CHECKING, Any

from sbert.data.file_formats import TEXT, read_records
from sbert.inputs.arguments import known_arguments
from sbert.visualization.drawing import COLOURS, Path, new_axes, new_figure, save_figure, style_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Entry = Mapping[str, Any]
_Entries = Sequence[Entry] | str | os.PathLike[str]

_LOSS, _RATE = COLOURS[-1], "0.5"
# Above this multiple of the median loss, the first losses would press all others to the bottom of a linear axis.
_DWARFS = 5.0


@known_arguments
def training_curves(history: _Entries, path: Path = None, ax: Axes | None = None, metric: str | None = None) -> Figure:
    """Draw the loss, the learning rate and the evaluations of a training run over its steps.

    A vertical line marks the best step. The legend has each score before training, if the history has it, and its best.
    The axis of the loss is logarithmic if the first losses are far above the rest.

    Args:
        history: The result of ``Trainer.fit``, or the path of a ``history.jsonl``.
        path: Where to save the image; the file extension gives the format. By default, it is only returned.
        ax: Axes of matplotlib to draw into. Default: a figure of its own.
        metric: The score that chooses the best step, as in ``TrainingConfig``. Default: the first.

    Raises:
        FileNotFoundError: If the history file does not exist.
        ImportError: If matplotlib is not installed.
        TypeError: If ``history`` is not a history.
        ValueError: If the image format is unknown, the history is empty or holds something else than entries, or no
            evaluation has the metric.

    Example:
        >>> from sbert.visualization import training_curves
        >>> history = [{"step": 10, "loss": 0.7, "learning_rate": 2e-5}, {"step": 20, "loss": 0.4, "learning_rate": 0}]
        >>> figure = training_curves([*history, {"step": 20, "evaluation": {"spearman": 0.8}}])
        >>> sorted(axis.get_ylabel() for axis in figure.axes)
        ['learning rate', 'loss', 'spearman']
    """
    figure = new_figure(path, ax)
    entries = list(_read_entries(history))
    steps = [entry for entry in entries if "loss" in entry]
    evaluations = [entry for entry in entries if "evaluation" in entry]
    if not steps and not evaluations:
        raise ValueError("the history has no entries, so there is nothing to draw; train at least one step")
    names = list(dict.fromkeys(name for entry in evaluations for name in entry["evaluation"]))
    if metric is not None and metric not in names:
        raise ValueError(f"metric={metric!r} is not among the scores: {', '.join(names) or 'there are none'}")

    axis = new_axes(figure, ax, 8, 6 if evaluations else 4)
    panels = _split(axis, ax is None) if evaluations else [axis]
    _draw_steps(panels[0], steps)
    if evaluations:
        best = _draw_evaluations(panels[1], evaluations, names)
        if chosen := best.get(metric or names[0]):
            for panel in panels:
                panel.axvline(chosen[0], color="0.5", linewidth=1.2, linestyle=":", zorder=1)
    panels[-1].set_xlabel("step")
    panels[-1].xaxis.get_major_locator().set_params(integer=True)
    last = max(entry["step"] for entry in entries)
    panels[-1].set_xlim(-0.02 * last, 1.02 * last)  # From step 0, whose markers are whole.
    return save_figure(figure, path)


def _read_entries(history: _Entries) -> Iterator[Entry]:
    located: Iterable[tuple[str, Any]]
    if isinstance(history, (str, os.PathLike)):
        located = ((where, row[TEXT]) for where, row in read_records(history, None, "jsonl"))
    else:
        located = ((f"history[{row}]", entry) for row, entry in enumerate(history))
    for where, entry in located:
        if not isinstance(entry, Mapping) or "step" not in entry:
            raise ValueError(f"{where} is {entry!r:.60}, not an entry of a history; pass the result of Trainer.fit")
        yield entry


def _split(axis: Any, remove: bool) -> list[Any]:
    """Two axes one above the other, with one scale of steps, in the place of one, which is removed or made empty."""
    if axis.get_subplotspec() is None:
        raise ValueError("ax has a place of its own, which cannot be split; pass axes of a grid, as of plt.subplots()")
    grid, figure = axis.get_subplotspec().subgridspec(2, 1), axis.get_figure(root=False)
    axis.remove() if remove else axis.axis("off")
    upper = figure.add_subplot(grid[0])
    upper.tick_params(axis="x", labelbottom=False)
    return [upper, figure.add_subplot(grid[1], sharex=upper)]


def _draw_steps(axis: Any, steps: list[Entry]) -> None:
    """The loss on the left scale, the learning rate on the right one."""
    at, rates, losses = [entry["step"] for entry in steps], axis.twinx(), [entry["loss"] for entry in steps]
    # A single point makes no line.
    axis.plot(at, losses, color=_LOSS, marker="o" if len(at) == 1 else None, zorder=3)
    if losses and min(losses) > 0 and max(losses) > _DWARFS * median(losses):
        axis.set_yscale("log")
        # 1, 2, 3 and 5 in each decade, as plain numbers.
        axis.yaxis.get_major_locator().set_params(subs=(1, 2, 3, 5))
        axis.yaxis.set_major_formatter("{x:g}")
        axis.yaxis.set_minor_formatter("")
    rates.plot(at, [entry["learning_rate"] for entry in steps], color=_RATE, linestyle="--", linewidth=0.8)
    rates.set_ylim(bottom=0)
    rates.ticklabel_format(axis="y", style="sci", scilimits=(0, 0))
    for side, name, color in ((axis, "loss", _LOSS), (rates, "learning rate", _RATE)):
        side.set_ylabel(name, color=color)
        side.tick_params(axis="y", colors=color)
        side.spines["top"].set_visible(False)
    axis.grid(alpha=0.25)


def _draw_evaluations(axis: Any, evaluations: list[Entry], names: list[str]) -> dict[str, tuple[int, float]]:
    """One line for each metric, with the value of its best point in the legend; returns these points."""
    best: dict[str, tuple[int, float]] = {}
    for number, name in enumerate(names):
        points = [(entry["step"], entry["evaluation"][name]) for entry in evaluations if name in entry["evaluation"]]
        numeric, label = [point for point in points if not math.isnan(point[1])], name
        if numeric:
            best[name] = (min if name.endswith("loss") else max)(numeric, key=itemgetter(1))
            label += f" {numeric[0][1]:.4f} →" if numeric[0][0] == 0 else ""  # Before training.
            label += f" {best[name][1]:.4f} at step {best[name][0]:,}"
        axis.plot(*zip(*points, strict=True), **style_of(number), markersize=5, linewidth=1.2, label=label)
    axis.set_ylabel(names[0] if len(names) == 1 else "evaluation")
    axis.legend(frameon=False, fontsize=8, ncols=2, loc="lower left", bbox_to_anchor=(0, 1))
    axis.grid(alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)
    return best
