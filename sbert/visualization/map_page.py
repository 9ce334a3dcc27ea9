"""A map of a corpus as one HTML page, without a network: one point per text, with topics, search and columns."""

from __future__ import annotations

import base64
import html
import json
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sbert.functional import Vectors
from sbert.inputs.arguments import known_arguments
from sbert.storage.atomic import write_text
from sbert.visualization.projection import Neighbours, Points, check_vectors, density_peaks
from sbert.visualization.topics import Topics

# Neighbours of each text on the page.
_NEIGHBOURS = 10
# Characters of all texts together, and those that each may have in any case: a page of 100,000 texts has at most 40 MB.
_CHARACTERS, _LEAST_CHARACTERS = 20_000_000, 240
# A column with more distinct values, or with most of them distinct, is text.
_CATEGORIES = 1_000
# Characters of a category; topics of a level.
_NAME, _TOPICS = 100, 2**15 - 1
_NUMBER = re.compile(r"[+-]?(?:(?:0|[1-9]\d{0,14})(?:\.\d*)?|\.\d+)(?:e[+-]?\d{1,2})?", re.IGNORECASE)
# The quantiles of numbers at the ends of a colour scale, so that an outlier does not take all of it.
_RANGE = (0.01, 0.99)


@known_arguments
def map_page(
    texts: Sequence[str],
    points: Vectors,
    topics: Sequence[Topics] = (),
    neighbours: Neighbours | None = None,
    columns: Mapping[str, Sequence[Any]] | None = None,
    color_by: str | None = None,
    title: str = "Map",
    note: str = "",
    path: str | os.PathLike[str] | None = None,
) -> str:
    """The HTML of a page that draws texts as points.

    Names of topics are written at density peaks, finer ones as one zooms in. The search has words in any order, with
    English stems, and with ``neighbours`` also what is similar to its hits. Texts of very large maps are shortened, to
    at least 240 characters.

    Args:
        texts: The texts.
        points: Their points, from ``project_vectors``.
        topics: Levels of topics, from the coarsest to the finest, such as those of ``find_topics``.
        neighbours: Those of ``nearest_neighbours``, of which the first 10 become part of the page.
        columns: More about each text, for the card of a point. A column of numbers, of ISO dates, or of few distinct
            strings can also colour and filter the points. None is a missing value.
        color_by: The column that colours the points at first; default: the topics.
        title: Title of the page.
        note: A remark on the layout, shown below the legend.
        path: Where to save the page, such as ``"map.html"``. By default, it is only returned.

    Shape:
        points: (texts, 2).

    Returns:
        The page, with all data inside.

    Raises:
        OSError: If the file cannot be written.
        ValueError: If there are no texts, points, topics, neighbours or columns are not one per text, or a point is not
            finite.

    Example:
        >>> from sbert.visualization import Topics, map_page
        >>> page = map_page(["A cat.", "Taxes."], [[0.0, 0.0], [1.0, 0.5]], [Topics([0, 1], ["pets", "money"])])
        >>> "https" in page
        False
    """
    positions, rows = check_vectors(points), len(texts)
    if not rows:
        raise ValueError("there are no texts, so there is nothing to draw; pass at least one")
    if positions.shape != (rows, 2):
        raise ValueError(f"points have shape {positions.shape}; pass ({rows}, 2), one point per text")
    columns = columns or {}
    sizes = {name: len(values) for name, values in columns.items()}
    if neighbours is not None:
        sizes["neighbours"] = len(neighbours.indices)
    for name, size in sizes.items():
        if size != rows:
            raise ValueError(f"there are {rows} texts, and {name} has {size} rows; pass one for each text")
    encoded = [_column(name, values) for name, values in columns.items()]
    if color_by is not None and color_by not in [column["name"] for column in encoded if column["kind"] != "text"]:
        kinds = ", ".join(f"{column['name']} ({column['kind']})" for column in encoded) or "none"
        raise ValueError(f"color_by={color_by!r} is not a column of numbers, dates or categories; the columns: {kinds}")
    low, high = positions.min(0), positions.max(0)
    centred = (positions - (low + high) / 2) * (2 / max(float((high - low).max()), 1e-12))  # From -1 to 1.
    levels = [_level(level, centred) for level in topics]
    if scattered := sum(level.pop("scattered") for level in levels):
        are = "1 topic is" if scattered == 1 else f"{scattered} topics are"
        note = f"{note} {are} scattered among others, and named only in the legend.".strip()
    most = max(_LEAST_CHARACTERS, _CHARACTERS // rows)
    data = {
        "texts": [_shorten(text, most) for text in texts],
        "points": _base64(np.round((centred + 1) * 32767.5), "<u2"),
        "levels": levels,
        "neighbours": None if neighbours is None else _neighbours(neighbours),
        "columns": encoded,
        "colour": color_by,
    }
    templates = files("sbert.visualization") / "templates"
    # Escaped, so that no text can end the <script> element that contains it.
    filled = {"DATA": json.dumps(data, ensure_ascii=False).replace("<", "\\u003c")}
    filled |= {"TITLE": html.escape(title), "NOTE": html.escape(note)}
    for name, file in {"STYLE": "map.css", "SCRIPT": "map.js"}.items():
        filled[name] = (templates / file).read_text(encoding="utf-8")
    template = (templates / "map.html").read_text(encoding="utf-8")
    page = re.sub(f"__({'|'.join(filled)})__", lambda place: filled[place[1]], template)
    page = page.encode("utf-8", "replace").decode("utf-8")  # UTF-8 cannot encode half a surrogate pair.
    if path is not None:
        write_text(Path(path), page)
    return page


def _level(topics: Topics, points: Points) -> dict[str, Any]:
    labels, names = np.asarray(topics.labels), list(topics.names)
    if labels.shape != (len(points),) or labels.dtype.kind not in "iu" or labels.min() < -1:
        raise ValueError(f"labels are {labels!r:.60}; pass {len(points)} integers, -1 for texts without topic")
    if len(names) <= labels.max():
        raise ValueError(f"labels name {labels.max() + 1} topics, and names {len(names)}; pass one name per topic")
    if len(names) > _TOPICS:
        raise ValueError(f"there are {len(names):,} topics; pass at most {_TOPICS:,}")
    peaks = density_peaks(points, labels, len(names))
    scattered = len(np.setdiff1d(labels[labels >= 0], np.flatnonzero(peaks >= 0)))
    return {"names": names, "labels": _base64(labels, "<i2"), "peaks": peaks.tolist(), "scattered": scattered}


def _neighbours(neighbours: Neighbours) -> dict[str, Any]:
    rows, cosines = neighbours.indices[:, :_NEIGHBOURS], neighbours.cosines[:, :_NEIGHBOURS]
    shares = np.round(255 * np.clip(cosines, 0, 1))
    return {"size": rows.shape[1], "rows": _base64(rows, "<u4"), "cosines": _base64(shares, "u1")}


def parse_column(values: Sequence[Any]) -> npt.NDArray[Any]:
    """A column as numbers, as dates, or as strings: the first that all of its values can be; None and "" are missing.

    What would look different as a number, such as an id with leading zeros or of more than 15 digits, is a string.

    Example:
        >>> from sbert.visualization.map_page import parse_column
        >>> parse_column(["1", None, "2.5"]), parse_column(["007", None])
        (array([1. , nan, 2.5]), array(['007', ''], dtype=object))
    """
    if isinstance(values, np.ndarray) and values.dtype.kind == "M":
        return values.astype("datetime64[s]")
    strings = ["" if value is None or value != value else str(value) for value in values]
    strings = ["" if string.lower() in ("nan", "nat") else string for string in strings]
    present = list(filter(None, strings))
    if present and all(map(_NUMBER.fullmatch, present)):
        return np.array([float(string or "nan") for string in strings])
    with suppress(ValueError, OverflowError):
        if present:
            return np.array([np.datetime64(_seconds(string) if string else "NaT", "s") for string in strings])
    return np.array(strings, object)


def _seconds(string: str) -> int:
    """Seconds from 1970 to a date or time in ISO form; without a time zone, in UTC."""
    time = datetime.fromisoformat(string)
    return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp())


