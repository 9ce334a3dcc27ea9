"""Pictures: the curves of a training run, how alike sentences are, and a map of a corpus."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable
from unicodedata import east_asian_width

from sbert.inputs.arguments import known_arguments
from sbert.inputs.extras import missing
from sbert.inputs.vectors import vectors_of

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.figure import Figure

History = Sequence[Mapping[str, Any]] | str | os.PathLike[str]

_LOSS, _RATE = "tab:blue", "0.45"
# Up to so many sentences, each stands beside its column, too, and each score in its cell.
_FEW = 12
# Clusters that share a colour have points of different form.
_COLOURS = (
    *("#2f6fdb", "#e07b00", "#1e9448", "#d1344b", "#8a4fd0", "#8c5a3c"),
    *("#d64fa8", "#4b5a66", "#94960a", "#0aa0b4", "#0b3d91", "#f2a28c"),
)
_FORMS = "os^Dv"
_NONE = "0.7"
# Up to so many texts are written beside their points.
_WRITTEN = 30
# Fonts of other scripts, for those of the texts that matplotlib's own does not have.
_FONTS = ("Noto Sans CJK KR", "Noto Sans CJK JP", "NanumGothic", "Malgun Gothic", "Apple SD Gothic Neo", "Unifont")
_SCORES = ("tab:orange", "tab:green", "tab:red", "tab:purple", "tab:brown", "tab:pink")


def check_plot(path: str | os.PathLike[str]) -> None:
    """Say at once, and not after hours, that a picture cannot be drawn.

    Args:
        path: Of the picture.

    Raises:
        ImportError: If matplotlib is not installed.
        ValueError: If matplotlib draws no pictures of that kind.

    Example:
        >>> check_plot("curves.png")
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise missing("a plot", "matplotlib", "plot") from error
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"path is of type {type(path).__name__}; pass a file name, and all else by name, as labels=…")
    known = Figure().canvas.get_supported_filetypes()
    if Path(path).suffix.lower().removeprefix(".") not in known:
        raise ValueError(
            f"plot {os.fspath(path)!r} has no ending that matplotlib knows; pass one of {', '.join(sorted(known))}"
        )


@known_arguments
def training_curves(history: History, path: str | os.PathLike[str] | None = None) -> Figure:
    """Loss and learning rate over the steps of a training run, and its evaluations as points.

    Args:
        history: What ``Trainer.fit`` returns, or the path of a ``history.jsonl``.
        path: Where to save the picture, in a format that its ending says; it is only returned without.

    Raises:
        FileNotFoundError: If there is no such history.
        ImportError: If matplotlib is not installed.
        ValueError: If matplotlib draws no pictures of that kind, or if the history is empty or
            a line of it is no entry.

    Example:
        >>> history = [{"step": 10, "loss": 0.7, "learning_rate": 2e-5}, {"step": 20, "loss": 0.4, "learning_rate": 0}]
        >>> figure = training_curves([*history, {"step": 20, "evaluation": {"spearman": 0.8}}])
        >>> sorted(axis.get_ylabel() for axis in figure.axes)
        ['learning rate', 'loss', 'spearman']
    """
    check_plot("curves.png" if path is None else path)
    from sbert.visualization.figure import NotebookFigure

    entries = _read(Path(history)) if isinstance(history, (str, os.PathLike)) else _entries(history)
    steps = [entry for entry in entries if "loss" in entry]
    evaluations = [entry for entry in entries if "evaluation" in entry]
    if not steps and not evaluations:
        raise ValueError("the history has no entries, so there is nothing to draw; train at least one step")

    figure = NotebookFigure(figsize=(8, 6 if evaluations else 4), layout="constrained")
    axes = figure.subplots(2 if evaluations else 1, 1, sharex=True, squeeze=False)[:, 0]
    _draw_steps(axes[0], steps)
    if evaluations:
        _draw_evaluations(axes[1], evaluations)
    axes[-1].set_xlabel("step")
    axes[-1].set_xlim(left=0)
    if path is not None:
        figure.savefig(path, dpi=150)
    return figure


