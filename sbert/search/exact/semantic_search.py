"""Semantic search: the most similar rows of a corpus for each query."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sbert.functional import Vectors, check_similarity
from sbert.inputs.arguments import check_count, check_positive, known_arguments
from sbert.inputs.vectors import matrix, tensor_of, vectors_of
from sbert.pipeline.quantization import check_ranges, dequantize
from sbert.search.exact import comparison
from sbert.search.exact.comparison import Hits, TopK, pair_scores, prepare
from sbert.vector_files.formats import map_file

# Queries that are compared with a block in one step.
_QUERIES = 512
# Default number of candidates per requested row that are rescored.
_OVERSAMPLE = 4
# Maximum number of values, and of rows, in a block, on a CPU and on a GPU. For a small dimension, the scores take more
# memory than the vectors.
_VALUES, _VALUES_ON_GPU = 6 << 20, 1 << 26
_ROWS, _ROWS_ON_GPU = 1 << 15, 1 << 18
# Bytes around a page that some systems map when the page is read.
_READAHEAD = 4 << 20

# The lengths of blocks, by first row, number of rows and device.
Norms = dict[tuple[int, int, torch.device], Tensor]
# Vectors in memory or in a file, but not an iterator.
Whole = Vectors | str | os.PathLike[str]


@known_arguments
def semantic_search(
    queries: Vectors,
    corpus: Whole | Iterator[Vectors],
    top_k: int = 10,
    *,
    similarity: str = "cosine",
    precision: str | None = None,
    ranges: npt.ArrayLike | None = None,
    rescore: Whole | None = None,
    oversample: int | None = None,
) -> Hits:
    """The ``top_k`` most similar rows of a corpus for each query, by exact search.

    Scores are computed from the vectors as given, in float64, and rounded to float32. Rows with equal scores are
    ordered by index. A low-precision prefilter makes this fast and changes no result. The corpus is read block by
    block, so it may be larger than memory.

    Args:
        queries: Vectors; or codes, if the corpus holds codes of the same kind.
        corpus: Vectors of float64, float32 or float16, or int8 or binary codes from ``quantize``: an array, a tensor, a
            memory map, the path of a ``.npy`` file, or an iterator over blocks of these.
        top_k: Number of rows per query; all rows if the corpus has fewer.
        similarity: ``"cosine"``, ``"dot"``, ``"euclidean"`` or ``"manhattan"``, the latter two as negative distances.
            The values of binary codes are 1 and -1.
        precision: Precision of the corpus, ``"int8"`` or ``"binary"``, if dtype and dimension do not tell.
        ranges: The ranges with which int8 codes were made; without them, the codes themselves are the values.
        rescore: The same rows as in ``corpus`` in a higher precision. The best ``oversample * top_k`` rows of
            ``corpus`` are scored again with these vectors. ``ranges`` belong to the one that is int8.
        oversample: See ``rescore``; default 4.

    Returns:
        ``Hits`` with ``scores`` and ``indices``, the greatest score first.

    Shape:
        queries: (queries, dim) or (dim,). corpus: (rows, dim), or (rows, ceil(dim / 8)) for binary codes. Each output:
        (queries, min(top_k, rows)).

    Raises:
        ValueError: If the dimensions differ, a value is NaN or infinite (the message names its row), or another
            argument does not fit.
        FileNotFoundError: If the file does not exist.

    References:
        Shakir et al., 2024 (binary codes and rescoring). https://huggingface.co/blog/embedding-quantization

    Example:
        >>> corpus = np.array([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]])
        >>> hits = semantic_search(np.array([0.0, 2.0]), corpus, top_k=2)
        >>> hits.scores.round(4), hits.indices
        (array([[1. , 0.8]], dtype=float32), array([[2, 1]]))
    """
    k = check_count("top_k", top_k)
    check_similarity(similarity)
    if rescore is None:
        if oversample is not None:
            raise ValueError(f"oversample={oversample} needs rescore; pass rescore=, or remove oversample")
        return search_blocks(CorpusBlocks(queries, corpus, precision, ranges), k, similarity)
    finer = open_corpus("rescore", rescore)
    blocks = CorpusBlocks(queries, corpus, precision, ranges, ranges_optional=finer.dtype in (np.int8, torch.int8))
    hits = search_blocks(blocks, k * (check_positive("oversample", oversample) or _OVERSAMPLE), similarity)
    if len(hits.scores) and blocks.count != len(finer):
        raise ValueError(f"rescore has {len(finer)} rows, and the corpus {blocks.count}; pass the same rows in both")
    return rescore_hits(queries, hits, finer, k, similarity, ranges)


def search_blocks(blocks: CorpusBlocks, k: int, similarity: str, norms: Norms | None = None) -> Hits:
    """The top k rows of a corpus for its queries.

    Args:
        blocks: The corpus and its queries.
        k: Maximum number of rows per query.
        similarity: Similarity of the scores.
        norms: Lengths from earlier searches of the same corpus, to which those of this one are added.
    """
    few = blocks.device.type == "cpu" and len(blocks.queries) <= comparison.FEW
    buffer = torch.empty(blocks.queries.shape) if few else None  # The products of few queries are those of float32.
    queries, buffer = prepare(blocks.queries, "queries", similarity, exact=True, buffer=buffer), None
    if not len(queries.values):
        return Hits(np.empty((0, k), np.float32), np.empty((0, k), np.int64))
    tops = [TopK(queries.part(slice(low, low + _QUERIES)), k) for low in range(0, len(queries.values), _QUERIES)]
    for start, values in blocks:
        key = (start, len(values), values.device)
        cached = None if norms is None else norms.get(key)
        rows = prepare(
            values, "corpus", similarity, start, buffer=buffer, queries=queries if few else None, norms=cached
        )
        buffer = buffer if few or buffer is not None else rows.low_precision
        if rows.low_precision is not None and norms is not None:
            norms[key] = rows.norms
        for top in tops:
            top.add(rows, start)
    return tops[0].hits() if len(tops) == 1 else Hits(*map(np.concatenate, zip(*map(TopK.hits, tops), strict=True)))


def rescore_hits(
    queries: Vectors, hits: Hits, corpus: Whole, top_k: int, similarity: str, ranges: npt.ArrayLike | None = None
) -> Hits:
    """The ``top_k`` of each query's hits by the scores of a corpus in a higher precision."""
    query_ids = np.repeat(np.arange(len(hits.indices)), hits.indices.shape[1])
    scores = scores_of_rows(queries, corpus, query_ids, hits.indices.ravel(), similarity, ranges)
    scores = scores.reshape(hits.indices.shape)
    order = np.lexsort((hits.indices, -scores), axis=1)[:, :top_k]
    return Hits(np.take_along_axis(scores, order, 1), np.take_along_axis(hits.indices, order, 1))


