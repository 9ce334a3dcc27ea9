"""Search by sparse vectors: an inverted index with ids, to add, remove and search."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from sbert.inputs.arguments import known_arguments
from sbert.pipeline.sparse import csr, top_dims
from sbert.search.exact.comparison import Hits
from sbert.search.index.bm25 import InvertedIndex, WeightedPostings
from sbert.search.index.index_folder import Id, Ids

# Of a dimension that is not 0.
VALUES = np.dtype([("dim", "<i4"), ("value", "<f4")])


class SparseIndex(InvertedIndex):
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

    @known_arguments
    def add(self, vectors: Any, ids: Iterable[Id] | None = None) -> None:
        """Add vectors. After an error, none of them was added.

        Args:
            vectors: What ``encode`` of a sparse encoder returns; equal dimensions of a row are summed.
            ids: As of ``Index.add``.

        Shape:
            vectors: (rows, dim), or (dim,) for one vector.

        Raises:
            TypeError: As of ``Index.add``.
            ValueError: As of ``Index.add``.
        """
        matrix = self._check(vectors)
        new = self._ids.new_ids(ids, matrix.shape[0])
        texts = len(self._ids) + np.repeat(np.arange(len(new)), np.diff(matrix.indptr))
        self._postings.append(matrix.indices, texts, matrix.data.astype(np.float32))
        self.dim = matrix.shape[1]
        self._ids.append(new)

    @known_arguments
    def search(self, queries: Any, top_k: int = 10) -> Hits:
        """The ``top_k`` vectors with the greatest dot product for each query; of equal ones, the first.

        Args:
            queries: What ``encode`` of a sparse encoder returns.
            top_k: Number of vectors per query; all vectors if the index has fewer.

        Shape:
            queries: (queries, dim), or (dim,) for one query. Each output: (queries, min(top_k, size of the index)).

        Raises:
            ValueError: If the dimensions differ, or a value is NaN or infinite.
        """
        return self._search([*map(dict, top_dims(self._check(queries)))], top_k)

    def _check(self, vectors: Any) -> Any:
        """The vectors as CSR."""
        matrix = csr(vectors)
        if self.dim not in (None, matrix.shape[1]):
            raise ValueError(f"dim {matrix.shape[1]} is not the index's {self.dim}; encode both with one model")
        if not np.isfinite(matrix.data).all():
            raise ValueError("a vector has a NaN or an infinity; remove or correct it")
        return matrix


def max_of_passages(passages: Any, documents: npt.NDArray[np.int64], count: int) -> list[bytes]:
    """The sparse vector of each document, the maximum of those of its passages.

    Args:
        passages: The vectors of the passages: CSR, or a sparse tensor.
        documents: The document of each passage, from 0 to ``count`` - 1.
        count: Number of documents.

    Returns:
        For each document its dimensions that are not 0, and their values: (active,) of the type ``VALUES``.

    Shape:
        passages: (passages, dim). documents: (passages,).
    """
    passages, dim = csr(passages), passages.shape[1]
    keys = np.repeat(documents, np.diff(passages.indptr)) * dim + passages.indices
    unique, positions = np.unique(keys, return_inverse=True)
    result = np.zeros(len(unique), VALUES)
    result["dim"] = unique % dim
    np.maximum.at(result["value"], positions, passages.data)
    return [part.tobytes() for part in np.split(result, unique.searchsorted(np.arange(1, count) * dim))]
