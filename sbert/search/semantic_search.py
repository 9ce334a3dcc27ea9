"""Semantic search: the most similar rows of a corpus for each query."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sbert.functional import Vectors, check_similarity
from sbert.inputs.arguments import check_count, check_positive, known_arguments
from sbert.inputs.vectors import matrix, tensor_of
from sbert.search.blocks import prepare_block, prepare_queries
from sbert.search.corpus import Corpus, as_floats, is_int8, opened
from sbert.search.scoring import pair_scores
from sbert.search.top_k import Hits, TopK, empty_top_k

# Queries that are compared with a block in one step.
_QUERIES = 512
# Default number of candidates per requested row that are rescored.
_OVERSAMPLE = 4

# Vectors in memory or in a file, all at once.
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
        return _search(Corpus(corpus, queries, precision, ranges), k, similarity)
    finer = opened("rescore", rescore)
    source = Corpus(corpus, queries, precision, ranges, ranges_optional=is_int8(finer))
    hits = _search(source, k * (check_positive("oversample", oversample) or _OVERSAMPLE), similarity)
    if len(hits.scores) and source.count != len(finer):
        raise ValueError(
            f"rescore has {len(finer)} rows, and the corpus {source.count}; pass the same rows in a higher precision"
        )
    return rescored(queries, hits, finer, k, similarity, ranges)


def _search(source: Corpus, k: int, similarity: str) -> Hits:
    """The top k rows of a corpus for its queries."""
    tops: list[TopK] = []
    if not len(source.queries):
        return Hits.empty(0, k)
    buffer: Tensor | None = None
    for start, values in source:
        tops = tops or _empty_tops(source.queries, similarity, k)
        block = prepare_block(values, "corpus", similarity, start, buffer=buffer)
        buffer = block.low_precision if buffer is None or len(buffer) < len(values) else buffer
        for top in tops:
            top.add(block, start)
    hits = [top.hits() for top in tops or _empty_tops(source.queries, similarity, k)]
    return Hits(*(np.concatenate(parts) for parts in zip(*hits, strict=True)))


def _empty_tops(queries: Tensor, similarity: str, k: int) -> list[TopK]:
    """One ``TopK`` for each part of the queries."""
    prepare_block(queries, "queries", similarity)  # Raises an error if a value is not finite.
    return [empty_top_k(prepare_queries(part, similarity), k) for part in torch.split(queries, _QUERIES)]


def rescored(
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
    whole, given = opened(name, corpus), as_floats(tensor_of(matrix("queries", queries)))
    scores = np.empty(len(rows), np.float32)
    for low in range(0, len(given), _QUERIES):
        part = slice(*np.searchsorted(query_ids, (low, low + _QUERIES)))
        unique, positions = np.unique(rows[part], return_inverse=True)
        source = Corpus(whole[unique], given[low : low + _QUERIES], None, ranges, ranges_optional=True, name=name)
        asked = source.queries
        block = prepare_block(torch.cat([asked[:0], *(values for _, values in source)]), name, similarity)
        row_ids, asked_ids = (torch.from_numpy(each).to(asked.device) for each in (positions, query_ids[part] - low))
        scores[part] = pair_scores(prepare_queries(asked, similarity), block, (row_ids, asked_ids)).cpu().numpy()
    return scores
