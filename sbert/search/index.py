"""An index: vectors with ids, to add, remove, search, save and load."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from torch import Tensor

from sbert.functional import Vectors, check_similarity
from sbert.inputs.arguments import check_choice, check_count, check_positive, known_arguments
from sbert.pipeline.quantization import check_coding, check_ranges, quantize
from sbert.search import index_files
from sbert.search.ann import BACKENDS, Graph, check_backend
from sbert.search.corpus import in_memory
from sbert.search.semantic_search import rescored, semantic_search
from sbert.search.store import Id, VectorStore
from sbert.search.top_k import Hits
from sbert.storage.atomic import replacing
from sbert.storage.folders import read_whole
from sbert.storage.processes import Lock

# Number of candidates from a graph per requested row; they are scored exactly.
_OVERSAMPLE = 4
# Without it, each of several threads that search for the first time would add the rows to the graph.
_BUILDING = Lock()


class IndexHits(NamedTuple):
    """The most similar vectors of each query, in the order of decreasing score.

    Args:
        scores: (queries, k) float32.
        ids: (queries, k), int64 if the ids are integers, otherwise object arrays of strings.
    """

    scores: npt.NDArray[np.float32]
    ids: npt.NDArray[np.int64] | npt.NDArray[np.object_]


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
        check_choice("backend", backend, ("exact", *BACKENDS))
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
        self.ranges: npt.NDArray[np.float32] | None = None
        if ranges is not None:
            self.ranges = check_ranges(ranges, self.dim)
            self.dim = self.ranges.shape[1]
        self._store = VectorStore()
        self._graph: Graph | None = None

    def __len__(self) -> int:
        return len(self._store)

    def __contains__(self, identity: object) -> bool:
        return identity in self._store

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
        checked = self._store.new_ids(ids, len(values))
        if not len(values):
            return
        codes = quantize(values, self.precision, self.ranges).numpy()
        self.dim = values.shape[1]
        # Copy memory of the caller, who may change it later.
        self._store.add(codes.copy() if np.may_share_memory(codes, values.numpy()) else codes, checked)

    def remove(self, ids: Iterable[Id]) -> None:
        """Remove vectors, in time proportional to the size of the index. A graph is rebuilt at the next search or save.

        Raises:
            KeyError: If an id is not in the index; then none was removed.
            TypeError: If ``ids`` is a single id, or an id is neither an integer nor a string.
            ValueError: If an integer does not fit 64 bits.
        """
        if self._store.remove(ids):
            self._graph = None

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
            hits = semantic_search(
                values,
                iter(self._store.blocks),
                k,
                similarity=self.similarity,
                precision=self.precision,
                ranges=self.ranges,
            )
        return IndexHits(hits.scores, self._store.id_array()[hits.indices])

    def _check_dim(self, name: str, values: Tensor) -> None:
        """Raise a ValueError if there are vectors, and they have another dim than those in the index."""
        if len(values) and self.dim not in (None, values.shape[1]):
            raise ValueError(
                f"the {name} have dim {values.shape[1]}, the index {self.dim}; encode both with the same model and"
                " truncate_dim"
            )

    def _approximate(self, values: Tensor, k: int) -> Hits:
        candidates = self._built_graph().search(values.float().cpu().numpy(), min(len(self), k * _OVERSAMPLE))
        # A graph may reach fewer rows than requested, and exact search reports values that are not finite.
        if not values.isfinite().all() or (candidates < 0).any():
            return semantic_search(values, self._store.vectors(), k, similarity=self.similarity)
        hits = Hits(np.empty(candidates.shape, np.float32), candidates)
        return rescored(values, hits, self._store.vectors(), k, self.similarity)

    def _built_graph(self) -> Graph:
        """The graph with all rows of the index."""
        with _BUILDING:
            graph = self._graph = self._graph or Graph(self.backend, self.similarity, self.dim or 1)
            if len(graph) < len(self):
                graph.add(self._store.vectors()[len(graph) :])
        return graph

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Save to a folder. An existing index is replaced atomically: after a crash, the folder is the old or the new.

        Args:
            folder: A new folder, or the folder of an index.

        Raises:
            OSError: If the folder cannot be written; an existing index is unchanged.
            ValueError: If the folder exists and contains anything but an index.
        """
        graph = self._built_graph() if self.backend != "exact" and len(self) else None
        settings = {name: getattr(self, name) for name in index_files.SETTINGS}
        with replacing(Path(folder), index_files.INDEX.check_replaceable) as work:
            index_files.write(work, settings, self._store, graph)

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
        return read_whole(Path(folder), lambda: cls._read(Path(folder), verify))

    @classmethod
    def _read(cls, folder: Path, verify: bool) -> Index:
        settings, store, graph = index_files.read(folder, verify)
        try:
            index = cls(**settings)
        except (ValueError, TypeError) as error:
            raise index_files.unreadable(folder, f"has invalid settings: {error}") from error
        index._store = store
        if graph is not None:
            dim = index.dim or 1
            index._graph = index_files.read_graph(graph, index.backend, index.similarity, dim, len(index))
        return index
