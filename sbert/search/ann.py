"""Graphs that find near neighbours without comparing all: those of faiss and usearch, made to look alike."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sbert.functional import directions
from sbert.inputs.extras import missing
from sbert.storage.files import reading

# As many candidates as faiss keeps in sight at least while it searches; more find more, and take longer.
_WIDTH = 128
# Neighbours of each row in the graph.
_NEIGHBOURS = 32
# The package to install, by backend, and its module.
_PACKAGES = {"faiss": ("faiss-cpu", "faiss"), "usearch": ("usearch", "usearch.index")}
# Without manhattan, which usearch does not know.
_METRICS = {
    "faiss": {"cosine": "METRIC_INNER_PRODUCT", "dot": "METRIC_INNER_PRODUCT", "euclidean": "METRIC_L2"},
    "usearch": {"cosine": "cos", "dot": "ip", "euclidean": "l2sq"},
}
BACKENDS = tuple(_PACKAGES)


class Graph:
    """Rows in the order in which they are added, searched approximately by hierarchical navigable small worlds.

    Args:
        backend: ``"faiss"`` or ``"usearch"``.
        similarity: ``"cosine"``, ``"dot"`` or ``"euclidean"``.
        dim: Of the vectors.
        file: A graph that was saved, to begin with.

    Raises:
        ImportError: If the package is not installed.
        ValueError: If there is no such graph, or the file holds another one.
    """

    def __init__(self, backend: str, similarity: str, dim: int, file: Path | None = None) -> None:
        self.backend, self.similarity = backend, similarity
        module = check_backend(backend, similarity)
        metric = _METRICS[backend][similarity]
        self._graph: Any
        if backend == "faiss" and file is not None:
            with reading(file, "a graph of faiss"):
                self._graph = module.read_index(str(file))
        elif backend == "faiss":
            self._graph = module.IndexHNSWFlat(dim, _NEIGHBOURS, getattr(module, metric))
        else:
            self._graph = module.Index(ndim=dim, metric=metric, dtype="f32", expansion_search=_WIDTH)
            if file is not None:
                with reading(file, "a graph of usearch"):
                    self._graph.load(str(file))

    def __len__(self) -> int:
        return int(self._graph.ntotal) if self.backend == "faiss" else len(self._graph)

    def add(self, vectors: np.ndarray) -> None:
        """Add rows after those that are there. Shape: (rows, dim) float32."""
        vectors = np.ascontiguousarray(self._scaled(vectors))
        if self.backend == "faiss":
            self._graph.add(vectors)
        else:
            self._graph.add(np.arange(len(self), len(self) + len(vectors), dtype=np.uint64), vectors)

    def search(self, queries: np.ndarray, count: int) -> np.ndarray:
        """Rows that are probably the nearest. Shape: (queries, dim); output: (queries, count), -1 where none was found.

        The number asked for must not exceed the number of rows.
        """
        queries = np.ascontiguousarray(self._scaled(queries))
        if self.backend == "faiss":
            self._graph.hnsw.efSearch = max(_WIDTH, count)
            neighbours: np.ndarray = self._graph.search(queries, count)[1]
            return neighbours
        self._graph.expansion_search = max(_WIDTH, count)
        matches = self._graph.search(queries, count)
        rows: np.ndarray = np.atleast_2d(matches.keys).astype(np.int64)
        counts: Any = getattr(matches, "counts", rows.shape[1])
        found = np.asarray(counts).reshape(-1, 1)
        rows = np.where(np.arange(rows.shape[1]) < found, rows, -1)  # What stands after them means nothing.
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
        if self.similarity != "cosine":
            return vectors
        # A short vector must not become zero, nor a long one infinite.
        scaled: np.ndarray = directions(torch.from_numpy(vectors.astype(np.float64))).float().numpy()
        return scaled


def check_backend(backend: str, similarity: str) -> Any:
    """The module of a backend.

    Raises:
        ImportError: If it is not installed.
        ValueError: If it does not search by this similarity.
    """
    if similarity not in _METRICS[backend]:
        raise ValueError(f"backend={backend!r} does not search by {similarity!r}; pass backend='exact'")
    package, module = _PACKAGES[backend]
    try:
        return import_module(module)
    except ImportError as error:
        raise missing(f"backend={backend!r}", package, "search") from error
