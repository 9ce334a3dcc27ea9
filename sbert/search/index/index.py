"""An index: vectors with ids, to add, remove, search, save and load."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sbert.functional import Vectors, check_similarity, directions
from sbert.inputs.arguments import check_choice, check_count, check_positive, known_arguments
from sbert.inputs.extras import require
from sbert.pipeline.notebook import Corpus, Table, tabulate_hits
from sbert.pipeline.quantization import PRECISIONS, check_coding, check_ranges, quantize
from sbert.search.exact.comparison import Hits
from sbert.search.exact.semantic_search import CorpusBlocks, Norms, in_memory, open_corpus, rescore_hits, search_blocks
from sbert.search.index.index_folder import Id, Ids, IndexFormat, append_block, join_blocks, unreadable
from sbert.storage.files import reading
from sbert.storage.processes import Lock
from sbert.vector_files.formats import npy_header

# Number of candidates from a graph per requested row; they are scored exactly.
_OVERSAMPLE = 4
# Without it, each of several threads that search for the first time would add the rows to the graph.
_BUILDING = Lock()
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
# The arguments of an index that are saved.
_SETTINGS = ("dim", "backend", "similarity", "precision", "ranges")
_VECTORS, _GRAPH = "vectors.npy", "graph."
_FORMAT = IndexFormat("sbert.search.Index", 2, (_VECTORS, *(_GRAPH + backend for backend in _PACKAGES)))


class IndexHits(NamedTuple):
    """The most similar vectors of each query, in the order of decreasing score.

    Args:
        scores: (queries, k) float32.
        ids: (queries, k), int64 if the ids are integers, otherwise object arrays of strings.
    """

    scores: npt.NDArray[np.float32]
    ids: npt.NDArray[np.int64] | npt.NDArray[np.object_]

    def with_texts(self, corpus: Corpus, queries: str | Sequence[str] | None = None) -> Table:
        """A table with the text of each hit, which notebooks display.

        Args:
            corpus: The text of each id, a dict, or a list if the ids are its rows.
            queries: The queries; by default, they are numbered.

        Example:
            >>> hits = IndexHits(np.array([[0.5]], np.float32), np.array([["cat"]], object))
            >>> hits.with_texts({"cat": "A cat naps."})
            query  rank  score   id   text
            0      1     0.5000  cat  A cat naps.
        """
        return tabulate_hits(*self, corpus, queries)

    def _repr_html_(self) -> str:
        return tabulate_hits(*self)._repr_html_()


class Index:
    """Vectors with ids of your choice, for exact or, with faiss or usearch, approximate search.

    All backends return the scores of ``semantic_search``: a graph only proposes candidates, four times ``top_k``, and
    these are scored exactly. Vectors with equal scores are ordered by the time of addition.

    Args:
        dim: Dimension of the vectors; default: that of the first vectors added.
        backend: ``"exact"`` compares all vectors. ``"faiss"`` and ``"usearch"`` use an HNSW graph, which is built at
            the first search or save and may miss a few neighbours.
        similarity: ``"cosine"``, ``"dot"``, ``"euclidean"`` or, with the exact backend only, ``"manhattan"``.
        precision: How vectors are stored: ``"float32"`` or, with the exact backend only, ``"int8"``, ``"binary"`` or
            ``"ubinary"``. Vectors are always passed as floats.
        ranges: Ranges of int8 codes, from ``sbert.search.calibrate``.

    Raises:
        ImportError: If the backend is not installed.
        ValueError: If an argument is unknown, or the arguments contradict each other.

    References:
        Malkov and Yashunin, 2020 (HNSW). https://arxiv.org/abs/1603.09320

    Example:
        >>> from sbert.search import Index
        >>> index = Index()
        >>> index.add(model.encode(["A cat sleeps.", "Taxes rise."]), ids=["cat", "tax"])
        >>> index.search(model.encode("A kitten naps."), top_k=1).ids.tolist()
        [['cat']]
    """

    @known_arguments
    def __init__(
        self,
        dim: int | None = None,
        *,
        backend: str = "exact",
        similarity: str = "cosine",
        precision: str = "float32",
        ranges: npt.ArrayLike | None = None,
    ) -> None:
        check_choice("backend", backend, ("exact", *_PACKAGES))
        check_similarity(similarity)
        check_coding(precision, ranges)
        if backend != "exact":
            check_backend(backend, similarity)
            if precision != "float32":
                raise ValueError(f"backend={backend!r} stores float32, not {precision}; pass backend='exact'")
        self.dim: int | None = check_positive("dim", dim)
        self.backend: str = backend
        self.similarity: str = similarity
        self.precision: str = precision
        self.ranges: npt.NDArray[np.float32] | None = None if ranges is None else check_ranges(ranges, self.dim)
        self.dim = self.dim if self.ranges is None else self.ranges.shape[1]
        self._ids = Ids("vector")
        self._blocks: list[np.ndarray] = []
        self._norms: Norms = {}  # Of rows that were searched: added rows do not change them.
        self._graph: Graph | None = None

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, identity: object) -> bool:
        return identity in self._ids

    @known_arguments
    def add(self, vectors: Vectors, ids: Iterable[Id] | None = None) -> None:
        """Add vectors. After an error, none of them was added.

        Args:
            vectors: Array or tensor of floats, stored in the precision of the index.
            ids: One unique id per vector: all ids of an index are integers, or all are strings. Default: integers that
                continue after the greatest id so far, from 0.

        Shape:
            vectors: (rows, dim), or (dim,) for one vector.

        Raises:
            TypeError: If an id is neither an integer nor a string, or of another type than the ids in the index.
            ValueError: If an id is in the index already, given twice or does not fit 64 bits; if there are more or
                fewer ids than vectors; if the dimensions differ; or if a value is NaN or infinite (the message names
                its row).
        """
        values = in_memory("vectors", vectors).cpu().float()
        self._check_dim("vectors", values)
        wrong = (~values.isfinite().all(1)).nonzero()
        if len(wrong):
            raise ValueError(f"vectors[{int(wrong[0])}] has a NaN or a value that is infinite as float32; correct it")
        checked = self._ids.new_ids(ids, len(values))
        if not len(values):
            return
        codes = quantize(values, self.precision, self.ranges).numpy()
        self.dim = values.shape[1]
        # Copy memory of the caller, who may change it later.
        append_block(self._blocks, codes.copy() if np.may_share_memory(codes, values.numpy()) else codes)
        self._ids.append(checked)

    def remove(self, ids: Iterable[Id]) -> None:
        """Remove vectors, in time proportional to the size of the index. A graph is rebuilt at the next search or save.

        Raises:
            KeyError: If an id is not in the index; then none was removed.
            TypeError: If ``ids`` is a single id, or an id is neither an integer nor a string.
            ValueError: If an integer does not fit 64 bits.
        """
        remaining = self._ids.remaining(ids)
        if remaining is not None:
            self._blocks = [join_blocks(self._blocks)[remaining]] if remaining.any() else []
            self._ids.select(remaining)
            self._norms, self._graph = {}, None

    @known_arguments
    def search(self, queries: Vectors, top_k: int = 10) -> IndexHits:
        """The ``top_k`` most similar vectors for each query.

        Args:
            queries: Array or tensor of floats.
            top_k: Number of vectors per query; all vectors if the index has fewer.

        Shape:
            queries: (queries, dim), or (dim,) for one query. Each output: (queries, min(top_k, size of the index)).

        Raises:
            ValueError: If the dimensions differ, or a value is NaN or infinite; the message names its row.
        """
        k = check_count("top_k", top_k)
        values = in_memory("queries", queries)
        self._check_dim("queries", values)
        if self.backend != "exact" and len(values) and len(self):
            hits = self._approximate(values, k)
        else:
            blocks = CorpusBlocks(values, iter(self._blocks), self.precision, self.ranges)
            hits = search_blocks(blocks, k, self.similarity, self._norms)
        return IndexHits(hits.scores, self._ids.array()[hits.indices])

    def _check_dim(self, name: str, values: Tensor) -> None:
        """Raise a ValueError if there are vectors, and they have another dim than those in the index."""
        if len(values) and self.dim not in (None, values.shape[1]):
            raise ValueError(f"the {name} have dim {values.shape[1]}, the index {self.dim}; encode both with one model")

    def _approximate(self, values: Tensor, k: int) -> Hits:
        candidates = self._build_graph().search(values.float().cpu().numpy(), min(len(self), k * _OVERSAMPLE))
        # A graph may reach fewer rows than requested, and exact search reports values that are not finite.
        if not values.isfinite().all() or (candidates < 0).any():
            return search_blocks(CorpusBlocks(values, join_blocks(self._blocks)), k, self.similarity)
        hits = Hits(np.empty(candidates.shape, np.float32), candidates)
        return rescore_hits(values, hits, join_blocks(self._blocks), k, self.similarity)

    def _build_graph(self) -> Graph:
        """The graph with all rows of the index."""
        with _BUILDING:
            graph = self._graph = self._graph or Graph(self.backend, self.similarity, self.dim or 1)
            if len(graph) < len(self):
                graph.add(join_blocks(self._blocks)[len(graph) :])
        return graph

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Save to a folder. An existing index is replaced atomically: after a crash, the folder is the old or the new.

        Args:
            folder: A new folder, or the folder of an index.

        Raises:
            OSError: If the folder cannot be written; an existing index is unchanged.
            ValueError: If the folder exists and contains anything but an index.
        """
        settings = {name: getattr(self, name) for name in _SETTINGS}
        settings["ranges"] = None if self.ranges is None else self.ranges.tolist()
        _FORMAT.save(Path(folder), settings, self._ids, self._write)

    def _write(self, folder: Path) -> None:
        if not len(self):
            return
        if self.backend != "exact":
            self._build_graph().save(folder / (_GRAPH + self.backend))
        with (folder / _VECTORS).open("wb") as file:
            file.write(npy_header(len(self), self._blocks[0].shape[1], self._blocks[0].dtype))
            for block in self._blocks:
                block.tofile(file)

    @classmethod
    def load(cls, folder: str | os.PathLike[str], *, verify: bool = True) -> Index:
        """Load an index from a folder. The vectors are memory-mapped, and read when they are searched.

        Args:
            folder: The folder of the index.
            verify: Whether to compare the checksum of the vectors, which reads them once: about 1 s per GB if the
                file is in the system's cache, otherwise the time of the disk. With False, damage to the vectors is not
                detected. All other files are always verified.

        Checksums detect damage, not attacks: an attacker who can write to the folder can change the checksums, too.
        faiss and usearch trust their files, and a manipulated graph file may crash the process or execute code. Load
        an index with a graph only from a source that you trust.

        Raises:
            FileNotFoundError: If the folder does not exist.
            ImportError: If the backend is not installed.
            ValueError: If a file is missing, damaged or of another format; the message names it.
        """
        return _FORMAT.load(Path(folder), "vector", cls._read, () if verify else (_VECTORS,))

    @classmethod
    def _read(cls, folder: Path, described: dict[str, Any], ids: Ids) -> Index:
        index = cls(**{name: described[name] for name in _SETTINGS})
        index._ids = ids
        if not len(ids):
            return index
        dim = index.dim or 1
        vectors = open_corpus("vectors", folder / _VECTORS)
        expected = len(ids), -(-dim // 8) if "binary" in index.precision else dim
        if vectors.shape != expected or vectors.dtype != PRECISIONS[index.precision]:  # The header may be unverified.
            raise unreadable(folder, f"has shape {vectors.shape} and dtype {vectors.dtype}", _VECTORS)
        index._blocks = [vectors]
        if index.backend != "exact":
            index._graph = Graph(index.backend, index.similarity, dim, folder / (_GRAPH + index.backend))
        return index


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
        if backend == "faiss":
            self._graph: Any = module.IndexHNSWFlat(dim, _LINKS, getattr(module, metric))
        else:
            self._graph = module.Index(ndim=dim, metric=metric, dtype="f32", expansion_search=_MIN_SEARCH_LIST)
        if file is not None:
            with reading(file, f"a graph of {backend}"):
                if backend == "faiss":
                    self._graph = module.read_index(str(file))
                else:
                    self._graph.load(str(file))

    def __len__(self) -> int:
        return int(self._graph.ntotal) if self.backend == "faiss" else len(self._graph)

    def add(self, vectors: np.ndarray) -> None:
        """Append rows. Shape: (rows, dim) float32."""
        vectors = np.ascontiguousarray(self._scale(vectors))
        if self.backend == "faiss":
            self._graph.add(vectors)
        else:
            self._graph.add(np.arange(len(self), len(self) + len(vectors), dtype=np.uint64), vectors)

    def search(self, queries: np.ndarray, count: int) -> np.ndarray:
        """The approximate nearest rows of each query; ``count`` must not exceed the number of rows.

        Shape:
            queries: (queries, dim) float32. Output: (queries, count) int64, with -1 if a query has fewer.
        """
        queries = np.ascontiguousarray(self._scale(queries))
        if self.backend == "faiss":
            self._graph.hnsw.efSearch = max(_MIN_SEARCH_LIST, count)
            neighbours: np.ndarray = self._graph.search(queries, count)[1]
            return neighbours
        self._graph.expansion_search = max(_MIN_SEARCH_LIST, count)
        matches = self._graph.search(queries, count)
        complete = matches.keys.size == len(queries) * count and np.all(getattr(matches, "counts", count) == count)
        return matches.keys.astype(np.int64).reshape(-1, count) if complete else np.full((len(queries), count), -1)

    def save(self, path: Path) -> None:
        """Write the graph to a file."""
        if self.backend == "faiss":
            import_module("faiss").write_index(self._graph, str(path))
        else:
            self._graph.save(str(path))

    def _scale(self, vectors: np.ndarray) -> np.ndarray:
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
    with require(f"backend={backend!r}", package, "search"):
        return import_module(module)
