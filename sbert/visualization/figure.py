"""Figures of matplotlib that notebooks display."""

from __future__ import annotations

from io import BytesIO

from matplotlib.figure import Figure


class NotebookFigure(Figure):
    r"""A figure with its own PNG representation: a notebook displays it with and without ``%matplotlib inline``.

    It is not registered in ``matplotlib.pyplot``, so it is displayed once, and freed with its last reference.

    Example:
        >>> from sbert.visualization.figure import NotebookFigure
        >>> NotebookFigure(figsize=(1, 1))._repr_png_()[:4]
        b'\x89PNG'
    """

    def _repr_png_(self) -> bytes:
        """The image as PNG, for notebooks."""
        picture = BytesIO()
        self.savefig(picture, format="png", bbox_inches="tight")
        return picture.getvalue()
