"""Figures of an evaluation as pictures: similarities by label, and the recall of searches."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sbert.evaluation import best_threshold
from sbert.evaluation.checks import Numbers, check_numbers
from sbert.inputs.arguments import known_arguments
from sbert.visualization.drawing import Path, draw_grid, label_decades, new_axes, new_figure, save_figure, style_of
from sbert.visualization.text import choose_fonts

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BINS = 40


@known_arguments
def similarity_distribution(
    scores: Numbers, labels: Sequence[Any], path: Path = None, ax: Axes | None = None, metric: str = "accuracy"
) -> Figure:
    """Draw how the similarities of pairs are distributed for each label, with the best threshold between two labels.

    Each label has the same area, whatever its number of pairs.

    Args:
        scores: The similarity of each pair.
        labels: The label of each pair, such as 0 and 1, or names. Of two, the greater is that of similar pairs.
        path: Where to save the image; the file extension gives the format. By default, it is only returned.
        ax: Axes of matplotlib to draw into. Default: a figure of its own.
        metric: What the threshold is best for: ``"accuracy"`` or ``"f1"``.

    Shape:
        scores, labels: (pairs,).

    Raises:
        ImportError: If matplotlib is not installed.
        ValueError: If the image format or the metric is unknown, there are no pairs, a score is not finite, or there
            are more or fewer labels than scores.

    Example:
        >>> figure = similarity_distribution([0.9, 0.7, 0.4, 0.1], [1, 1, 0, 0])
        >>> [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
        ['0 (2 pairs)', '1 (2 pairs)', 'threshold 0.550: accuracy 100.0 %']
    """
    figure = new_figure(path, ax)
    (values,) = check_numbers(1, True, scores=scores)
    names, classes = np.unique(np.asarray(labels), return_inverse=True)
    if len(classes) != len(values):
        raise ValueError(f"there are {len(values)} scores and {len(classes)} labels; pass one for each pair")
    axis = new_axes(figure, ax, 8, 4)
    edges = np.histogram_bin_edges(values.astype(np.float64), _BINS)
    written, families = choose_fonts(map(str, names.tolist()))
    for number, name in enumerate(written):
        own, style = values[classes == number], style_of(number)
        look = {"facecolor": (style["color"], 0.25), "edgecolor": style["color"], "linestyle": style["linestyle"]}
        label = f"{name} ({len(own):,} pairs)"
        axis.hist(own, edges, density=True, histtype="stepfilled", linewidth=1.5, label=label, **look)
    if len(names) == 2:
        threshold, value = best_threshold(values, classes, metric)
        label = f"threshold {threshold:.3f}: {metric} {value:.1%}".replace("%", " %")
        axis.axvline(threshold, color="0.5", linewidth=1.5, label=label)
    axis.set(xlabel="similarity", ylabel="density")
    axis.set_ylim(0, axis.get_ylim()[1] * (1 + 0.08 * (len(names) + 1)))  # Space for the legend.
    _finish(axis, families, "upper left")
    return save_figure(figure, path)


@known_arguments
def recall_curves(
    rankings: Mapping[str, Any], relevant: Sequence[Collection[Any]], path: Path = None, ax: Axes | None = None
) -> Figure:
    """Draw the recall at k of several searches for the same queries, such as those by vectors, by BM25 and by both.

        recall@k = mean over queries of |relevant and among the first k| / |relevant|

    Args:
        rankings: For each search, by its name, what it returned: ``Hits``, ``IndexHits``, the lists of ``HybridIndex``,
            or for each query the ids, the best first.
        relevant: For each query, the ids of its relevant documents.
        path: Where to save the image; the file extension gives the format. By default, it is only returned.
        ax: Axes of matplotlib to draw into. Default: a figure of its own.

    Raises:
        ImportError: If matplotlib is not installed.
        ValueError: If the image format is unknown, there are no rankings, a ranking has more or fewer queries than
            ``relevant``, or a query has no relevant document.

    Example:
        >>> figure = recall_curves({"vectors": [[3, 1, 2]], "BM25": [[2, 3, 1]]}, [{3}])
        >>> [line.get_ydata().tolist() for line in figure.axes[0].get_lines()]
        [[1.0, 1.0, 1.0], [0.0, 1.0, 1.0]]
    """
    figure = new_figure(path, ax)
    curves = {name: _recalls(name, ranking, relevant) for name, ranking in rankings.items()}
    if not curves:
        raise ValueError("there are no rankings, so there is nothing to draw; pass at least one")
    axis = new_axes(figure, ax, 7, 4.5)
    written, families = choose_fonts(curves)
    for number, (name, recalls) in enumerate(zip(written, curves.values(), strict=True)):
        axis.plot(np.arange(1, len(recalls) + 1), recalls, **style_of(number), markevery=0.1, linewidth=1.5, label=name)
    axis.set(xscale="log", xlabel="k", ylabel="recall at k", ylim=(0, 1.03))
    label_decades(axis.xaxis)
    _finish(axis, families, "best")
    return save_figure(figure, path)


def _recalls(name: str, ranking: Any, relevant: Sequence[Collection[Any]]) -> np.ndarray:
    """The mean recall at each k. Shape: (longest ranking,)."""
    rows = [list(row) for row in getattr(ranking, "ids", getattr(ranking, "indices", ranking))]
    if not rows or len(rows) != len(relevant):
        raise ValueError(f"{name} ranks for {len(rows)} queries, and relevant has {len(relevant)}; pass one for each")
    total = np.zeros(max(map(len, rows)))
    for query, (row, wanted) in enumerate(zip(rows, relevant, strict=True)):
        if not len(wanted):
            raise ValueError(f"relevant[{query}] is empty, so no search can be right; leave this query out")
        hits = np.zeros(len(total))
        hits[: len(row)] = [getattr(result, "id", result) in wanted for result in row]
        total += hits.cumsum() / len(wanted)
    return total / len(rows)


def _finish(axis: Any, families: list[str], position: str) -> None:
    """The legend, at this position, and the grid."""
    for text in axis.legend(loc=position, frameon=False).get_texts():
        text.set(parse_math=False, fontfamily=families)
    draw_grid(axis)