def _column(name: str, values: Sequence[Any]) -> dict[str, Any]:
    """A column for the page: numbers and seconds of dates with their range, categories by size, or texts."""
    parsed = parse_column(values)
    if parsed.dtype.kind != "O":
        is_date = parsed.dtype.kind == "M"
        numbers = np.where(np.isnat(parsed), np.nan, parsed.astype(float)) if is_date else parsed
        span = np.nanquantile(numbers, _RANGE).tolist()
        return {"name": name, "kind": "date" if is_date else "number", "values": _base64(numbers, "<f8"), "range": span}
    sizes = Counter(filter(None, parsed))
    if len(sizes) > min(_CATEGORIES, max(2, len(parsed) // 2)) or max(map(len, sizes), default=0) > _NAME:
        return {"name": name, "kind": "text", "values": [_shorten(string, _LEAST_CHARACTERS) for string in parsed]}
    names = sorted(sizes, key=lambda category: (-sizes[category], category))
    codes = {category: number for number, category in enumerate(names)} | {"": -1}
    labels = np.array([codes[string] for string in parsed])
    return {"name": name, "kind": "category", "names": names, "values": _base64(labels, "<i2")}


def _shorten(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _base64(numbers: npt.NDArray[Any], dtype: str) -> str:
    return base64.b64encode(np.ascontiguousarray(numbers).astype(dtype).tobytes()).decode("ascii")
