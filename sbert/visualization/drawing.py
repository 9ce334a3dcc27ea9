"""What all pictures share: a figure of their own or the caller's axes, and the file they are saved to."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from sbert.inputs.extras import require

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Where to save an image; None for nowhere.
Path = str | os.PathLike[str] | None
# They differ from each other, and from white and black grounds, also for readers with red-green colour blindness.
COLOURS = ("#4890ff", "#d87800", "#6018ff", "#187890", "#904830")
MARKERS = "os^Dv"
_DASHES = ("-", "--", ":", "-.")


def new_figure(path: Path = None, ax: Axes | None = None) -> Figure:
    """An empty figure, or that of ``ax``, after a check that matplotlib can write it, before the work that it shows.

    Args:
        path: Path of the image, if it will be saved.
        ax: Axes of the caller to draw into, if there are. A figure without a layout engine gets matplotlib's
            constrained layout, so that no label lies outside.

    Raises:
        ImportError: If matplotlib is not installed.
        TypeError: If ``path`` is not a file name, or ``ax`` is not axes.
        ValueError: If matplotlib has no format with this file extension.

    Example:
        >>> from sbert.visualization.drawing import new_figure
        >>> new_figure("curves.png").axes
        []
    """
    with require("a plot", "matplotlib", "plot"):
        import matplotlib.axes
    from sbert.visualization.figure import NotebookFigure

    if ax is None:
        figure: Figure = NotebookFigure(layout="constrained")
    elif isinstance(ax, matplotlib.axes.Axes):
        figure = ax.figure.figure
        if figure.get_layout_engine() is None:
            figure.set_layout_engine("constrained")
    else:
        raise TypeError(f"ax is of type {type(ax).__name__}; pass axes of matplotlib, such as one of plt.subplots()[1]")
    if path is None:
        return figure
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"path is of type {type(path).__name__}; pass a file name, and all else by name, as labels=…")
    formats, suffix = figure.canvas.get_supported_filetypes(), os.path.splitext(path)[1].lower().removeprefix(".")
    if suffix not in formats:
        raise ValueError(f"{str(path)!r} has no file extension of matplotlib; use one of {', '.join(formats)}")
    return figure


def new_axes(figure: Figure, ax: Axes | None, width: float, height: float) -> Any:
    """The axes to draw into: those of the caller, or the only ones of ``figure``, which gets this size in inches.

    Example:
        >>> from sbert.visualization.drawing import new_axes, new_figure
        >>> figure = new_figure()
        >>> new_axes(figure, None, 8, 4) is figure.axes[0]
        True
    """
    if ax is not None:
        return ax
    figure.set_size_inches(width, height)
    return figure.subplots()


def save_figure(figure: Figure, path: Path) -> Figure:
    """Save the figure with all of its labels, if there is a path; return it.

    Example:
        >>> from sbert.visualization.drawing import new_figure, save_figure
        >>> save_figure(new_figure(), None).axes
        []
    """
    if path is not None:
        figure.savefig(path, dpi=150, bbox_inches="tight")
    return figure


def style_of(number: int) -> dict[str, Any]:
    """How to draw line ``number``: the first 20 differ in more than their colour, and show where they coincide.

    Example:
        >>> from sbert.visualization.drawing import style_of
        >>> style_of(0)
        {'color': '#4890ff', 'marker': 'o', 'linestyle': '-'}
    """
    turn, colour = divmod(number, len(COLOURS))
    marker, dashes = MARKERS[(number + turn) % len(MARKERS)], _DASHES[number % len(_DASHES)]
    return {"color": COLOURS[colour], "marker": marker, "linestyle": dashes}
