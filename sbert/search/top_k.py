"""The k greatest scores of each query, collected block by block."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sbert.search.blocks import Block, Queries
from sbert.search.prefilter import PairIndices, candidates
from sbert.search.scoring import all_scores, pair_scores


class Hits(NamedTuple):
    """The most similar rows of each query, in the order of decreasing score.

    Args:
        scores: (queries, k) float32.
        indices: (queries, k) int64, rows of the corpus.
    """

    scores: npt.NDArray[np.float32]
    indices: npt.NDArray[np.int64]

    @classmethod
    def empty(cls, queries: int, k: int) -> Hits:
        """Hits of this shape, where either number is 0."""
        return cls(np.empty((queries, k), np.float32), np.empty((queries, k), np.int64))


def top_columns(scores: np.ndarray, k: int) -> np.ndarray:
    """The columns of each row's k greatest scores, in decreasing order; equal scores in the order of the columns.

    Shape:
        scores: (rows, columns). Output: (rows, min(k, columns)).

    Example:
        >>> top_columns(np.array([[1, 3, 2, 3, 3]]), 2).tolist()
        [[1, 3]]
    """
    columns = scores.shape[1]
    k = min(k, columns)
    if not scores.size:
        return np.empty((len(scores), k), np.int64)
    smallest = np.partition(scores, columns - k, axis=1)[:, columns - k, None]  # (rows, 1)
    above, equal = scores > smallest, scores == smallest
    room = k - above.sum(1, keepdims=True)
    chosen = above | (equal & (np.cumsum(equal, 1, dtype=np.int32) <= room))
    positions = chosen.nonzero()[1].reshape(len(scores), k)
    order = np.argsort(-np.take_along_axis(scores, positions, 1), axis=1, kind="stable")
    return np.take_along_axis(positions, order, 1)


def empty_top_k(queries: Queries, k: int) -> TopK:
    """An empty collection of the k most similar rows of each query, on the device of the queries."""
    return (TopK if queries.values.device.type == "cpu" else DeviceTopK)(queries, k)


class TopK:
    """The k most similar rows of each query among the blocks that were added, in the order of the corpus.

    Args:
        queries: Queries.
        k: Maximum number of rows per query.
    """

    def __init__(self, queries: Queries, k: int) -> None:
        self._queries, self._k = queries, k
        self._hits = Hits.empty(len(queries), 0)
        self._pending: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []  # Query ids, rows, scores.
        self._limits: Tensor | None = None  # (queries,) that a score must exceed, known once there are k hits.

    def add(self, block: Block, start: int) -> None:
        """Compare a block whose first row is row ``start`` of the corpus."""
        limits = self._limits
        pairs = None if limits is None else candidates(self._queries, block, limits)
        if limits is None or pairs is None:
            self._add_all(block, start)
        else:
            self._add_pairs(block, start, pairs, limits)

    def _add_all(self, block: Block, start: int) -> None:
        hits = self.hits()
        scores = all_scores(self._queries, block).cpu().numpy()  # (queries, rows)
        top = top_columns(scores, self._k)
        # Earlier rows come first, so that equal scores stay in the order of the corpus.
        merged = np.concatenate([hits.scores, np.take_along_axis(scores, top, 1)], 1)
        indices = np.concatenate([hits.indices, top + start], 1)
        top = top_columns(merged, self._k)
        self._set(np.take_along_axis(merged, top, 1), np.take_along_axis(indices, top, 1))

    def _add_pairs(self, block: Block, start: int, pairs: PairIndices, limits: Tensor) -> None:
        scores = pair_scores(self._queries, block, pairs)
        above = scores > limits.index_select(0, pairs[1])
        row_ids, query_ids, scores = pairs[0][above], pairs[1][above], scores[above]
        if len(row_ids):
            self._pending.append((query_ids.cpu().numpy(), row_ids.cpu().numpy() + start, scores.cpu().numpy()))
            # Sorting is slow, and limits that are slightly too low add few pairs.
            if sum(len(part[0]) for part in self._pending) >= self._hits.scores.size:
                self.hits()

    def hits(self) -> Hits:
        """The top rows so far. Shape of each: (queries, min(k, rows so far))."""
        if self._pending:
            queries, k = self._hits.scores.shape
            present = np.repeat(np.arange(queries), k), self._hits.indices.ravel(), self._hits.scores.ravel()
            query_ids, indices, scores = (np.concatenate(parts) for parts in zip(present, *self._pending, strict=True))
            self._pending = []
            order = np.lexsort((indices, -scores, query_ids))
            query_ids = query_ids[order]
            first = order[np.arange(len(query_ids)) - np.searchsorted(query_ids, query_ids) < k]
            self._set(scores[first].reshape(queries, k), indices[first].reshape(queries, k))
        return self._hits

    def _set(self, scores: np.ndarray, indices: np.ndarray) -> None:
        self._hits = Hits(scores, indices)
        if scores.shape[1] == self._k:
            self._limits = torch.from_numpy(scores[:, -1].astype(np.float64)).to(self._queries.values.device)


class DeviceTopK(TopK):
    """The same on a GPU, which selects and sorts: nothing is copied to the host but the hits, at the end."""

    def __init__(self, queries: Queries, k: int) -> None:
        super().__init__(queries, k)
        self._count = 0  # Rows so far.
        self._scores = torch.empty(len(queries), 0, device=queries.values.device)
        self._indices = torch.empty_like(self._scores, dtype=torch.int64)
        self._reached = queries.lengths.new_full((len(queries),), -torch.inf)  # As ``_limits``, from the beginning.

    def add(self, block: Block, start: int) -> None:
        """Compare a block whose first row is row ``start`` of the corpus."""
        self._count += len(block.values)
        pairs = candidates(self._queries, block, self._reached, top_k=self._k)
        if pairs is None:
            matrix = all_scores(self._queries, block)  # (queries, rows)
            columns = _top_columns_on_device(matrix, self._k)
            row_ids, query_ids = columns.flatten(), _row_numbers(columns)
            scores = matrix.gather(1, columns).flatten()
        else:
            row_ids, query_ids = pairs
            scores = pair_scores(self._queries, block, pairs)
        self._merge(query_ids, row_ids + start, scores)

    def _merge(self, query_ids: Tensor, indices: Tensor, scores: Tensor) -> None:
        """Add pairs, of which each query has enough for its top rows."""
        k = min(self._k, self._count)
        query_ids = torch.cat([_row_numbers(self._scores), query_ids])
        indices = torch.cat([self._indices.flatten(), indices])
        scores = torch.cat([self._scores.flatten(), scores])
        order = indices.argsort()
        order = order[scores[order].argsort(descending=True, stable=True)]
        order = order[query_ids[order].argsort(stable=True)]
        query_ids = query_ids[order]
        ranks = torch.arange(len(order), device=order.device) - torch.searchsorted(query_ids, query_ids)
        places = query_ids, ranks.clamp(max=k)  # The last column is for all that are not among the first k.
        self._scores, self._indices = (
            each.new_empty(len(self._queries), k + 1).index_put(places, each[order])[:, :k]
            for each in (scores, indices)
        )
        if k == self._k:
            self._reached = self._scores[:, -1].double()

    def hits(self) -> Hits:
        """The top rows so far. Shape of each: (queries, min(k, rows so far))."""
        return Hits(self._scores.cpu().numpy(), self._indices.cpu().numpy())


def _row_numbers(matrix: Tensor) -> Tensor:
    """The row of each element of a matrix, flattened."""
    return torch.arange(len(matrix), device=matrix.device)[:, None].expand(matrix.shape).flatten()


def _top_columns_on_device(scores: Tensor, k: int) -> Tensor:
    """``top_columns``, but in the order of the columns, and without copying the scores to the host."""
    k = min(k, scores.shape[1])
    smallest = scores.topk(k, dim=1).values[:, -1:]  # (rows, 1)
    above, equal = scores > smallest, scores == smallest
    room = k - above.sum(1, keepdim=True)
    chosen = above | (equal & (equal.cumsum(1, dtype=torch.int32) <= room))
    return chosen.nonzero()[:, 1].view(len(scores), k)
