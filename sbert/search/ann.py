"""Approximate nearest neighbours: one interface to the HNSW graphs of faiss and usearch."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sbert.functional import directions
from sbert.inputs.extras import needed
from sbert.storage.files import reading

# Minimum length of the candidate list during search (efSearch in faiss); a longer one has better recall and is slower.
_MIN_SEARCH_LIST = 128
# Links per row in the graph (M in the paper).
_LINKS = 32
# For each backend, the package to install and the module to import.
_PACKAGES = {"faiss": ("faiss-cpu", "faiss"), "usearch": ("usearch", "usearch.index")}
# Manhattan is missing because usearch does not have it.
_METRICS = {
    "faiss": {"cosine": "METRIC_INNER_PRODUCT", "dot": "METRIC_INNER_PRODUCT", "euclidean": "METRIC_L2"},
    "usearch": {"cosine": "cos", "dot": "ip", "euclidean": "l2sq"},
}
BACKENDS = tuple(_PACKAGES)


class Graph:
    """A hierarchical navigable small world graph (HNSW) over rows, which are numbered in the order of addition.

    Args:
        backend: ``"faiss"`` or ``"usearch"``.
        similarity: ``"cosine"``, ``"dot"`` or ``"euclidean"``.
        dim: Dimension of the vectors.
        file: A saved graph to load; None to start with an empty graph.

    Raises:
        ImportError: If the package is not installed.
        ValueError: If the backend does not have this similarity, or the file is not one of its graphs.
    """

    def __init__(self, backend: str, similarity: str, dim: int, file: Path | None = None) -> None:
        self.backend: str = backend
        self._similarity = similarity
        module = check_backend(backend, similarity)
        metric = _METRICS[backend][similarity]
        self._graph: Any
        if backend == "faiss" and file is not None:
            with reading(file, "a graph of faiss"):
                self._graph = module.read_index(str(file))
        elif backend == "faiss":
            self._graph = module.IndexHNSWFlat(dim, _LINKS, getattr(module, metric))
        else:
            self._graph = module.Index(ndim=dim, metric=metric, dtype="f32", expansion_search=_MIN_SEARCH_LIST)
            if file is not None:
                with reading(file, "a graph of usearch"):
                    self._graph.load(str(file))

    def __len__(self) -> int:
        return int(self._graph.ntotal) if self.backend == "faiss" else len(self._graph)

    def add(self, vectors: np.ndarray) -> None:
        """Append rows. Shape: (rows, dim) float32."""
        vectors = np.ascontiguousarray(self._scaled(vectors))
        if self.backend == "faiss":
            self._graph.add(vectors)
        else:
            self._graph.add(np.arange(len(self), len(self) + len(vectors), dtype=np.uint64), vectors)

    def search(self, queries: np.ndarray, count: int) -> np.ndarray:
        """The approximate nearest rows of each query; ``count`` must not exceed the number of rows.

        Shape:
            queries: (queries, dim) float32. Output: (queries, count) int64, padded with -1.
        """
        queries = np.ascontiguousarray(self._scaled(queries))
        if self.backend == "faiss":
            self._graph.hnsw.efSearch = max(_MIN_SEARCH_LIST, count)
            neighbours: np.ndarray = self._graph.search(queries, count)[1]
            return neighbours
        self._graph.expansion_search = max(_MIN_SEARCH_LIST, count)
        matches = self._graph.search(queries, count)
        rows: np.ndarray = np.atleast_2d(matches.keys).astype(np.int64)
        # usearch leaves the entries behind a query's count undefined.
        counts = np.asarray(getattr(matches, "counts", rows.shape[1])).reshape(-1, 1)
        rows = np.where(np.arange(rows.shape[1]) < counts, rows, -1)
        if rows.shape[1] < count:
            rows = np.pad(rows, ((0, 0), (0, count - rows.shape[1])), constant_values=-1)
        return rows

    def save(self, path: Path) -> None:
        """Write the graph to a file."""
        if self.backend == "faiss":
            import_module("faiss").write_index(self._graph, str(path))
        else:
            self._graph.save(str(path))

    def _scaled(self, vectors: np.ndarray) -> np.ndarray:
        if self._similarity != "cosine":
            return vectors
        # float64, because the square of a small or large float32 value may underflow or overflow.
        scaled: np.ndarray = directions(torch.from_numpy(vectors.astype(np.float64))).float().numpy()
        return scaled


def check_backend(backend: str, similarity: str) -> Any:
    """Import the module of a backend.

    Raises:
        ImportError: If it is not installed.
        ValueError: If it does not have this similarity.
    """
    if similarity not in _METRICS[backend]:
        raise ValueError(f"backend={backend!r} does not support similarity={similarity!r}; pass backend='exact'")
    package, module = _PACKAGES[backend]
    with needed(f"backend={backend!r}", package, "search"):
        return import_module(module)
