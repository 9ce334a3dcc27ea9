"""Exact scores.

A score is the similarity of two vectors as they are given, computed in float64 with pairwise summation and rounded to
float32. So a score depends on its two vectors alone, and not on the processor, the number of threads, the batch or the
order of the pair: results are reproducible everywhere, and equal vectors have equal scores. Pairwise summation is slow,
so scores are first computed in float64 with the fastest order of summation. Two orders differ by less than a known
bound; only where that bound allows two float32 values is a score computed again with pairwise summation. Before that,
``prefilter`` excludes most pairs whose scores cannot exceed a limit.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import cache

import numpy as np
import torch
from torch import Tensor

from sbert.search.blocks import Block, Queries, divisors, prepare_queries
from sbert.search.corpus import ALIGNED, block_end
from sbert.search.prefilter import PairIndices, candidates, nonzero, nonzero_flat
from sbert.storage.processes import Lock

_lock = Lock()
# Pairs that are compared in one step, on a CPU, where their vectors fit into the cache, and on a GPU.
_PAIRS, _PAIRS_ON_GPU = 256, 1 << 15
# Number of pairs from which a sparse product is faster, if there are also as many pairs as rows.
_SPARSE = 4096
# Queries, and rows, of a tile of the matrix of pairs.
_TILE_QUERIES, _TILE_ROWS = 512, 4096
# Scores that are rounded in one step, on a CPU, where they fit into the cache, and on a GPU.
_ROUNDED, _ROUNDED_ON_GPU = 1 << 17, 1 << 24

# The order p of the similarities that are negative distances.
_DISTANCES = {"euclidean": 2.0, "manhattan": 1.0}


def all_scores(queries: Queries, block: Block) -> Tensor:
    """The exact scores of all pairs. Shape: (queries, rows) float32."""
    values, lengths = unrounded_scores(queries, block), _row_lengths(queries, block)
    scores = torch.empty_like(values, dtype=torch.float32)
    step = max(1, (_ROUNDED if values.device.type == "cpu" else _ROUNDED_ON_GPU) // max(1, len(lengths)))
    uncertain = []
    for low in range(0, len(values), step):
        part = slice(low, low + step)
        scores[part], positions = _rounded(queries, values[part], queries.lengths[part, None], lengths)
        uncertain.append(positions + low * len(lengths))
    flat = torch.cat(uncertain) if uncertain else values.new_empty(0, dtype=torch.int64)
    if len(flat):
        row_ids, query_ids = flat % len(lengths), flat // len(lengths)
        scores[query_ids, row_ids] = _reference_scores(queries, block, row_ids, query_ids)
    return scores


def pair_scores(queries: Queries, block: Block, pairs: PairIndices) -> Tensor:
    """The exact scores of some pairs. Shape: (pairs,) float32."""
    row_ids, query_ids = pairs
    few = len(row_ids) < max(_SPARSE, len(block.values))
    if queries.similarity in _DISTANCES or few or row_ids.device.type != "cpu":
        values = torch.cat([_gathered_scores(queries, block, *part) for part in _parts(row_ids, query_ids)])
    else:
        values = _sparse_scores(queries, block, row_ids, query_ids)
    lengths = _row_lengths(queries, block).index_select(0, row_ids)
    scores, uncertain = _rounded(queries, values, queries.lengths.index_select(0, query_ids), lengths)
    if len(uncertain):
        scores[uncertain] = _reference_scores(queries, block, row_ids[uncertain], query_ids[uncertain])
    return scores


def just_below(score: float) -> float:
    """The greatest float32 below a score: limits must be exceeded, and a score equal to a threshold counts."""
    return float(np.nextafter(np.float32(score), np.float32(-np.inf)))


def scores_above(
    queries: Queries, block: Block, limit: float, group: int = 64, min_offset: int | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """The scores above a limit, with their rows of the block and their queries. Shape of each: (pairs,).

    Args:
        queries: Queries.
        block: Rows.
        limit: Scores must be greater.
        group: As in ``candidates``.
        min_offset: If given, only pairs whose row minus query is greater.
    """
    limits = torch.full((len(queries),), limit, dtype=torch.float64, device=queries.values.device)
    pairs = candidates(queries, block, limits, group)
    matrix: Tensor | None = None
    if pairs is None:
        matrix = all_scores(queries, block)  # (queries, rows)
        query_ids, row_ids = nonzero(matrix > limit)
    else:
        row_ids, query_ids = pairs
    if min_offset is not None and min_offset > -len(queries):  # Otherwise it holds for all pairs.
        later = nonzero_flat(row_ids - query_ids > min_offset)
        row_ids, query_ids = row_ids.index_select(0, later), query_ids.index_select(0, later)
    scores = pair_scores(queries, block, (row_ids, query_ids)) if matrix is None else matrix[query_ids, row_ids]
    above = nonzero_flat(scores > limit)
    return scores.index_select(0, above), row_ids.index_select(0, above), query_ids.index_select(0, above)


def tiles(block: Block, similarity: str) -> Iterator[tuple[Queries, int, Block, int]]:
    """Tiles of the upper triangle of the matrix of pairs: queries and their first row, a block and its first row.

    Tiles on the diagonal contain pairs of both orders; ``pairs_above`` keeps one of them.
    """
    total = len(block.values)
    for low in range(0, total, _TILE_QUERIES):
        queries = prepare_queries(block.values[low : low + _TILE_QUERIES], similarity)
        start = low
        while start < total:
            end = block_end(start, _TILE_ROWS, total)
            yield queries, low, block.part(start, end), start
            start = end


def pairs_above(
    queries: Queries, low: int, part: Block, start: int, limit: float, group: int = ALIGNED
) -> tuple[Tensor, Tensor, Tensor]:
    """The scores above a limit in a tile, and the rows of each pair, ``first < second``. Shape of each: (pairs,)."""
    scores, rows, columns = scores_above(queries, part, limit, group, min_offset=low - start)
    return scores, columns + low, rows + start


def unrounded_scores(queries: Queries, block: Block) -> Tensor:
    """The scores of all pairs with the fastest order of summation. Shape: (queries, rows) float64."""
    values = block.values.double()
    if queries.similarity in _DISTANCES:
        p = _DISTANCES[queries.similarity]
        distances: Tensor = torch.cdist(queries.values, values, p, "donot_use_mm_for_euclid_dist")
        return distances.neg_()
    products = queries.values @ values.T
    if queries.similarity == "cosine":
        products /= divisors(queries.norms)[:, None]
        products /= divisors(_exact_norms(block, values))
    return products


def _sparse_scores(queries: Queries, block: Block, row_ids: Tensor, query_ids: Tensor) -> Tensor:
    """The scores of many pairs, without a copy of their vectors. Shape: (pairs,) float64."""
    values = block.values.double()
    products = _sparse_products(queries.values, values, row_ids, query_ids)
    if queries.similarity == "cosine":
        products /= divisors(queries.norms).index_select(0, query_ids)
        products /= divisors(_exact_norms(block, values)).index_select(0, row_ids)
    return products


def _gathered_scores(queries: Queries, block: Block, row_ids: Tensor, query_ids: Tensor) -> Tensor:
    """The scores of few pairs, from copies of their vectors. Shape: (pairs,) float64."""
    query, row = queries.values.index_select(0, query_ids), block.values.index_select(0, row_ids).double()
    if queries.similarity in _DISTANCES:
        distances: Tensor = torch.linalg.vector_norm(query - row, _DISTANCES[queries.similarity], dim=1)
        return distances.neg_()
    products = (query * row).sum(1)
    if queries.similarity == "cosine":
        exact = block.norms.dtype == torch.float64
        norms = block.norms.index_select(0, row_ids) if exact else torch.linalg.vector_norm(row, dim=1)
        products /= divisors(queries.norms.index_select(0, query_ids))
        products /= divisors(norms)
    return products


def _parts(row_ids: Tensor, query_ids: Tensor) -> Iterator[PairIndices]:
    """Pairs that are compared in one step."""
    size = _PAIRS if row_ids.device.type == "cpu" else _PAIRS_ON_GPU
    return zip(torch.split(row_ids, size), torch.split(query_ids, size), strict=True)


def _reference_scores(queries: Queries, block: Block, row_ids: Tensor, query_ids: Tensor) -> Tensor:
    """The scores of pairs by definition, with pairwise summation. Shape: (pairs,) float32."""
    scores = []
    for rows_part, queries_part in _parts(row_ids, query_ids):
        query = queries.values.index_select(0, queries_part)
        row = block.values.index_select(0, rows_part).double()
        if queries.similarity == "manhattan":
            scores.append(-pairwise_sum((query - row).abs_()))
        elif queries.similarity == "euclidean":
            scores.append(-pairwise_sum((query - row).square_()).sqrt_())
        elif queries.similarity == "dot":
            scores.append(pairwise_sum(query * row))
        else:
            query_norms, row_norms = (divisors(pairwise_sum(each.square()).sqrt_()) for each in (query, row))
            scores.append(pairwise_sum(query * row) / (query_norms * row_norms))
    return torch.cat(scores).float()


def _rounded(queries: Queries, values: Tensor, query_lengths: Tensor, row_lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Scores as float32, and the flat positions where another order of summation might round differently."""
    if queries.similarity in _DISTANCES:
        low, high = values * (1 - queries.tolerance), values * (1 + queries.tolerance)
    else:
        low = torch.addcmul(values, query_lengths, row_lengths, value=-queries.tolerance)
        high = torch.addcmul(values, query_lengths, row_lengths, value=queries.tolerance)
    scores = low.float()
    return scores, nonzero_flat(scores != high.float())


