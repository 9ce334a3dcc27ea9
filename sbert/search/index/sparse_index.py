"""Search by sparse vectors: an inverted index with ids, to add, remove and search."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from sbert.inputs.arguments import check_count, known_arguments
from sbert.pipeline.sparse import as_csr
from sbert.search.exact.comparison import Hits
from sbert.search.index.bm25 import WeightedPostings, search_postings
from sbert.search.index.index_folder import Id, Ids


class SparseIndex:
    """Sparse vectors with ids of your choice, searched exactly, by the dot product.

    Raises:
        ImportError: If SciPy is not installed.

    Example:
        >>> from scipy.sparse import csr_array
        >>> from sbert.search import SparseIndex
        >>> index = SparseIndex()
        >>> index.add(csr_array([[0.0, 2.0, 1.0], [3.0, 0.0, 0.0]]), ids=["cat", "tax"])
        >>> index.search(csr_array([[0.0, 1.0, 0.5]]), top_k=1).ids.tolist()
        [['cat']]
    """

    def __init__(self) -> None:
        self.dim: int | None = None
        self._ids = Ids("vector")
        self._postings = WeightedPostings()

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, identity: object) -> bool:
        return identity in self._ids

    @known_arguments
    def add(self, vectors: Any, ids: Iterable[Id] | None = None) -> None:
        """Add vectors. After an error, none of them was added.

        Args:
            vectors: What ``encode`` of a sparse encoder returns.
            ids: As of ``Index.add``.

        Shape:
            vectors: (rows, dim), or (dim,) for one vector.

        Raises:
            TypeError: As of ``Index.add``.
            ValueError: As of ``Index.add``.
        """
        matrix = self._check("vectors", vectors)
        new = self._ids.new_ids(ids, matrix.shape[0])
        texts = len(self._ids) + np.repeat(np.arange(len(new)), np.diff(matrix.indptr))
        self._postings.append_vectors(matrix.indices, texts, matrix.data.astype(np.float32))
        self.dim = matrix.shape[1]
        self._ids.append(new)

    def remove(self, ids: Iterable[Id]) -> None:
        """Remove vectors, in time proportional to the size of the index.

        Raises:
            KeyError: If an id is not in the index; then none was removed.
            TypeError: If ``ids`` is a single id, or an id is neither an integer nor a string.
            ValueError: If an integer does not fit 64 bits.
        """
        remaining = self._ids.remaining(ids)
        if remaining is not None:
            self._postings.select(remaining)
            self._ids.select(remaining)

    @known_arguments
    def search(self, queries: Any, top_k: int = 10) -> Hits:
        """The ``top_k`` vectors with the greatest dot product for each query; of equal ones, the first.

        Args:
            queries: What ``encode`` of a sparse encoder returns.
            top_k: Number of vectors per query; all vectors if the index has fewer.

        Shape:
            queries: (queries, dim), or (dim,) for one query. Each output: (queries, min(top_k, size of the index)).

        Raises:
            ValueError: If the dimensions differ, or a value is NaN or infinite; the message names its row.
        """
        k, weights = check_count("top_k", top_k), weights_of(self._check("queries", queries))
        hits = search_postings(self._postings, weights, k, np.ones(len(self), bool))
        return Hits(hits.scores, self._ids.array()[hits.ids])

    def _check(self, name: str, vectors: Any) -> Any:
        matrix = as_csr(vectors)
        if self.dim not in (None, matrix.shape[1]):
            dims = f"the {name} have dim {matrix.shape[1]}, the index {self.dim}"
            raise ValueError(f"{dims}; encode both with one model")
        if len(wrong := np.flatnonzero(~np.isfinite(matrix.data))):
            row = int(np.searchsorted(matrix.indptr, wrong[0], side="right")) - 1
            raise ValueError(f"{name}[{row}] has a NaN or an infinite value; correct it")
        return matrix


def weights_of(queries: Any) -> list[dict[int, float]]:
    """The weights of dimensions in each row of a matrix, as ``search_postings`` takes them."""
    starts = queries.indptr[1:-1]
    both = zip(np.split(queries.indices, starts), np.split(queries.data, starts), strict=True)
    return [dict(zip(dims.tolist(), weights.tolist(), strict=True)) for dims, weights in both]


def max_of_passages(passages: Any, documents: npt.NDArray[np.int64], count: int) -> list[bytes]:
    """The sparse vector of each document, the maximum of those of its passages: its dimensions, then their values.

    Args:
        passages: The vectors of the passages.
        documents: The document of each passage, from 0 to ``count`` - 1.
        count: Number of documents.

    Returns:
        For each document (active,) int32 and (active,) float32.

    Shape:
        passages: (passages, dim). documents: (passages,).
    """
    dim = passages.shape[1]
    keys, places = np.unique(
        np.repeat(documents, np.diff(passages.indptr)) * dim + passages.indices, return_inverse=True
    )
    greatest = np.zeros(len(keys), "<f4")
    np.maximum.at(greatest, places, passages.data)
    starts = keys.searchsorted(np.arange(1, count) * dim)
    both = zip(np.split((keys % dim).astype("<i4"), starts), np.split(greatest, starts), strict=True)
    return [dims.tobytes() + values.tobytes() for dims, values in both]


def read_sparse(blobs: Iterable[bytes]) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """The dimensions, positions of documents and values that ``max_of_passages`` has written."""
    halves = [(blob[: len(blob) // 2], blob[len(blob) // 2 :]) for blob in blobs]
    counts = [len(dims) // 4 for dims, _ in halves]
    dims, values = (b"".join(parts) for parts in zip(*halves, strict=True)) if halves else (b"", b"")
    return np.frombuffer(dims, "<i4"), np.repeat(np.arange(len(counts)), counts), np.frombuffer(values, "<f4")
