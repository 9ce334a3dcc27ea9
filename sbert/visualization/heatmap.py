"""A heat map of the similarities between sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from sbert.functional import Vectors
from sbert.inputs.arguments import check_choice, is_model, known_arguments
from sbert.inputs.extras import require
from sbert.inputs.texts import texts_of
from sbert.visualization.drawing import Path, new_axes, new_figure, save_figure
from sbert.visualization.projection import check_vectors
from sbert.visualization.text import choose_fonts, count_columns, shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from sbert.encoder import SentenceEncoder

_Matrix = npt.NDArray[np.float32]
# Up to this number of sentences, columns are labelled with the sentence, and cells with the score.
_FEW = 12
# Inches of one character of a label of one point, and of a score in a cell.
_CHARACTER, _SCORE = 0.008, 1 / 30


@known_arguments
def similarity_heatmap(
    sentences: Sequence[str],
    scores: SentenceEncoder | Vectors,
    path: Path = None,
    ax: Axes | None = None,
    order: bool = False,
    scale: str = "cosine",
) -> Figure:
    """Draw the similarities of all pairs of sentences as a matrix of colours.

    By default all cosines have the same colours, from red at -1 to blue at 1, so that two pictures can be compared. The
    colours of other similarities are between the lowest and the highest score.

    Args:
        sentences: The sentences; 2 to 40 are easy to read.
        scores: A model, or the matrix of similarities.
        path: Where to save the image; the file extension gives the format. By default, it is only returned.
        ax: Axes of matplotlib to draw into, such as one of several side by side. Default: a figure of its own.
        order: Whether similar sentences stand side by side, as average linkage groups them.
        scale: ``"cosine"``, or ``"data"``: colours from the lowest to the highest score of two different sentences,
            which shows small differences.

    Shape:
        scores: (sentences, sentences).

    Raises:
        ImportError: If matplotlib is not installed.
        TypeError: If ``sentences`` or ``scores`` has a wrong type.
        ValueError: If the image format is unknown, or the scores are not finite or have another shape.

    Example:
        >>> from sbert import SentenceEncoder
        >>> from sbert.visualization import similarity_heatmap
        >>> model = SentenceEncoder()
        >>> figure = similarity_heatmap(["A cat sleeps.", "A kitten naps.", "Taxes rise."], model)
        >>> [label.get_text() for label in figure.axes[0].get_yticklabels()]
        ['A cat sleeps.', 'A kitten naps.', 'Taxes rise.']
    """
    check_choice("scale", scale, ("cosine", "data"))
    figure = new_figure(path, ax)
    listed = texts_of(sentences, "sentences")
    if not listed:
        raise ValueError("there are no sentences, so there is nothing to draw; pass at least one")
    matrix = _as_matrix(listed, scores)
    positions = _order(matrix) if order and len(listed) > 1 else list(range(len(listed)))
    matrix = matrix[np.ix_(positions, positions)]
    texts, families = choose_fonts(shorten(listed[position], 60) for position in positions)
    count, longest, slanted = len(texts), max(map(count_columns, texts)), 32  # Columns of row and column labels.
    few = count <= _FEW
    points, cell, rotated = (9.0, 0.62, 2.2) if few else (8.0, 0.26, 0.6)
    size, character = max(2.0, count * cell), _CHARACTER * points  # In inches.
    axis = new_axes(figure, ax, size + character * longest + 1.6, size + rotated)
    if ax is not None:  # The axes have their size, so labels get shorter, and numbers smaller.
        width, height = (float(length) / figure.dpi for length in ax.get_window_extent().size)
        longest = min(longest, max(8, int(0.4 * width / character)))
        slanted = min(slanted, max(8, int(0.47 * height / character)))
        cell = min(width - character * longest - 0.9, 0.7 * height) / count
        few = few and cell >= 6 * _SCORE
        points = min(points, max(3.0, cell / _SCORE if few else 60 * cell))
    cosines = scale == "cosine" and matrix.min() >= -1.001 and matrix.max() <= 1.001
    others = matrix[~np.eye(count, dtype=bool)] if scale == "data" and count > 1 else matrix
    low, high = (-1.0, 1.0) if cosines else (float(others.min()), float(others.max()))
    image = axis.imshow(matrix, cmap="RdBu" if cosines else "YlGnBu", vmin=low, vmax=high)
    look = {"parse_math": False, "fontfamily": families, "fontsize": points}
    rows = [shorten(text, longest) for text in texts]
    if few:
        axis.set_yticks(range(count), rows, **look)
        columns = [shorten(text, slanted) for text in texts]
        axis.set_xticks(range(count), columns, rotation=40, ha="right", rotation_mode="anchor", **look)
        _write_scores(axis, matrix, image.to_rgba(matrix), points)
    else:
        numbers = [position + 1 for position in positions]
        axis.set_yticks(range(count), [f"{row}  {at}" for row, at in zip(rows, numbers, strict=True)], **look)
        axis.set_xticks(range(count), numbers, fontsize=points, rotation=90)
        axis.xaxis.tick_top()
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    bar = figure.colorbar(image, ax=axis, shrink=0.6, label="similarity")
    bar.outline.set_visible(False)
    if cosines and matrix.min() >= 0:
        bar.ax.set_ylim(0, 1)
    if ax is None:
        figure.draw_without_rendering()
        box = figure.get_tightbbox()  # In inches. The layout leaves too little room beside a square.
        figure.set_figwidth(figure.get_figwidth() + 2 * max(0.0, -box.x0))
    return save_figure(figure, path)


def _as_matrix(sentences: list[str], scores: Any) -> _Matrix:
    """The matrix of similarities. Shape: (sentences, sentences)."""
    count = len(sentences)
    if is_model(scores, "similarity"):
        vectors = scores.encode(sentences)
        scores = scores.similarity(vectors, vectors)
    matrix = check_vectors(scores, "scores")
    if matrix.shape != (count, count):
        raise ValueError(f"scores have shape {matrix.shape}; pass ({count}, {count}), or a model")
    return matrix


def _order(matrix: _Matrix) -> list[int]:
    """An order in which similar rows are neighbours: that of average linkage, with its branches turned for it."""
    with require("an order by similarity", "scipy", "plot", "pass order=False"):
        from scipy.cluster.hierarchy import leaves_list, linkage
        from scipy.spatial.distance import squareform
    distances = float(matrix.max()) - (matrix + matrix.T).astype(np.float64) / 2
    np.fill_diagonal(distances, 0)
    order: list[int] = leaves_list(linkage(squareform(distances), "average", optimal_ordering=True)).tolist()
    return order


def _write_scores(axis: Any, matrix: _Matrix, colours: npt.NDArray[np.float64], points: float) -> None:
    """Write each score into its cell, black or white by the colour of the cell. Shape: colours (rows, columns, 4)."""
    bright = colours[..., :3] @ (0.299, 0.587, 0.114) > 0.5  # (rows, columns)
    for (row, column), score in np.ndenumerate(matrix):
        color = "black" if bright[row, column] else "white"
        axis.text(column, row, f"{score:.2f}", ha="center", va="center", fontsize=points, color=color)