def _entries(history: Any) -> list[Mapping[str, Any]]:
    if not isinstance(history, Sequence):
        raise TypeError(
            f"history is of type {type(history).__name__}; pass what Trainer.fit returns, or the path of a"
            " history.jsonl"
        )
    for row, entry in enumerate(history):
        if not isinstance(entry, Mapping) or "step" not in entry:
            raise TypeError(f"history[{row}] is {entry!r:.60}, no entry of a history; pass what Trainer.fit returns")
    return list(history)


def _read(path: Path) -> list[dict[str, Any]]:
    entries = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            entry = json.loads(line)
        except ValueError:
            entry = None
        if not isinstance(entry, dict) or "step" not in entry:
            raise ValueError(f"{path}, line {number}: no entry of a history; pass the history.jsonl of a training run")
        entries.append(entry)
    return entries


def _draw_steps(axis: Any, steps: list[Mapping[str, Any]]) -> None:
    """The loss on the left scale, the learning rate on the right one."""
    at = [entry["step"] for entry in steps]
    # A single point makes no line.
    axis.plot(at, [entry["loss"] for entry in steps], color=_LOSS, marker="o" if len(at) == 1 else None, zorder=3)
    axis.set_ylabel("loss", color=_LOSS)
    axis.tick_params(axis="y", colors=_LOSS)
    rates = axis.twinx()
    rates.plot(at, [entry["learning_rate"] for entry in steps], color=_RATE, linestyle="--", linewidth=1)
    rates.set_ylabel("learning rate", color=_RATE)
    rates.tick_params(axis="y", colors=_RATE)
    rates.set_ylim(bottom=0)
    rates.ticklabel_format(axis="y", style="sci", scilimits=(0, 0))
    for side in (axis, rates):
        side.spines["top"].set_visible(False)
    axis.grid(alpha=0.25)


def _draw_evaluations(axis: Any, evaluations: list[Mapping[str, Any]]) -> None:
    """A line of points for each figure of merit, its best one named."""
    names = list(dict.fromkeys(name for entry in evaluations for name in entry["evaluation"]))
    for number, name in enumerate(names):
        points = [(entry["step"], entry["evaluation"][name]) for entry in evaluations if name in entry["evaluation"]]
        color = _SCORES[number % len(_SCORES)]
        axis.plot(*zip(*points, strict=True), color=color, marker="o", markersize=5, linewidth=1.2, label=name)
        finite = [point for point in points if point[1] == point[1]]
        if finite:
            best = max(finite, key=lambda point: point[1])
            axis.annotate(
                f"{best[1]:.4f}", best, xytext=(0, 7), textcoords="offset points", ha="center", color=color, fontsize=9
            )
    axis.margins(y=0.18)  # Room for the figures above the points.
    axis.set_ylabel(names[0] if len(names) == 1 else "evaluation")
    if len(names) > 1:
        axis.legend(frameon=False)
    axis.grid(alpha=0.25)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)


# ----------------------------------------------------------------------------------------------------- heat map


@runtime_checkable
class Compares(Protocol):
    """A model that encodes sentences and compares their vectors, as ``SentenceEncoder`` does."""

    def encode(self, sentences: Sequence[str]) -> Any:
        """A vector a sentence."""
        ...

    def similarity(self, a: Any, b: Any) -> Any:
        """Of every vector with every vector."""
        ...


