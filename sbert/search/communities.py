"""Community detection: groups of vectors around a central vector."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from sbert.functional import Vectors
from sbert.inputs.arguments import check_count, check_threshold, known_arguments
from sbert.search.blocks import Block, prepare_block, prepare_queries
from sbert.search.corpus import in_memory
from sbert.search.scoring import just_below, pairs_above, scores_above, tiles

# Number of centres, and of rows, that are compared in one step.
_CENTRES, _BLOCK = 128, 16384


@known_arguments
def community_detection(vectors: Vectors, threshold: float = 0.75, min_community_size: int = 10) -> list[list[int]]:
    """Groups of vectors whose cosine with the centre of their group reaches a threshold, largest group first.

    Two vectors are neighbours if their cosine is at least ``threshold``. The vector with the most neighbours becomes
    the first centre, and its neighbours are the members. Then the next vector in the order of neighbour counts becomes
    a centre, if enough of its neighbours are still without a group, and so on. Among equal counts, the lower row comes
    first. No vector belongs to two groups.

    The neighbours of all rows may be as many as all pairs and are not stored: a first pass counts them, a second pass
    looks up those of the centres.

    Args:
        vectors: Array or tensor.
        threshold: Minimum cosine between a member and the centre, from -1 to 1.
        min_community_size: Minimum size of a group, its centre included.

    Returns:
        For each group a list of rows: the centre, then the members by decreasing cosine with it; ties by row.

    Shape:
        vectors: (rows, dim).

    Raises:
        ValueError: If the threshold is not a cosine, or a value is NaN or infinite; the message names its row.

    Example:
        >>> vectors = np.array([[1, 0], [0, 1], [0.9, 0.1], [0.8, 0.1], [0.1, 1]])
        >>> community_detection(vectors, threshold=0.9, min_community_size=2)
        [[0, 2, 3], [1, 4]]
    """
    size = check_count("min_community_size", min_community_size)
    check_threshold(threshold)
    values = in_memory("vectors", vectors)
    if not len(values):
        return []
    limit = just_below(threshold)
    block = prepare_block(values, "vectors", "cosine", exact=True)
    return _groups(block, limit, _counts(block, limit), size)


def _counts(block: Block, limit: float) -> npt.NDArray[np.int64]:
    """The number of neighbours of each row, itself included. Shape: (rows,)."""
    total = len(block.values)
    counts = (block.norms > 0).long() if limit >= 0 else torch.ones(total, dtype=torch.int64, device=block.norms.device)
    for queries, low, part, start in tiles(block, "cosine"):
        _, first, second = pairs_above(queries, low, part, start, limit)
        counts += torch.bincount(first, minlength=total) + torch.bincount(second, minlength=total)
    return counts.cpu().numpy()


def _groups(block: Block, limit: float, counts: npt.NDArray[np.int64], size: int) -> list[list[int]]:
    """The groups, from the number of neighbours of each row."""
    order = np.argsort(-counts, kind="stable")
    order = order[counts[order] >= size]
    used = np.zeros(len(counts), bool)
    groups: list[list[int]] = []
    # Rows that became members of an earlier group cannot be centres.
    while len(order := order[~used[order]]):
        centres, order = order[:_CENTRES], order[_CENTRES:]
        for centre, members in zip(centres.tolist(), _neighbours(block, limit, centres), strict=True):
            left = members[~used[members]]
            if not used[centre] and len(left) >= size:
                groups.append([centre, *left[left != centre].tolist()])
                used[left] = used[centre] = True
    return sorted(groups, key=len, reverse=True)


def _neighbours(block: Block, limit: float, centres: npt.NDArray[np.int64]) -> list[npt.NDArray[np.int64]]:
    """The neighbours of each centre by decreasing cosine."""
    queries = prepare_queries(block.values[torch.from_numpy(centres).to(block.values.device)], "cosine")
    parts: list[tuple[np.ndarray, ...]] = []
    for start in range(0, len(block.values), _BLOCK):
        scores, row_ids, query_ids = scores_above(queries, block.part(start, start + _BLOCK), limit)
        parts.append((query_ids.cpu().numpy(), row_ids.cpu().numpy() + start, scores.cpu().numpy()))
    of_centre, neighbours, cosines = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    order = np.lexsort((neighbours, -cosines, of_centre))
    return np.split(neighbours[order], np.searchsorted(of_centre[order], np.arange(1, len(centres))))