def scores_of_rows(
    queries: Vectors,
    corpus: Whole,
    query_ids: npt.NDArray[np.int64],
    rows: npt.NDArray[np.int64],
    similarity: str,
    ranges: npt.ArrayLike | None = None,
    name: str = "rescore",
) -> npt.NDArray[np.float32]:
    """The exact scores of some pairs of a query and a row of a corpus, of which no other row is read.

    Args:
        queries: Vectors.
        corpus: Vectors, or codes if they are int8.
        query_ids: (pairs,) in ascending order.
        rows: (pairs,) rows of the corpus.
        similarity: Similarity of the scores.
        ranges: Ranges of int8 codes; ignored if the corpus holds none.
        name: Name of the caller's argument for the corpus, for messages.

    Shape:
        Output: (pairs,).
    """
    whole, asked = open_corpus(name, corpus), tensor_of(matrix("queries", queries))
    asked = asked if asked.dtype == torch.float64 else asked.float()
    scores = np.empty(len(rows), np.float32)
    for low in range(0, len(asked), _QUERIES):
        part = slice(*np.searchsorted(query_ids, (low, low + _QUERIES)))
        unique, positions = np.unique(rows[part], return_inverse=True)
        blocks = CorpusBlocks(asked[low : low + _QUERIES], whole[unique], None, ranges, ranges_optional=True, name=name)
        some = prepare(blocks.queries, "queries", similarity, exact=True)
        result = prepare(torch.cat([some.values[:0], *(values for _, values in blocks)]), name, similarity)
        row_ids, asked_ids = (torch.from_numpy(ids).to(blocks.device) for ids in (positions, query_ids[part] - low))
        scores[part] = pair_scores(some, result, row_ids, asked_ids).cpu().numpy()
    return scores


# ------------------------------------------------------------------------------------- the corpus, block by block