def _row_lengths(queries: Queries, block: Block) -> Tensor:
    """The lengths of the rows as they are compared: 1 for cosines, 0 for rows of zeros. Shape: (rows,) float64."""
    return (block.norms > 0).double() if queries.similarity == "cosine" else block.norms.double()


def _exact_norms(block: Block, values: Tensor) -> Tensor:
    """The lengths of the rows in float64, of which ``values`` are the float64 values. Shape: (rows,)."""
    return block.norms if block.norms.dtype == torch.float64 else torch.linalg.vector_norm(values, dim=1)


def pairwise_sum(terms: Tensor) -> Tensor:
    """The sum of each row by pairwise summation: the second half is added to the first until one value is left.

    Shape:
        terms: (rows, columns). Output: (rows,).
    """
    while terms.shape[1] > 1:
        half = terms.shape[1] // 2
        folded = terms[:, :half] + terms[:, half : 2 * half]
        terms = torch.cat([folded, terms[:, 2 * half :]], 1)
    return terms.sum(1)  # One column, or none.


def _sparse_products(queries: Tensor, values: Tensor, row_ids: Tensor, query_ids: Tensor) -> Tensor:
    """The dot products of pairs in float64, by a sampled matrix product. Shape: (pairs,)."""
    # NumPy sorts 16-bit integers by radix sort.
    order = torch.from_numpy(np.argsort(query_ids.numpy().astype(np.min_scalar_type(len(queries))), kind="stable"))
    ends = torch.bincount(query_ids, minlength=len(queries)).cumsum(0)
    starts, zeros = torch.cat([ends.new_zeros(1), ends]), queries.new_zeros(len(row_ids))
    _silence_sparse_warning()
    pattern = torch.sparse_csr_tensor(starts, row_ids[order], zeros, (len(queries), len(values)))
    products = queries.new_empty(len(row_ids))
    products[order] = torch.sparse.sampled_addmm(pattern, queries, values.T, beta=0.0).values()
    return products


@cache
def _silence_sparse_warning() -> None:
    """Trigger the warning that sparse matrices may change, which torch gives once per process, and discard it."""
    with _lock, warnings.catch_warnings():  # Two threads at once could leave the filters changed.
        warnings.simplefilter("ignore")
        torch.sparse_csr_tensor([0, 0], [], [], (1, 1))
