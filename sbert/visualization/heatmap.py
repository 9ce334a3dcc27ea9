"""A heat map of the similarities between sentences."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from sbert.functional import Vectors
from sbert.inputs.arguments import known_arguments
from sbert.inputs.texts import texts_of
from sbert.visualization.drawing import new_figure
from sbert.visualization.projection import check_vectors
from sbert.visualization.text import count_columns, font_families, shorten

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Scores = npt.NDArray[np.float32]
# Up to this number of sentences, columns are labelled with the sentence, and cells with the score.
_FEW = 12


@runtime_checkable
class Compares(Protocol):
    """A model that encodes sentences and compares their vectors, as ``SentenceEncoder`` does."""

    def encode(self, sentences: list[str], /) -> Vectors:
        """One vector per sentence."""

    def similarity(self, a: Vectors, b: Vectors, /) -> Vectors:
        """The similarity of every vector of ``a`` with every vector of ``b``."""


@known_arguments
def similarity_heatmap(
    sentences: Sequence[str], scores: Compares | Vectors, path: str | os.PathLike[str] | None = None
) -> Figure:
    """Draw the similarities of all pairs of sentences as a matrix of colours.

    Args:
        sentences: The sentences; 2 to 40 are easy to read.
        scores: A model, or the matrix of similarities.
        path: Where to save the image; the file extension gives the format. By default, it is only returned.

    Shape:
        scores: (sentences, sentences).

    Raises:
        ImportError: If matplotlib is not installed.
        TypeError: If ``sentences`` or ``scores`` has a wrong type.
        ValueError: If the image format is unknown, or the scores are not finite or have another shape.

    Example:
        >>> figure = similarity_heatmap(["A cat sleeps.", "A kitten naps.", "Taxes rise."], model)
        >>> [label.get_text() for label in figure.axes[0].get_yticklabels()]
        ['A cat sleeps.', 'A kitten naps.', 'Taxes rise.']
    """
    figure = new_figure(path)
    listed = texts_of(sentences, "sentences")
    if not listed:
        raise ValueError("there are no sentences, so there is nothing to draw; pass at least one")
    matrix = _as_matrix(listed, scores)
    texts = [shorten(sentence, 60) for sentence in listed]
    few = len(texts) <= _FEW
    size = max(2.0, len(texts) * (0.62 if few else 0.26))
    label_width = (0.072 if few else 0.064) * max(map(count_columns, texts)) + 0.4  # In inches.
    figure.set_size_inches(size + label_width + 1.2, size + (2.2 if few else 0.6))
    axis: Any = figure.subplots()
    # Cosines have the same colour scale in all images.
    cosines = matrix.min() >= -1.001 and matrix.max() <= 1.001
    low, high = (min(0.0, float(matrix.min())), 1.0) if cosines else (float(matrix.min()), float(matrix.max()))
    image = axis.imshow(matrix, cmap="YlGnBu", vmin=low, vmax=high)
    if few:
        _write_few(axis, texts, matrix, low + 0.6 * (high - low))
    else:
        _write_many(axis, texts)
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    figure.colorbar(image, ax=axis, shrink=0.6, label="similarity").outline.set_visible(False)
    figure.draw_without_rendering()
    box = figure.get_tightbbox()  # In inches. The layout leaves too little room beside a square.
    figure.set_figwidth(figure.get_figwidth() + 2 * max(0.0, -box.x0))
    if path is not None:
        figure.savefig(path, dpi=150, bbox_inches="tight")
    return figure


def _as_matrix(sentences: list[str], scores: Compares | Vectors) -> Scores:
    """The matrix of similarities. Shape: (sentences, sentences)."""
    count = len(sentences)
    if isinstance(scores, Compares):
        vectors = scores.encode(sentences)
        scores = scores.similarity(vectors, vectors)
    matrix = check_vectors(scores, "scores")
    if matrix.shape != (count, count):
        raise ValueError(f"scores have shape {matrix.shape}; pass ({count}, {count}), or a model")
    return matrix


def _write_few(axis: Any, texts: list[str], matrix: Scores, dark: float) -> None:
    """Label rows and columns with the sentences, and write each score, in white on cells above ``dark``."""
    positions, look = range(len(texts)), {"parse_math": False, "fontfamily": font_families(), "fontsize": 9}
    axis.set_yticks(positions, texts, **look)
    shorter = [shorten(text, 32) for text in texts]
    axis.set_xticks(positions, shorter, rotation=40, ha="right", rotation_mode="anchor", **look)
    for (row, column), score in np.ndenumerate(matrix):
        color = "white" if score > dark else "black"
        axis.text(column, row, f"{score:.2f}", ha="center", va="center", fontsize=9, color=color)


def _write_many(axis: Any, texts: list[str]) -> None:
    """Label the rows with sentences and numbers, and the columns with the numbers."""
    positions, numbers = range(len(texts)), range(1, len(texts) + 1)
    rows = [f"{text}  {number}" for number, text in enumerate(texts, start=1)]
    axis.set_yticks(positions, rows, parse_math=False, fontfamily=font_families(), fontsize=8)
    axis.set_xticks(positions, numbers, fontsize=8, rotation=90)
    axis.xaxis.tick_top()