class CorpusBlocks:
    """Blocks of a corpus, checked and converted to floats, and the queries that they are compared with.

    Args:
        queries: (queries, dim) floats; or codes of the same kind as those of the corpus.
        corpus: Array, tensor, the path of a ``.npy`` file, or an iterator over these.
        precision: ``"float32"``, ``"int8"``, ``"binary"`` or ``"ubinary"``; None to derive it from dtype and dimension.
        ranges: Ranges of int8 codes.
        ranges_optional: Whether ``ranges`` are allowed if the corpus is not int8; they may belong to ``rescore``.
        name: Name of the caller's argument, for messages.
    """

    def __init__(
        self,
        queries: Any,
        corpus: Any,
        precision: str | None = None,
        ranges: Any = None,
        *,
        ranges_optional: bool = False,
        name: str = "corpus",
    ) -> None:
        whole = [] if isinstance(corpus, Iterator) else [open_corpus(name, corpus)]
        self._wholes: Iterator[Any] = iter(whole) if whole else map(partial(open_corpus, name), corpus)
        asked = tensor_of(matrix("queries", queries)).detach()
        self.device = torch.device("cpu")
        for vectors in (asked, corpus):
            if isinstance(vectors, Tensor) and vectors.device.type != "cpu":
                self.device = _exact_device(vectors.device)
        self.count: int = 0  # Rows that were read.
        self._coded = asked.dtype in (torch.int8, torch.uint8)
        self._dim = asked.shape[1]
        self._precision, self._name = precision, name
        self._ranges = None if ranges is None else check_ranges(ranges, self._dim)
        self._ranges_optional = ranges_optional
        if self._coded:  # They have the precision of the corpus.
            first = next(self._wholes, np.empty((0, self._dim)))
            self._wholes = chain([first], self._wholes)
            asked = dequantize(asked, self._recognize(first), self._ranges)
        self.queries: Tensor = (asked if asked.dtype == torch.float64 else asked.float()).to(self.device)

    def __iter__(self) -> Iterator[tuple[int, Tensor]]:
        """The index of the first row of each block, and its rows as floats, (rows, dim)."""
        most, values = (_ROWS, _VALUES) if self.device.type == "cpu" else (_ROWS_ON_GPU, _VALUES_ON_GPU)
        most = max(64, min(values // self._dim, most) // 64 * 64)  # A multiple of the groups of the prefilter.
        for whole in self._wholes:
            precision = self._recognize(whole)
            low, dim = 0, None if self._coded else self._dim
            while low < len(whole):
                high = low + most
                block = tensor_of(_without_flag(whole[low:high])).detach().to(self.device)
                if precision != "float32":
                    block = dequantize(block, precision, self._ranges, dim)
                yield self.count + low, block if block.dtype == torch.float64 else block.float()
                _release(whole, low, high)
                low = high
            self.count += len(whole)

    def _recognize(self, whole: np.ndarray | Tensor) -> str:
        """The precision of some rows, by dtype and dimension; a ValueError if they do not fit queries or ranges."""
        precision = self._precision or "float32"
        if self._precision is None and whole.dtype in (np.int8, torch.int8):
            if self._coded:
                raise ValueError("int8 codes may be int8 or binary; pass precision='int8' or precision='binary'")
            precision = "int8" if whole.shape[1] == self._dim else "binary"
        elif self._precision is None and whole.dtype in (np.uint8, torch.uint8):
            precision = "ubinary"
        elif self._precision is None and self._coded:
            raise ValueError("the queries are codes, and the corpus is not; pass float queries, or quantize the corpus")
        if self._ranges is not None and precision != "int8" and not self._ranges_optional:
            raise ValueError(f"ranges belong to int8, and the corpus is {precision}; remove ranges")
        expected = -(-self._dim // 8) if precision.endswith("binary") and not self._coded else self._dim
        if whole.shape[1] != expected:
            fits = f"of dim {self._dim}" if precision == "float32" else f"{precision} codes of {expected} bytes"
            shape = tuple(whole.shape)
            raise ValueError(f"{self._name} has shape {shape}, and the queries are {fits}; encode both with one model")
        return precision


def open_corpus(name: str, vectors: Any) -> np.ndarray | Tensor:
    """An array or a tensor with two dimensions; a file is mapped into memory.

    Args:
        name: Name of the caller's argument, for messages.
        vectors: Array, tensor, list of vectors, or the path of a ``.npy`` file.

    Raises:
        FileNotFoundError: If the file does not exist.
        TypeError: If it is not an array of numbers.
        ValueError: If it has another shape, or the file cannot be read.
    """
    if isinstance(vectors, (str, os.PathLike)):
        if not os.path.isfile(vectors):
            raise FileNotFoundError(f"{name}={vectors!r} is not a file; pass the path of a .npy file, or vectors")
        vectors = map_file(Path(vectors))
    return matrix(name, vectors)


def in_memory(name: str, vectors: Any) -> Tensor:
    """Vectors in memory as float32 or float64, on a device that has float64."""
    tensor = vectors_of(name, vectors).detach()
    return tensor.to(_exact_device(tensor.device))


def _exact_device(device: torch.device) -> torch.device:
    """The device, or the CPU if it has no float64, which exact scores are computed in."""
    without = device.type == "mps" or (device.type == "xpu" and not torch.xpu.get_device_properties(device).has_fp64)
    return torch.device("cpu") if without else device


def _without_flag(block: Any) -> Any:
    """The same memory, not marked as read-only: torch warns about such arrays. The search writes into no rows."""
    flags = block.flags if isinstance(block, np.ndarray) else None
    if flags is None or flags.writeable or not flags.c_contiguous:
        return block
    interface = {**block.__array_interface__, "data": (block.ctypes.data, False)}
    return np.asarray(SimpleNamespace(__array_interface__=interface, owner=block))


def _release(whole: Any, low: int, high: int) -> None:
    """Free the memory of mapped rows after reading; the system reads them from the file again when needed."""
    owner: Any = whole
    while isinstance(owner, np.ndarray) and not isinstance(owner, np.memmap):
        owner = owner.base
    mapped: Any = getattr(owner, "_mmap", None)
    # Changes to a map in mode "c" exist in memory only.
    if mapped is None or owner.mode == "c" or not whole.flags.c_contiguous or not hasattr(mmap, "MADV_DONTNEED"):
        return
    first = whole.ctypes.data - np.frombuffer(mapped, np.uint8).ctypes.data
    begin, end = first + low * whole.strides[0], first + min(high, len(whole)) * whole.strides[0]
    begin = max(0, begin - begin % mmap.PAGESIZE - _READAHEAD)
    if end > begin:
        mapped.madvise(mmap.MADV_DONTNEED, begin, end - begin)
