"""Topics of a map: dense places of the layout, and groups of these that mean similar things."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional as F

from sbert.functional import Vectors
from sbert.inputs.arguments import check_count
from sbert.inputs.extras import require
from sbert.search import topic_words
from sbert.visualization.projection import Labels, check_vectors

# Cells along a side of the grid, and the standard deviation of the kernel in mean distances of points, and in cells.
_CELLS, _WIDTH, _LEAST_WIDTH, _MOST_WIDTH = 512, 1.7, 3.0, 32.0
# A topic has at least this number of texts, and ends where the density is below this part of its peak.
_MEMBERS, _FLOOR = 10, 0.3
# Topics of the levels above the finest, and terms in a name.
_LEVELS, _TERMS = (12, 60), 3


class Topics(NamedTuple):
    """The topics of one level.

    Args:
        labels: The topic of each text, -1 for none. Shape: (texts,).
        names: The name of each topic.
    """

    labels: Labels
    names: Sequence[str]

    def of_each(self) -> list[str | None]:
        """The name of the topic of each text, None for no topic.

        Example:
            >>> from sbert.visualization import Topics
            >>> Topics([0, -1], ["cats"]).of_each()
            ['cats', None]
        """
        return [None if label < 0 else self.names[label] for label in self.labels]


def find_topics(
    texts: Sequence[str], vectors: Vectors, points: Vectors, levels: Sequence[int] = _LEVELS
) -> list[Topics]:
    """The topics of a map, from the coarsest level to the finest; each topic is part of one of the level above.

    The finest topics are the dense places of the layout: from each text, the density rises to the peak of its topic.
    Texts of places that are much less dense than the peak have no topic. Topics whose mean vectors are similar are
    joined by Ward's criterion. Names are terms of ``sbert.search.topic_words``.

    Args:
        texts: The texts.
        vectors: Their vectors.
        points: Their points, from ``project_vectors``.
        levels: Greatest numbers of topics of the levels above the finest one, in increasing order.

    Shape:
        vectors: (texts, dim). points: (texts, 2).

    Returns:
        One element per level, fewer where the finest one has few topics; an empty list if no place is dense.

    Raises:
        ImportError: If scipy is not installed.

    References:
        Ward, 1963. https://doi.org/10.1080/01621459.1963.10500845

    Example:
        >>> import numpy as np
        >>> from sbert.visualization import find_topics
        >>> vectors = np.eye(2)[[0] * 20 + [1] * 20]
        >>> topics = find_topics(["a cat"] * 20 + ["income taxes"] * 20, vectors, vectors, levels=[])
        >>> topics[0].names
        ['cat', 'income taxes']
    """
    with require("a map with topics", "scipy", "plot"):
        from scipy.cluster.hierarchy import fcluster, linkage
    finest = _dense_places(torch.from_numpy(check_vectors(points)))
    matrix, count = check_vectors(vectors), int(finest.max(initial=-1)) + 1
    levels_found = [finest]
    if count > 1:
        means = np.stack([matrix[finest == topic].mean(0) for topic in range(count)])  # (topics, dim)
        tree = linkage(means / np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1e-12), "ward")
        for wanted in sorted({check_count("levels", level) for level in levels}, reverse=True):
            if wanted <= count / 2:
                joined = fcluster(tree, wanted, "maxclust")[finest] - 1
                levels_found.insert(0, _by_size(np.where(finest >= 0, joined, -1)))
    return [] if count == 0 else [Topics(labels, _names(texts, labels)) for labels in levels_found]


def _dense_places(points: torch.Tensor) -> npt.NDArray[np.int64]:
    """The place of each point, numbered by size; -1 for none. Shape: (n,)."""
    count = max(len(points), 1)
    width = min(_MOST_WIDTH, max(_LEAST_WIDTH, _WIDTH * _CELLS / count**0.5))
    edge, kernel = int(3 * width), torch.arange(-int(3 * width), int(3 * width) + 1)
    kernel = torch.exp(-(kernel**2) / (2 * width**2))
    cells = points - (points.amin(0) if len(points) else 0)
    cells = (cells * ((_CELLS - 1) / cells.max().clamp(min=1e-12) if len(points) else 1)).round().long()
    cell_of_point = cells[:, 1] * _CELLS + cells[:, 0]  # (n,)
    grid = torch.bincount(cell_of_point, minlength=_CELLS**2).float().view(1, 1, _CELLS, _CELLS)
    grid = F.conv2d(
        F.conv2d(grid, kernel.view(1, 1, 1, -1), padding=(0, edge)), kernel.view(1, 1, -1, 1), padding=(edge, 0)
    )
    upwards = F.max_pool2d(grid, 3, 1, 1, return_indices=True)[1].flatten()  # From each cell to the densest beside it.
    while not torch.equal(upwards, farther := upwards[upwards]):
        upwards = farther
    density = grid.flatten()
    peaks = upwards[cell_of_point]  # (n,)
    peaks[density[cell_of_point] < _FLOOR * density[peaks]] = -1
    cell, place, sizes = np.unique(peaks.numpy(), return_inverse=True, return_counts=True)
    return _by_size(np.where((cell >= 0) & (sizes >= _MEMBERS), np.arange(len(cell)), -1)[place])


def _by_size(labels: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The labels from 0 on, the most frequent first; -1 stays."""
    topics, sizes = np.unique(labels[labels >= 0], return_counts=True)
    numbers = np.full(int(labels.max(initial=-1)) + 2, -1)  # The last one is that of -1.
    numbers[topics[np.argsort(-sizes, kind="stable")]] = np.arange(len(topics))
    return numbers[labels]


def _names(texts: Sequence[str], labels: npt.NDArray[np.int64]) -> list[str]:
    terms = topic_words(texts, labels.tolist(), _TERMS)
    return [", ".join(terms[topic]) or f"topic {topic + 1}" for topic in sorted(terms)]
