"""Semantic search: the most similar rows of a corpus for each query."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sbert.functional import Vectors, check_similarity, maxsim
from sbert.inputs.arguments import check_count, check_positive, known_arguments
from sbert.inputs.vectors import matrix, tensor_of, vectors_of
from sbert.pipeline.quantization import dequantize
from sbert.search.exact.comparison import QUERIES, Hits, block_rows, pair_scores, prepare, search_blocks
from sbert.vector_files.formats import map_file

# Default number of candidates per requested row that are rescored.
_OVERSAMPLE = 4
# Precisions of corpora by dtype; those of other dtypes are floats. int8 codes may also be binary.
_PRECISIONS = {"int8": "int8", "uint8": "ubinary"}

# Vectors in memory or in a file, but not an iterator.
Whole = Vectors | str | os.PathLike[str]


@known_arguments
def semantic_search(
    queries: Vectors,
    corpus: Whole | Iterator[Vectors],
    top_k: int = 10,
    *,
    similarity: str = "cosine",
    ranges: npt.ArrayLike | None = None,
    rescore: Whole | None = None,
    oversample: int | None = None,
) -> Hits:
    """The ``top_k`` most similar rows of a corpus for each query, by exact search.

    Scores are computed from the vectors as given, in float64, and rounded to float32. Rows with equal scores are
    ordered by index. A low-precision prefilter makes this fast and changes no result. The corpus is read block by
    block, so it may be larger than memory.

    Args:
        queries: Vectors of floats.
        corpus: Vectors of float64, float32 or float16, or int8 or binary codes from ``quantize``: an array, a tensor, a
            memory map, the path of a ``.npy`` file, or an iterator over blocks of these.
        top_k: Number of rows per query; all rows if the corpus has fewer.
        similarity: ``"cosine"``, ``"dot"``, ``"euclidean"`` or ``"manhattan"``, the latter two as negative distances.
            The values of binary codes are 1 and -1. ``"maxsim"`` compares what a multi-vector encoder returns, all
            of it in memory.
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
        >>> import numpy as np
        >>> from sbert.search import semantic_search
        >>> corpus = np.array([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]])
        >>> hits = semantic_search(np.array([0.0, 2.0]), corpus, top_k=2)
        >>> hits.scores.round(4), hits.indices
        (array([[1. , 0.8]], dtype=float32), array([[2, 1]]))
    """
    k = check_count("top_k", top_k)
    if similarity == "maxsim":
        totals: Any = np.asarray(maxsim(queries, corpus))  # type: ignore[arg-type]  # (queries, texts)
        if len(wrong := np.argwhere(~np.isfinite(totals))):
            query, text = wrong[0]
            raise ValueError(f"queries[{query}] or corpus[{text}] has a NaN or an infinity; remove or correct it")
        best = np.argsort(-totals, axis=1, kind="stable")[:, :k]
        return Hits(np.take_along_axis(totals, best, 1), best)
    check_similarity(similarity)
    if rescore is None:
        if oversample is not None:
            raise ValueError(f"oversample={oversample} needs rescore; pass rescore=, or remove oversample")
        asked = in_memory("queries", queries, corpus)
        parts = corpus if isinstance(corpus, Iterator) else iter([corpus])
        return search_blocks(asked, read_blocks(asked, parts, ranges=ranges), k, similarity)
    coarse, fine = open_corpus("corpus", corpus), open_corpus("rescore", rescore)
    if len(coarse) != len(fine):
        raise ValueError(f"rescore has {len(fine)} rows, and the corpus {len(coarse)}; pass the same rows in both")
    asked = in_memory("queries", queries, coarse)
    is_coded = fine.dtype in (np.int8, torch.int8)
    blocks = read_blocks(asked, iter([coarse]), ranges=None if is_coded else ranges)
    hits = search_blocks(asked, blocks, k * (check_positive("oversample", oversample) or _OVERSAMPLE), similarity)
    query_ids = np.repeat(np.arange(len(hits.indices)), hits.indices.shape[1])
    scores = scores_of_rows(queries, fine, query_ids, hits.indices.ravel(), similarity, ranges if is_coded else None)
    scores = scores.reshape(hits.indices.shape)
    order = np.lexsort((hits.indices, -scores), axis=1)[:, :k]
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
    whole = open_corpus(name, corpus)
    asked = in_memory("queries", queries, whole)
    scores = np.empty(len(rows), np.float32)
    for low in range(0, len(asked), QUERIES):
        part = slice(*np.searchsorted(query_ids, (low, low + QUERIES)))
        unique, positions = np.unique(rows[part], return_inverse=True)
        some = prepare(asked[low : low + QUERIES], "queries", similarity, exact=True)
        blocks = read_blocks(some.values, iter([whole[unique]]), ranges=ranges, name=name)
        result = prepare(torch.cat([some.values[:0], *blocks]), name, similarity)
        row_ids, asked_ids = (torch.from_numpy(ids).to(asked.device) for ids in (positions, query_ids[part] - low))
        scores[part] = pair_scores(some, result, row_ids, asked_ids).cpu().numpy()
    return scores


# ------------------------------------------------------------------------------------- the corpus, block by block


def read_blocks(
    queries: Tensor,
    parts: Iterator[Any],
    precision: str | None = None,
    ranges: npt.ArrayLike | None = None,
    name: str = "corpus",
) -> Iterator[Tensor]:
    """Blocks of a corpus as floats on the device of the queries, (rows, dim).

    Args:
        queries: (queries, dim) the vectors that it is compared with.
        parts: Arrays, tensors, or paths of ``.npy`` files.
        precision: A key of ``PRECISIONS``; None to derive it from dtype and dimension.
        ranges: Ranges of int8 codes.
        name: Name of the caller's argument, for messages.

    Raises:
        ValueError: If a part does not fit the queries or the ranges.
    """
    dim = queries.shape[1]
    for part in parts:
        whole = open_corpus(name, part)
        of_part = precision or _PRECISIONS.get(str(whole.dtype).removeprefix("torch."), "float32")
        if precision is None and of_part == "int8" and whole.shape[1] != dim:
            of_part = "binary"
        if ranges is not None and of_part != "int8":
            raise ValueError(f"ranges belong to int8, and the corpus is {of_part}; remove ranges")
        expected = -(-dim // 8) if of_part.endswith("binary") else dim
        if whole.shape[1] != expected:
            fits = f"{of_part} codes of {expected} bytes" if of_part.endswith("binary") else f"of dim {dim}"
            shape = tuple(whole.shape)
            raise ValueError(f"{name} has shape {shape}, and the queries are {fits}; encode both with one model")
        step = block_rows(queries, is_copied=str(whole.dtype) not in ("float32", "torch.float32"))
        for low in range(0, len(whole), step):
            block = tensor_of(_without_flag(whole[low : low + step])).detach().to(queries.device)
            if of_part != "float32":
                block = dequantize(block, of_part, ranges, dim)
            yield block if block.dtype == torch.float64 else block.float()


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


def in_memory(name: str, vectors: Any, corpus: Any = None) -> Tensor:
    """Vectors in memory as float32 or float64, on a device that has float64: that of a corpus on a GPU, or its own."""
    tensor = vectors_of(name, vectors).detach()
    on_gpu = isinstance(corpus, Tensor) and corpus.device.type != "cpu"
    device = corpus.device if on_gpu else tensor.device
    without = device.type == "mps" or (device.type == "xpu" and not torch.xpu.get_device_properties(device).has_fp64)
    return tensor.to("cpu" if without else device)  # Exact scores are computed in float64.


def _without_flag(block: Any) -> Any:
    """The same memory, not marked as read-only: torch warns about such arrays. The search writes into no rows."""
    flags = block.flags if isinstance(block, np.ndarray) else None
    if flags is None or flags.writeable or not flags.c_contiguous:
        return block
    interface = {**block.__array_interface__, "data": (block.ctypes.data, False)}
    return np.asarray(SimpleNamespace(__array_interface__=interface, owner=block))
