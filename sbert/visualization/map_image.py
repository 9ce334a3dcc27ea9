"""A map of a corpus as an image: one point per text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from sbert.functional import Vectors
from sbert.inputs.arguments import known_arguments
from sbert.inputs.texts import texts_of
from sbert.visualization.drawing import MARKERS, Path, new_axes, new_figure, save_figure
from sbert.visualization.projection import (
    LAYOUTS,
    Points,
    check_vectors,
    choose_projection,
    density_peaks,
    project_vectors,
)
from sbert.visualization.text import choose_fonts, shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Clusters that share a colour have different markers.
_COLOURS = (
    *("#2f6fdb", "#e07b00", "#1e9448", "#d1344b", "#8a4fd0", "#8c5a3c"),
    *("#d64fa8", "#4b5a66", "#94960a", "#0aa0b4", "#0b3d91", "#f2a28c"),
)
_NO_CLUSTER, _OTHERS = "0.7", "0.45"
# Up to this number of points, every text is written beside its point.
_MAX_TEXTS = 30

# The name of a cluster, None for no cluster, and its rows.
Cluster = tuple[Any, npt.NDArray[np.int64]]


@known_arguments
def corpus_map(
    vectors: Vectors,
    path: Path = None,
    labels: Sequence[Any] | npt.NDArray[Any] | None = None,
    texts: Sequence[str] | None = None,
    legend: bool = True,
    ax: Axes | None = None,
) -> Figure:
    """Draw the vectors of a corpus as points in a plane, coloured by cluster.

    Args:
        vectors: Vectors of the texts; vectors of dimension 2 are used as points directly.
        path: Where to save the image; the file extension gives the format. By default, it is only returned.
        labels: The cluster of each vector, an int or a name, -1 or None for no cluster. Of more than 12 clusters, the
            legend has the largest 12, and the others together; without a legend, some differ by their markers.
        texts: The text of each vector. Up to 30 texts are written beside their points; of more, one per cluster, where
            it is densest.
        legend: Whether the names of clusters stand in a legend; if not, and without texts, they stand on the map.
        ax: Axes of matplotlib to draw into; default: those of a new figure.

    Shape:
        vectors: (n, dim). labels, texts: (n,).

    Raises:
        ImportError: If matplotlib is not installed.
        TypeError: If an argument has a wrong type.
        ValueError: If the image format is unknown, the vectors are not a matrix of finite numbers, or there are more or
            fewer labels or texts than vectors.

    Example:
        >>> from sbert import SentenceEncoder
        >>> from sbert.visualization import corpus_map
        >>> model = SentenceEncoder()
        >>> vectors = model.encode(["A cat sleeps.", "A kitten naps.", "Taxes rise."])
        >>> figure = corpus_map(vectors, labels=["pets", "pets", "money"])
        >>> [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
        ['pets (2)', 'money (1)']
    """
    figure = new_figure(path, ax)
    matrix = check_vectors(vectors)
    texts = None if texts is None else texts_of(texts, "texts")
    for name, column in {"labels": labels, "texts": texts}.items():
        if column is not None and len(column) != len(matrix):
            raise ValueError(f"there are {len(matrix)} vectors and {len(column)} {name}; pass one for each vector")
    method = None if matrix.shape[1] == 2 else choose_projection(len(matrix))[0]
    points = matrix if method is None else project_vectors(matrix)  # (n, 2)
    clusters = _by_cluster(labels, len(points), len(_COLOURS) if legend else None)
    axis = new_axes(figure, ax, 9, 7)
    colours = _draw_points(axis, points, clusters, labels is not None, legend)
    axis.set_aspect("equal", adjustable="datalim")
    axis.set(xticks=[], yticks=[])
    axis.spines[:].set_color("0.8")
    if method is not None:
        axis.set_xlabel(LAYOUTS[method], loc="right", fontsize=8, color="0.4")
    if labels is not None and len(points) and legend:
        shown = axis.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False, fontsize=9, labelspacing=0.6)
        names, fonts = choose_fonts(text.get_text() for text in shown.get_texts())
        for handle, text, name in zip(shown.legend_handles, shown.get_texts(), names, strict=True):
            handle.set(sizes=[40], alpha=1)
            text.set(text=name, parse_math=False, fontfamily=fonts)
    written: dict[int, str] = {} if texts is None else dict(enumerate(texts))
    if len(written) > _MAX_TEXTS or not legend:
        numbers = np.empty(len(points), np.int64)
        for number, (_, rows) in enumerate(clusters):
            numbers[rows] = number
        peaks = density_peaks(points, numbers, len(clusters))
        named = [at for at, (name, _) in enumerate(clusters) if name is not None and peaks[at] >= 0]
        written = {peaks[at]: str(clusters[at][0] if texts is None else texts[peaks[at]]) for at in named}
        if texts is not None:  # Among many points, a ring shows to which point and cluster a text belongs.
            ring = {"facecolors": [colours[at] for at in named], "edgecolors": "black", "linewidths": 0.8}
            axis.scatter(*points[list(written)].T, s=30, zorder=2, **ring)
    _write_texts(figure, axis, points, written, centred=texts is None)
    return save_figure(figure, path)


def _draw_points(axis: Any, points: Points, clusters: list[Cluster], grey: bool, legend: bool) -> list[str]:
    """Draw the points, those without cluster in grey if ``grey``; returns the colour of each cluster."""
    size = _size(len(points))
    without = sum(name is None for name, _ in clusters) if grey else 0
    colours = []
    look = {"alpha": 0.8 if len(points) < 2000 else 0.55, "zorder": 1 if len(points) > _MAX_TEXTS else 4}
    for number, (name, rows) in enumerate(clusters, start=-without):
        colour = _OTHERS if legend and number == len(_COLOURS) else _COLOURS[number % len(_COLOURS)]
        colours.append(_NO_CLUSTER if number < 0 else colour)
        marker = MARKERS[max(number, 0) // len(_COLOURS) % len(MARKERS)]
        label = f"{'none' if name is None else name} ({len(rows):,})"
        axis.scatter(*points[rows].T, s=size, color=colours[-1], marker=marker, linewidths=0, label=label, **look)
    return colours


def _size(count: int) -> float:
    """The area of a point, for this number of points."""
    return float(np.clip(3000 / max(count, 1), 3, 45))


def _by_cluster(labels: Iterable[Any] | None, count: int, most: int | None) -> list[Cluster]:
    """The clusters, largest first; the rows without cluster come before all, so that they are drawn below.

    If there are more than ``most``, the smallest are one cluster together.
    """
    if labels is None:
        return [(None, np.arange(count))]
    rows: dict[Any, list[int]] = {}
    for row, label in enumerate(labels):
        name = label.item() if isinstance(label, np.generic) else label
        rows.setdefault(None if name == -1 or name != name else name, []).append(row)  # NaN is not itself.
    named = sorted(rows.items(), key=lambda item: (item[0] is not None, -len(item[1])))
    if most is not None and len(rest := named[most + (None in rows) :]) > 1:
        together = f"{len(rest)} others", [row for _, members in rest for row in members]
        named = [*named[: -len(rest)], together]
    return [(name, np.array(members)) for name, members in named]


def _write_texts(figure: Figure, axis: Any, points: Points, texts: Mapping[int, str], centred: bool = False) -> None:
    """Write the texts of some rows beside their points, or centred on them; one that would cover another is left out.

    Before that, it is moved up or down; centred texts also to the left or right, so that they lie within the image.
    """
    from matplotlib.patheffects import withStroke
    from matplotlib.transforms import Bbox

    figure.draw_without_rendering()  # Computes the layout, and so the positions below.
    edge = axis.get_window_extent()
    written, fonts = choose_fonts(shorten(text, 40) for text in texts.values())
    look: dict[str, Any] = {"va": "center", "fontsize": 8, "parse_math": False, "fontfamily": fonts}
    look |= {"textcoords": "offset points", "path_effects": [withStroke(linewidth=2.5, foreground="white")]}
    offsets, taken = list(product((0, 7, -7, 14, -14, 21, -21), ((6, "left"), (-6, "right")))), []
    if centred:
        look["fontweight"], offsets = "bold", list(product((0, 7, -7), ((0, "center"), (0, "left"), (0, "right"))))
    else:
        taken = [Bbox.from_bounds(x - 4, y - 4, 8, 8) for x, y in axis.transData.transform(points[list(texts)])]
    for row, text in zip(texts, written, strict=True):
        note = axis.annotate(text, points[row], xytext=(0, 0), **look)
        for up, (right, side) in offsets:
            note.set(position=(right, up), ha=side)
            box = note.get_window_extent()
            if edge.x0 <= box.x0 and box.x1 <= edge.x1 and not any(box.overlaps(other) for other in taken):
                taken.append(box)
                break
        else:
            note.remove()
