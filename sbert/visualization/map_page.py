"""A map of a corpus as one HTML page: one point per text, with search and zoom, without a network."""

from __future__ import annotations

import base64
import html
import json
import os
import re
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sbert.functional import Vectors
from sbert.inputs.arguments import known_arguments
from sbert.storage.atomic import write_text
from sbert.visualization.projection import Labels, check_vectors, density_peaks


@known_arguments
def map_page(
    texts: Sequence[str],
    points: Vectors,
    labels: Labels | None = None,
    names: Sequence[str] | None = None,
    title: str = "Map",
    note: str = "",
    path: str | os.PathLike[str] | None = None,
) -> str:
    """The HTML of a page that draws texts as points.

    The name of a cluster is written at its density peak (``density_peaks``); a cluster that is scattered among others
    is named only in the legend.

    Args:
        texts: The texts.
        points: Coordinates of the texts, from ``project``.
        labels: The cluster of each text, from 0; -1 for no cluster.
        names: Names of the clusters.
        title: Title of the page.
        note: A remark on the layout, shown above the legend.
        path: Where to save the page, such as ``"map.html"``. By default, it is only returned.

    Shape:
        points: (texts, 2). labels: (texts,).

    Returns:
        The page, with all data inside.

    Raises:
        OSError: If the file cannot be written.
        ValueError: If there are no texts, the points or labels have a wrong shape, or a point is not finite.

    Example:
        >>> page = map_page(["A cat.", "Taxes."], [[0.0, 0.0], [1.0, 0.5]], labels=[0, 1])
        >>> "https" in page
        False
    """
    positions = check_vectors(points)
    if not len(texts):
        raise ValueError("there are no texts, so there is nothing to draw; pass at least one")
    if positions.shape != (len(texts), 2):
        raise ValueError(f"points have shape {positions.shape}; pass ({len(texts)}, 2), one point per text")
    clusters = np.full(len(texts), -1) if labels is None else np.asarray(labels)
    if clusters.shape != (len(texts),) or clusters.dtype.kind not in "iu" or clusters.min() < -1:
        raise ValueError(f"labels are {clusters!r:.60}; pass {len(texts)} integers, -1 for texts without cluster")
    count = int(clusters.max(initial=-1)) + 1
    names = [f"cluster {number + 1}" for number in range(count)] if names is None else list(names)
    if len(names) < count:
        raise ValueError(f"labels name {count} clusters, and names {len(names)}; pass one name per cluster")
    low, high = positions.min(0), positions.max(0)
    size = max(float((high - low).max()), 1e-12)
    centred = (positions - (low + high) / 2) * (2 / size)  # From -1 to 1.
    peaks = density_peaks(centred, clusters, len(names))
    if scattered := len(np.setdiff1d(clusters[clusters >= 0], np.flatnonzero(peaks >= 0))):
        are = "1 cluster is" if scattered == 1 else f"{scattered} clusters are"
        note = f"{note} {are} scattered among others, and named only in the legend.".strip()
    data = {
        "texts": list(texts),
        "names": names,
        "points": _base64(centred.astype("<f4")),
        "labels": _base64(clusters.astype("<i4")),
        "peaks": peaks.tolist(),
    }
    # Escaped, so that no text can end the <script> element that contains it.
    written = json.dumps(data, ensure_ascii=False).replace("<", "\\u003c")
    filled = {"TITLE": html.escape(title), "NOTE": html.escape(note), "DATA": written}
    template = (files("sbert.visualization") / "templates" / "map.html").read_text(encoding="utf-8")
    page = re.sub("__(TITLE|NOTE|DATA)__", lambda place: filled[place[1]], template)
    page = page.encode("utf-8", "replace").decode("utf-8")  # UTF-8 cannot encode half a surrogate pair.
    if path is not None:
        write_text(Path(path), page)
    return page


def _base64(numbers: npt.NDArray[Any]) -> str:
    return base64.b64encode(numbers.tobytes()).decode("ascii")
