"""Semantic search: the most similar rows of a corpus for each query."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sbert.functional import Vectors, check_similarity
from sbert.inputs.arguments import check_count, check_positive, known_arguments
from sbert.inputs.vectors import matrix, tensor_of
from sbert.search.blocks import prepare_block, prepare_queries
from sbert.search.corpus import Corpus, device_of, is_coded, is_int8, opened
from sbert.search.scoring import pair_scores
from sbert.search.top_k import Hits, TopK

# Queries that are compared with a block in one step.
_QUERIES = 512
# Default number of candidates per requested row that are rescored.
_OVERSAMPLE = 4


# A corpus in memory, in a file, or as blocks.
CorpusSource = Vectors | str | os.PathLike[str] | Iterator[Vectors]


@known_arguments
def semantic_search(
    queries: Vectors,
    corpus: CorpusSource,
    top_k: int = 10,
    *,
    similarity: str = "cosine",
    precision: str | None = None,
    ranges: np.ndarray | None = None,
    rescore: Vectors | str | os.PathLike[str] | None = None,
    oversample: int | None = None,
) -> Hits:
    """The ``top_k`` most similar rows of a corpus for each query, by exact search.

    Scores are computed from the vectors as given, in float64, and rounded to float32. Rows with equal scores are
    ordered by index. A low-precision prefilter makes this fast; it never changes the result, which is the same on
    every processor. The corpus is read block by block, so it may be larger than memory.

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
        return _search(queries, corpus, k, similarity, precision, ranges)[0]
    finer = opened("rescore", rescore)
    candidates = k * (check_positive("oversample", oversample) or _OVERSAMPLE)
    hits, count = _search(queries, corpus, candidates, similarity, precision, ranges, ranges_optional=is_int8(finer))
    if not len(hits.scores):
        return Hits(*(each[:, :k] for each in hits))
    if count != len(finer):
        raise ValueError(
            f"rescore has {len(finer)} rows, and the corpus {count}; pass the same rows in a higher precision"
        )
    return rescored(queries, hits, finer, k, similarity=similarity, ranges=ranges)


def _search(
    queries: Any,
    corpus: Any,
    k: int,
    similarity: str,
    precision: str | None,
    ranges: Any,
    ranges_optional: bool = False,
) -> tuple[Hits, int]:
    """The top k rows of a corpus, and its number of rows; ``ranges_optional`` as in ``Corpus``."""
    given = tensor_of(matrix("queries", queries)).detach()
    given = given.to(device_of(corpus, given))
    source = Corpus(corpus, given.shape[1], given.device, precision, ranges, is_coded(given), ranges_optional)
    if not len(given):
        return Hits(np.empty((0, k), np.float32), np.empty((0, k), np.int64)), 0
    tops: list[TopK] | None = None
    buffer: Tensor | None = None
    for start, values in source:
        # Queries that are codes can be decoded only when the precision of the corpus is known.
        tops = tops or _empty_tops(source.decoded(given), similarity, k)
        block = prepare_block(values, "corpus", similarity, start, buffer=buffer)
        buffer = block.low_precision if buffer is None or len(buffer) < len(values) else buffer
        for top in tops:
            top.add(block, start)
    hits = [top.hits() for top in tops or _empty_tops(given.float(), similarity, k)]
    return Hits(*(np.concatenate(parts) for parts in zip(*hits, strict=True))), source.count


def _empty_tops(queries: Tensor, similarity: str, k: int) -> list[TopK]:
    """One ``TopK`` for each part of the queries."""
    prepare_block(queries, "queries", similarity)  # Raises an error if a value is not finite.
    return [TopK(prepare_queries(part, similarity), k) for part in torch.split(queries, _QUERIES)]


def rescored(
    queries: Any, hits: Hits, corpus: Any, top_k: int, *, similarity: str = "cosine", ranges: Any = None
) -> Hits:
    """The ``top_k`` of each query's hits by the scores of a corpus in a higher precision."""
    given = tensor_of(matrix("queries", queries)).detach()
    given = given if given.dtype == torch.float64 else given.float()
    whole, device = opened("rescore", corpus), device_of(corpus, given)
    ranges = ranges if is_int8(whole) else None
    results = []
    for low in range(0, len(given), _QUERIES):
        part = given[low : low + _QUERIES].to(device)
        indices = hits.indices[low : low + _QUERIES]
        unique, inverse = np.unique(indices, return_inverse=True)
        values = [block for _, block in Corpus(whole[unique], given.shape[1], device, None, ranges, name="rescore")]
        query_ids = np.repeat(np.arange(len(part)), indices.shape[1])
        pairs = torch.from_numpy(inverse.ravel()).to(device), torch.from_numpy(query_ids).to(device)
        block = prepare_block(torch.cat(values) if values else part[:0], "rescore", similarity)
        scores = pair_scores(prepare_queries(part, similarity), block, pairs).cpu().numpy().reshape(indices.shape)
        order = np.lexsort((indices, -scores), axis=1)[:, :top_k]
        results.append([np.take_along_axis(each, order, 1) for each in (scores, indices)])
    return Hits(*(np.concatenate(parts) for parts in zip(*results, strict=True)))