@known_arguments
def similarity_heatmap(
    sentences: Sequence[str], scores: Compares | Any, path: str | os.PathLike[str] | None = None
) -> Figure:
    """How alike sentences are, as a matrix of colours.

    Args:
        sentences: The sentences; 2 to 40 are easy to read.
        scores: A model, or the similarities.
        path: Where to save the picture, in a format that its ending says; it is only returned without.

    Shape:
        scores: (sentences, sentences).

    Raises:
        ImportError: If matplotlib is not installed.
        ValueError: If matplotlib draws no pictures of that kind, or if the similarities are
            not finite or not a row and a column for each sentence.

    Example:
        >>> figure = similarity_heatmap(["A cat sleeps.", "A kitten naps.", "Taxes rise."], model)
        >>> [label.get_text() for label in figure.axes[0].get_yticklabels()]
        ['A cat sleeps.', 'A kitten naps.', 'Taxes rise.']
    """
    check_plot("heatmap.png" if path is None else path)
    import numpy as np

    from sbert.inputs.texts import texts_of
    from sbert.visualization.figure import NotebookFigure

    listed = texts_of(sentences, "sentences")
    texts = [_short(sentence, 60) for sentence in listed]
    count = len(texts)
    if not count:
        raise ValueError("there are no sentences, so there is nothing to draw; pass at least one")
    if isinstance(scores, Compares):
        vectors = scores.encode(listed)
        scores = scores.similarity(vectors, vectors)
    try:
        matrix = vectors_of("scores", scores).detach().float().cpu().numpy()  # (sentences, sentences)
    except (TypeError, ValueError) as error:
        raise type(error)(f"scores are {scores!r:.60}; pass a model, or numbers ({count}, {count})") from error
    if matrix.shape != (count, count):
        raise ValueError(f"scores have shape {matrix.shape}; pass ({count}, {count}), or a model")
    if not np.isfinite(matrix).all():
        raise ValueError(f"scores[{int((~np.isfinite(matrix)).any(1).argmax())}] are not all finite; check the vectors")

    few = count <= _FEW
    size = max(2.0, count * (0.62 if few else 0.26))
    beside = (0.072 if few else 0.064) * max(map(_columns, texts)) + 0.4  # Inches that the sentences take.
    figure = NotebookFigure(figsize=(size + beside + 1.2, size + (2.2 if few else 0.6)), layout="constrained")
    axis: Any = figure.subplots()
    # Cosines keep one scale from picture to picture.
    cosines = matrix.min() >= -1.001 and matrix.max() <= 1.001
    low, high = (min(0.0, float(matrix.min())), 1.0) if cosines else (float(matrix.min()), float(matrix.max()))
    image = axis.imshow(matrix, cmap="YlGnBu", vmin=low, vmax=high)
    if few:
        for row, column in np.ndindex(count, count):
            dark = matrix[row, column] > low + 0.6 * (high - low)
            shown = f"{matrix[row, column]:.2f}"
            axis.text(column, row, shown, ha="center", va="center", fontsize=9, color="white" if dark else "black")
    rows = texts if few else [f"{text}  {number}" for number, text in enumerate(texts, start=1)]
    axis.set_yticks(range(count), rows, parse_math=False, fontfamily=_families(), fontsize=9 if few else 8)
    if few:
        turned = {"rotation": 40, "ha": "right", "rotation_mode": "anchor"}
        columns = [_short(text, 32) for text in texts]
        axis.set_xticks(range(count), columns, parse_math=False, fontfamily=_families(), fontsize=9, **turned)
    else:
        axis.set_xticks(range(count), range(1, count + 1), fontsize=8, rotation=90)
        axis.xaxis.tick_top()
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    figure.colorbar(image, ax=axis, shrink=0.6, label="similarity").outline.set_visible(False)
    figure.draw_without_rendering()
    box = figure.get_tightbbox()  # In inches. The layout leaves too little room beside a square.
    figure.set_figwidth(figure.get_figwidth() + 2 * max(0.0, -box.x0))
    if path is not None:
        figure.savefig(path, dpi=150, bbox_inches="tight")
    return figure


def _listed(name: str, texts: Any) -> list[str]:
    """Texts as a list; a TypeError where they are something else."""
    if isinstance(texts, str) or not isinstance(texts, Iterable):
        found = repr(texts)[:60] if isinstance(texts, str) else f"of type {type(texts).__name__}"
        raise TypeError(f"{name} must be a list of texts, not {found}")
    listed = list(texts)
    for row, text in enumerate(listed):
        if not isinstance(text, str):
            raise TypeError(f"{name}[{row}] is of type {type(text).__name__}; pass only str")
    return listed


