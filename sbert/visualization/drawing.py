"""Empty figures, and the file formats of images."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from sbert.inputs.extras import require

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def new_figure(path: str | os.PathLike[str] | None = None) -> Figure:
    """An empty figure, after a check that matplotlib can write it, before the work whose result it shows.

    Args:
        path: Path of the image, if it will be saved.

    Raises:
        ImportError: If matplotlib is not installed.
        TypeError: If ``path`` is not a file name.
        ValueError: If matplotlib has no format with this file extension.

    Example:
        >>> new_figure("curves.png").axes
        []
    """
    with require("a plot", "matplotlib", "plot"):
        import matplotlib.figure  # noqa: F401
    from sbert.visualization.figure import NotebookFigure

    figure = NotebookFigure(layout="constrained")
    if path is None:
        return figure
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"path is of type {type(path).__name__}; pass a file name, and all else by name, as labels=…")
    known, suffix = figure.canvas.get_supported_filetypes(), Path(path).suffix.lower().removeprefix(".")
    if suffix not in known:
        raise ValueError(f"{str(path)!r} has no file extension that matplotlib supports; use one of {', '.join(known)}")
    return figure
