"""The file formats of images."""

from __future__ import annotations

import os
from pathlib import Path

from sbert.inputs.extras import needed


def check_plot(path: str | os.PathLike[str]) -> None:
    """Check that matplotlib can write an image, before the work whose result it shows.

    Args:
        path: Path of the image.

    Raises:
        ImportError: If matplotlib is not installed.
        TypeError: If ``path`` is not a file name.
        ValueError: If matplotlib has no format with this file extension.

    Example:
        >>> check_plot("curves.png")
    """
    with needed("a plot", "matplotlib", "plot"):
        from matplotlib.figure import Figure
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"path is of type {type(path).__name__}; pass a file name, and all else by name, as labels=…")
    known = Figure().canvas.get_supported_filetypes()
    if Path(path).suffix.lower().removeprefix(".") not in known:
        raise ValueError(
            f"plot {os.fspath(path)!r} has no file extension that matplotlib supports; use one of"
            f" {', '.join(sorted(known))}"
        )