def _short(text: str, most: int) -> str:
    """The text on one line, cut where it is long."""
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1].rstrip() + "…"


def _columns(text: str) -> int:
    """How wide a text is, in letters; those of East Asia count twice."""
    return sum(2 if east_asian_width(character) in "WF" else 1 for character in text)


def _families() -> list[str]:
    """Matplotlib's font, and behind it those that are here and have other scripts."""
    from matplotlib.font_manager import fontManager

    here = {font.name for font in fontManager.ttflist}
    return ["DejaVu Sans", *(name for name in _FONTS if name in here)]


# ---------------------------------------------------------------------------------------------- map of a corpus


@known_arguments
def corpus_map(
    vectors: Any,
    path: str | os.PathLike[str] | None = None,
    labels: Sequence[Any] | np.ndarray | None = None,
    texts: Sequence[str] | None = None,
) -> Figure:
    """The vectors of a corpus as points in a plane, in the colours of their clusters.

    Args:
        vectors: Of the texts; where they are of dim 2, they are the points.
        path: Where to save the picture, in a format that its ending says; it is only returned without.
        labels: The cluster of each, a number or a name; -1 or None where it has none.
        texts: What the points say. Up to 30 are written beside them; of more, one for each cluster: its medoid, whose
            cosines with the cluster's other vectors have the greatest mean; or of points, the one where they lie
            densest.

    Shape:
        vectors: (n, dim). labels, texts: (n,).

    Raises:
        ImportError: If matplotlib is not installed.
        ValueError: If matplotlib draws no pictures of that kind, if the vectors are no matrix
            of finite numbers, or there are not as many labels or texts.

    Example:
        >>> vectors = model.encode(["A cat sleeps.", "A kitten naps.", "Taxes rise."])
        >>> figure = corpus_map(vectors, labels=["pets", "pets", "money"])
        >>> [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
        ['pets (2)', 'money (1)']
    """
    check_plot("map.png" if path is None else path)
    import numpy as np

    from sbert.visualization.figure import NotebookFigure
    from sbert.visualization.projection import NAMES, check_vectors, choose, project

    matrix = check_vectors(vectors)
    texts = None if texts is None else _listed("texts", texts)
    if isinstance(labels, str) or not (labels is None or isinstance(labels, Iterable)):
        raise TypeError(f"labels must be a list, the cluster of each vector, not {labels!r:.60}")
    labels = None if labels is None else list(labels)
    for name, given in (("labels", labels), ("texts", texts)):
        if given is not None and len(given) != len(matrix):
            raise ValueError(f"there are {len(matrix)} vectors and {len(given)} {name}; pass as many of each")
    method = None if matrix.shape[1] == 2 else choose(len(matrix))[0]
    points = matrix if method is None else project(matrix)  # (n, 2)
    clusters = _by_cluster(labels, len(points))
    figure = NotebookFigure(figsize=(9, 7), layout="constrained")
    axis: Any = figure.subplots()
    size = float(np.clip(3000 / max(len(points), 1), 3, 45))
    without = sum(name is None for name, _ in clusters) if labels is not None else 0
    colours = []
    for number, (name, rows) in enumerate(clusters, start=-without):
        colours.append(_NONE if number < 0 else _COLOURS[number % len(_COLOURS)])
        axis.scatter(
            *points[rows].T,
            s=size,
            color=colours[-1],
            marker=_FORMS[max(number, 0) // len(_COLOURS) % len(_FORMS)],
            alpha=0.8 if len(points) < 2000 else 0.55,
            linewidths=0,
            zorder=1 if len(points) > _WRITTEN else 4,
            label=f"{'no cluster' if name is None else name} ({len(rows):,})",
        )
    axis.set_aspect("equal", adjustable="datalim")
    axis.set_xticks([])
    axis.set_yticks([])
    axis.spines[:].set_color("0.8")
    if method is not None:
        axis.set_xlabel(NAMES[method], loc="right", fontsize=8, color="0.4")
    if labels is not None and len(points):
        legend = axis.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False, fontsize=9, labelspacing=0.6)
        for handle, text in zip(legend.legend_handles, legend.get_texts(), strict=True):
            handle.set(sizes=[40], alpha=1)
            text.set(parse_math=False, fontfamily=_families())
    if texts is not None:
        written = list(range(len(points)))
        if len(points) > _WRITTEN:
            typical = _typical(matrix, method is None, [rows for _, rows in clusters])
            of = [place for place, (name, _) in enumerate(clusters) if name is not None and typical[place] >= 0]
            written = [typical[place] for place in of]
            # Which point a text belongs to, and so which cluster it is of, has to be seen among many.
            ring = {"facecolors": [colours[place] for place in of], "edgecolors": "black", "linewidths": 0.8}
            axis.scatter(*points[written].T, s=30, zorder=2, **ring)
        _write_texts(figure, axis, points, written, texts)
    if path is not None:
        figure.savefig(path, dpi=150)
    return figure


