"""Groups of vectors around one of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from sbert.inputs.arguments import check_count, check_threshold, known_arguments
from sbert.search.corpus import held
from sbert.search.paraphrases import pairs_above, tiles
from sbert.search.scoring import Queries, Rows, rows

# Centres whose neighbours are looked up at once, and rows that these are compared with at once.
_CENTRES, _BLOCK = 128, 16384


@known_arguments
def community_detection(vectors: Any, threshold: float = 0.75, min_community_size: int = 10) -> list[list[int]]:
    """Groups of vectors whose cosine with the centre of their group is at least a threshold, the largest first.

    The vector with the most neighbours is the centre of the first group, and its neighbours are its members. Of the
    vectors that are left, the one that had the most neighbours is next, if enough of these are left. Of as many, the
    first row comes first.

    Neighbours are counted first, and looked up for those alone that become centres, so that they need not be held:
    there may be as many as pairs.

    Args:
        vectors: Array or tensor.
        threshold: The least cosine of a member with the centre.
        min_community_size: Of a group, its centre included.

    Returns:
        The rows of each group: its centre, and the others by their cosine with it, of equal ones the first row first.

    Shape:
        vectors: (rows, dim).

    Raises:
        ValueError: If the threshold is no cosine, or a number is NaN or infinite, naming its row.

    Example:
        >>> vectors = np.array([[1, 0], [0, 1], [0.9, 0.1], [0.8, 0.1], [0.1, 1]])
        >>> community_detection(vectors, threshold=0.9, min_community_size=2)
        [[0, 2, 3], [1, 4]]
    """
    size = check_count("min_community_size", min_community_size)
    check_threshold(threshold)
    values = held("vectors", vectors)
    if not len(values):
        return []
    # What is just as great as the threshold counts, too.
    limit = float(np.nextafter(np.float32(threshold), np.float32(-np.inf)))
    block = rows(values, "vectors", "cosine", exact=True)
    return _groups(block, limit, _counts(block, limit), size)


def _counts(block: Rows, limit: float) -> np.ndarray:
    """How many neighbours each row has, itself included. Shape: (rows,)."""
    total = len(block.values)
    counts = (block.norms > 0).long() if limit >= 0 else torch.ones(total, dtype=torch.int64, device=block.norms.device)
    for queries, low, part, start in tiles(block, "cosine"):
        _, first, second = pairs_above(queries, low, part, start, limit)
        counts += torch.bincount(first, minlength=total) + torch.bincount(second, minlength=total)
    return counts.cpu().numpy()


def _groups(block: Rows, limit: float, counts: np.ndarray, size: int) -> list[list[int]]:
    """The groups, once it is known how many neighbours each row has."""
    order = np.argsort(-counts, kind="stable")
    order = order[counts[order] >= size]
    used = np.zeros(len(counts), bool)
    found: list[list[int]] = []
    at = 0
    while at < len(order):
        # Those that became members while the ones before were looked at are centres no more.
        centres: list[int] = []
        while at < len(order) and len(centres) < _CENTRES:
            if not used[order[at]]:
                centres.append(int(order[at]))
            at += 1
        for centre, members in zip(centres, _neighbours(block, limit, np.array(centres, np.int64)), strict=True):
            if used[centre]:
                continue
            left = members[~used[members]]
            if len(left) >= size:
                found.append([centre, *left[left != centre].tolist()])
                used[left] = used[centre] = True
    return sorted(found, key=len, reverse=True)


def _neighbours(block: Rows, limit: float, centres: np.ndarray) -> list[np.ndarray]:
    """The neighbours of each centre, the most similar first."""
    if not len(centres):
        return []
    queries = Queries(block.values[torch.from_numpy(centres).to(block.values.device)], "cosine")
    parts: list[tuple[np.ndarray, ...]] = []
    for start in range(0, len(block.values), _BLOCK):
        scores, at, of = queries.above(block.part(start, start + _BLOCK), limit)
        parts.append((of.cpu().numpy(), at.cpu().numpy() + start, scores.cpu().numpy()))
    of_all, at_all, scores_all = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    order = np.lexsort((at_all, -scores_all, of_all))
    return np.split(at_all[order], np.searchsorted(of_all[order], np.arange(1, len(centres))))
