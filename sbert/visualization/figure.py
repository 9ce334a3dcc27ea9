"""A figure of matplotlib that every notebook shows."""

from __future__ import annotations

from io import BytesIO

from matplotlib.figure import Figure


class NotebookFigure(Figure):
    r"""A figure that carries its own picture: a notebook shows it with and without ``%matplotlib inline``.

    It belongs to no window and no list of ``matplotlib.pyplot``, so it is freed with its last name, and shown once.

    Example:
        >>> NotebookFigure(figsize=(1, 1))._repr_png_()[:4]
        b'\x89PNG'
    """

    def _repr_png_(self) -> bytes:
        """The picture as PNG, which is what a notebook asks for."""
        picture = BytesIO()
        self.savefig(picture, format="png", bbox_inches="tight")
        return picture.getvalue()