def _by_cluster(labels: Sequence[Any] | np.ndarray | None, count: int) -> list[tuple[Any, np.ndarray]]:
    """Each cluster's name with its rows, the largest first; those of no cluster first of all, below the others."""
    import numpy as np

    if labels is None:
        return [(None, np.arange(count))]
    rows: dict[Any, list[int]] = {}
    for row, label in enumerate(labels):
        name = label.item() if isinstance(label, np.generic) else label
        rows.setdefault(None if name == -1 else name, []).append(row)
    named = sorted(rows.items(), key=lambda item: (item[0] is not None, -len(item[1])))
    return [(name, np.array(own)) for name, own in named]


def _typical(vectors: np.ndarray, plane: bool, clusters: list[np.ndarray]) -> list[int]:
    """A row of each cluster: its medoid by cosine; in a plane, that where it lies densest, or -1."""
    import numpy as np

    if plane:
        from sbert.visualization.projection import density_peaks

        labels = np.empty(len(vectors), np.int64)
        for number, rows in enumerate(clusters):
            labels[rows] = number
        found: list[int] = density_peaks(vectors, labels, len(clusters)).tolist()
        return found
    chosen = []
    for rows in clusters:
        own = vectors[rows].astype(np.float64)  # (members, dim)
        own /= np.maximum(np.linalg.norm(own, axis=1, keepdims=True), 1e-12)
        chosen.append(int(rows[(own @ own.sum(0)).argmax()]))
    return chosen


def _write_texts(figure: Figure, axis: Any, points: np.ndarray, chosen: Sequence[int], texts: Sequence[str]) -> None:
    """Some of the texts beside their points; one that would cover another is moved up or down, or else left out."""
    from matplotlib.patheffects import withStroke
    from matplotlib.transforms import Bbox

    figure.draw_without_rendering()  # From here on it is known where things stand.
    edge = axis.get_window_extent()
    taken = [Bbox.from_bounds(x - 4, y - 4, 8, 8) for x, y in axis.transData.transform(points[list(chosen)])]
    for row in chosen:
        note = axis.annotate(
            _short(texts[row], 40),
            points[row],
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
            parse_math=False,
            fontfamily=_families(),
            path_effects=[withStroke(linewidth=2.5, foreground="white")],
        )
        for up, left in product((0, 7, -7, 14, -14, 21, -21), (False, True)):
            note.set(position=(-6 if left else 6, up), ha="right" if left else "left")
            box = note.get_window_extent()
            if edge.x0 <= box.x0 and box.x1 <= edge.x1 and not any(box.overlaps(other) for other in taken):
                taken.append(box)
                break
        else:
            note.remove()
