"""Vectors with ids, to add to, to search and to keep in a folder."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from sbert.functional import check_similarity
from sbert.inputs.arguments import check_choice, check_count, check_positive, known_arguments
from sbert.pipeline.quantization import check_coding, check_ranges, quantize
from sbert.search import index_files as stored
from sbert.search.ann import BACKENDS, Graph, check_backend
from sbert.search.corpus import held
from sbert.search.semantic import rescored, semantic_search
from sbert.search.store import Id, IndexHits, VectorStore, ids_of
from sbert.search.top_k import Hits
from sbert.storage.atomic import replacing
from sbert.storage.folders import read_whole
from sbert.storage.processes import Lock

# Candidates of a graph, of which the best by exact scores are returned, to each that is asked for.
_OVERSAMPLE = 4
# Threads that search an index for the first time would otherwise add its rows to the graph once each.
_BUILDING = Lock()
_ALIKE = "encode both with the same model and truncate_dim"


class Index:
    """Vectors under ids of the user's, searched exactly or, with faiss or usearch, approximately.

    Scores are those of ``semantic_search`` with every backend: a graph only proposes rows, four times as many as are
    asked for, and those are compared exactly. Of equal scores, the one that was added first comes first.

    Args:
        dim: Of the vectors; that of the first ones added where it is not given.
        backend: ``"exact"``, which compares all; or a graph, ``"faiss"`` or ``"usearch"``, which is built at the first
            search or save and misses a few.
        similarity: ``"cosine"``, ``"dot"``, ``"euclidean"`` or, where all are compared, ``"manhattan"``.
        precision: In which vectors are kept: ``"float32"`` or, where all are compared, ``"int8"``, ``"binary"`` or
            ``"ubinary"``. They are given as floats in any case.
        ranges: Of int8, from ``sbert.search.calibrate``.

    Raises:
        ImportError: If the backend is not installed.
        ValueError: If an argument is unknown, or they do not fit each other.

    References:
        Malkov and Yashunin, 2020, of the graphs. https://arxiv.org/abs/1603.09320

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
        ranges: Any = None,
    ) -> None:
        check_choice("backend", backend, ("exact", *BACKENDS))
        check_similarity(similarity)
        check_coding(precision, ranges)
        if backend != "exact":
            check_backend(backend, similarity)
            if precision != "float32":
                raise ValueError(f"backend={backend!r} keeps float32, not {precision}; pass backend='exact'")
        self.dim = check_positive("dim", dim)
        self.backend, self.similarity, self.precision = backend, similarity, precision
        self.ranges = None if ranges is None else check_ranges(ranges, self.dim)
        if self.ranges is not None:
            self.dim = self.ranges.shape[1]
        self._kept = VectorStore()
        self._graph: Graph | None = None

    def __len__(self) -> int:
        return len(self._kept.ids)

    def __contains__(self, identity: object) -> bool:
        # Python takes True and 1.0 for equal to 1.
        whole = isinstance(identity, (int, np.integer)) and not isinstance(identity, bool)
        return (whole or isinstance(identity, str)) and identity in self._kept.known

    @known_arguments
    def add(self, vectors: Any, ids: Iterable[Id] | None = None) -> None:
        """Add vectors. If there is an error, none of them was added.

        Args:
            vectors: Array or tensor of floats, kept as float32 or in fewer bits.
            ids: One for each, all different: whole numbers, or strings, in one index only either. Where they are not
                given, whole numbers that follow the greatest so far, from 0.

        Shape:
            vectors: (rows, dim), or (dim,) for one.

        Raises:
            TypeError: If an id is something else.
            ValueError: If an id is there already, given twice or of more than 64 bits, the numbers of ids and vectors
                differ, the dims differ, or a number is NaN or infinite, naming its row.
        """
        values = held("vectors", vectors).cpu().float()
        if len(values) and self.dim not in (None, values.shape[1]):
            raise ValueError(f"the vectors have dim {values.shape[1]}, the index {self.dim}; {_ALIKE}")
        wrong = (~values.isfinite().all(1)).nonzero()
        if len(wrong):
            raise ValueError(f"vectors[{int(wrong[0])}] has a NaN, or a number that is infinite as float32; mend it")
        names = ids_of(ids, len(values), self._kept)
        if not len(values):
            return
        codes = quantize(values, self.precision, self.ranges).numpy()
        self.dim = values.shape[1]
        # Floats may be the caller's own memory, who may write to it later.
        self._kept.add(codes.copy() if np.may_share_memory(codes, values.numpy()) else codes, names)

    def remove(self, ids: Iterable[Id]) -> None:
        """Take vectors out, in time that grows with the index; a graph is built anew when it is needed.

        Raises:
            KeyError: If there is no such id; then none was removed.
            TypeError: If this is one id, or one of them is neither a whole number nor a string.
            ValueError: If a number does not fit 64 bits.
        """
        if isinstance(ids, (str, bytes)) or not isinstance(ids, Iterable):
            raise TypeError(f"ids={ids!r} is one id; pass a list of them")
        if self._kept.remove(ids):
            self._graph = None

    @known_arguments
    def search(self, queries: Any, top_k: int = 10) -> IndexHits:
        """The vectors that are most similar to each query.

        Args:
            queries: Array or tensor of floats.
            top_k: How many to find; all, where there are fewer.

        Shape:
            queries: (queries, dim), or (dim,) for one. Each output: (queries, k).

        Raises:
            ValueError: If the dims differ, or a number is NaN or infinite, naming its row.
        """
        k = check_count("top_k", top_k)
        asked = held("queries", queries)
        if len(asked) and self.dim not in (None, asked.shape[1]):
            raise ValueError(f"the queries have dim {asked.shape[1]}, the index {self.dim}; {_ALIKE}")
        if self.backend != "exact" and len(asked) and len(self):
            hits = self._approximate(asked, k)
        else:
            coding: dict[str, Any] = {"precision": self.precision, "ranges": self.ranges}
            hits = semantic_search(asked, iter(self._kept.blocks), k, similarity=self.similarity, **coding)
        return IndexHits(hits.scores, self._kept.array()[hits.indices])

    def _approximate(self, asked: Any, k: int) -> Hits:
        candidates = self._built().search(asked.float().cpu().numpy(), min(len(self), k * _OVERSAMPLE))
        # A graph may reach fewer rows than it was asked for; what it has not found, comparing all does.
        if not asked.isfinite().all() or (candidates < 0).any():
            return semantic_search(asked, self._kept.whole(), k, similarity=self.similarity)
        hits = Hits(np.empty(candidates.shape, np.float32), candidates)
        return rescored(asked, hits, self._kept.whole(), k, similarity=self.similarity)

    def _built(self) -> Graph:
        """The graph, with all rows in it."""
        with _BUILDING:
            graph = self._graph = self._graph or Graph(self.backend, self.similarity, self.dim or 1)
            if len(graph) < len(self):
                graph.add(self._kept.whole()[len(graph) :])
        return graph

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write a folder, which takes the place of an older one in one step: a crash leaves the old one or the new one.

        Args:
            folder: A new folder, or that of an index.

        Raises:
            OSError: If it cannot be written; the old one is left as it was.
            ValueError: If the folder is there and holds something else than an index.
        """
        graph = self._built() if self.backend != "exact" and len(self) else None
        settings = {name: getattr(self, name) for name in stored.SETTINGS}
        with replacing(Path(folder), stored.check_replaceable) as work:
            stored.write(work, settings, self._kept, graph)

    @classmethod
    def load(cls, folder: str | os.PathLike[str], *, verify: bool = True) -> Index:
        """The index in a folder. Its vectors are mapped into memory: they take none until they are searched.

        Args:
            folder: Where it was saved.
            verify: Whether the vectors are compared with the checksum that was saved, for which they are read once,
                part by part: about a second for a GB that the system has in memory, and as long as the disk takes for
                others. Without it, vectors larger than memory are first read when they are searched, and damage to
                them is not noticed. The other files are compared in any case.

        Checksums notice damage, not intent: who can write to the folder can write another checksum as well. faiss and
        usearch trust what is in their files, and a forged one can crash the process or do worse, so load an index
        with a graph only if you trust those who wrote it.

        Raises:
            FileNotFoundError: If there is no such folder.
            ImportError: If its backend is not installed.
            ValueError: If a file is missing, damaged or something else, with its name.
        """
        return read_whole(Path(folder), lambda: cls._read(Path(folder), verify))

    @classmethod
    def _read(cls, folder: Path, verify: bool) -> Index:
        settings, kept, graph = stored.read(folder, verify)
        with stored.describing(folder):
            index = cls(**settings)
        index._kept = kept
        if graph is not None:
            index._graph = stored.read_graph(graph, index.backend, index.similarity, index.dim or 1, len(kept.ids))
        return index
