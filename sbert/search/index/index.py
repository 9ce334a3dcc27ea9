"""An index: vectors with ids, to add, remove, search, save and load."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt
from torch import Tensor

from sbert.functional import Vectors, check_similarity
from sbert.inputs.arguments import check_count, check_positive, known_arguments
from sbert.pipeline.quantization import PRECISIONS, check_coding, check_ranges, quantize
from sbert.search.exact.comparison import Hits, Norms, search_blocks
from sbert.search.exact.semantic_search import in_memory, open_corpus, read_blocks
from sbert.search.index.index_folder import (
    VECTORS,
    Id,
    Ids,
    append_block,
    join_blocks,
    save_folder,
    unreadable,
    verify_folder,
)
from sbert.storage.folders import read_whole
from sbert.vector_files.formats import npy_header

# The arguments of an index that are saved.
_SETTINGS = ("dim", "similarity", "precision", "ranges")


class Index:
    """Vectors with ids of your choice, searched exactly, with the scores of ``semantic_search``.

    Vectors with equal scores are ordered by the time of addition.

    Args:
        dim: Dimension of the vectors; default: that of the first vectors added.
        similarity: ``"cosine"``, ``"dot"``, ``"euclidean"`` or ``"manhattan"``.
        precision: How vectors are stored: ``"float32"``, ``"int8"``, ``"binary"`` or ``"ubinary"``. Vectors are always
            passed as floats.
        ranges: Ranges of int8 codes, from ``sbert.search.calibrate``.

    Raises:
        ValueError: If an argument is unknown, or the arguments contradict each other.

    Example:
        >>> from sbert import SentenceEncoder
        >>> from sbert.search import Index
        >>> model = SentenceEncoder()
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
        similarity: str = "cosine",
        precision: str = "float32",
        ranges: npt.ArrayLike | None = None,
    ) -> None:
        check_similarity(similarity)
        check_coding(precision, ranges)
        self.dim: int | None = check_positive("dim", dim)
        self.similarity: str = similarity
        self.precision: str = precision
        self.ranges: npt.NDArray[np.float32] | None = None if ranges is None else check_ranges(ranges, self.dim)
        self.dim = self.dim if self.ranges is None else self.ranges.shape[1]
        self._ids = Ids("vector")
        self._blocks: list[np.ndarray] = []
        self._norms: Norms = {}  # Of rows that were searched: added rows do not change them.

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
        if len(wrong := (~values.isfinite().all(1)).nonzero()):
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
        """Remove vectors, in time proportional to the size of the index.

        Raises:
            KeyError: If an id is not in the index; then none was removed.
            TypeError: If ``ids`` is a single id, or an id is neither an integer nor a string.
            ValueError: If an integer does not fit 64 bits.
        """
        remaining = self._ids.remaining(ids)
        if remaining is not None:
            self._blocks = [join_blocks(self._blocks)[remaining]] if remaining.any() else []
            self._ids.select(remaining)
            self._norms = {}

    @known_arguments
    def search(self, queries: Vectors, top_k: int = 10) -> Hits:
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
        blocks = read_blocks(values, iter(self._blocks), self.precision, self.ranges)
        hits = search_blocks(values, blocks, k, self.similarity, self._norms)
        return Hits(hits.scores, self._ids.array()[hits.indices])

    def _check_dim(self, name: str, values: Tensor) -> None:
        """Raise a ValueError if there are vectors, and they have another dim than those in the index."""
        if len(values) and self.dim not in (None, values.shape[1]):
            raise ValueError(f"the {name} have dim {values.shape[1]}, the index {self.dim}; encode both with one model")

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
        save_folder(Path(folder), settings, self._ids, self._write)

    def _write(self, folder: Path) -> None:
        if not len(self):
            return
        with (folder / VECTORS).open("wb") as file:
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

        Checksums detect damage, not attacks; no file of the folder can execute code.

        Raises:
            FileNotFoundError: If the folder does not exist.
            ValueError: If a file is missing, damaged or of another format; the message names it.
        """
        return read_whole(Path(folder), lambda: cls._read(Path(folder), verify))

    @classmethod
    def _read(cls, folder: Path, verify: bool) -> Index:
        described, ids = verify_folder(folder, "vector", verify)
        index = cls(**{name: described[name] for name in _SETTINGS})
        index._ids = ids
        if not len(ids):
            return index
        dim = index.dim or 1
        vectors = open_corpus("vectors", folder / VECTORS)
        expected = len(ids), -(-dim // 8) if "binary" in index.precision else dim
        if vectors.shape != expected or vectors.dtype != PRECISIONS[index.precision]:  # The header may be unverified.
            raise unreadable(folder, f"has shape {vectors.shape} and dtype {vectors.dtype}", VECTORS)
        index._blocks = [vectors]
        return index
