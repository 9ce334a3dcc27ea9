"""The prefilter: a low-precision matrix product that excludes most pairs from exact comparison.

The prefilter never excludes a pair whose score exceeds the limit. With p for the query s in low precision, d for the
row c in low precision, u for the unit roundoff of low precision and g for the relative error of a sum in float32, the
inequality of Cauchy and Schwarz gives

    |p.d - s.c| <= |p - s| |d| + |s| |d - c| <= |c| ((1 + u) |p - s| + u |s|),

plus g (1 + u) |p| |c| for the summation. So a pair whose low-precision product is below the product that the limit
requires, minus this error, cannot exceed the limit.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from sbert.search.blocks import Block, Queries

# Only rows of zeros are shorter; see ``safe_lengths``.
_SHORTEST = 1e-14
# Above this fraction of all pairs, comparing all of them exactly is faster than selecting some.
_MAX_FRACTION = 1 / 32

# Pairs of a row of the block and a query, as two index tensors of shape (pairs,).
PairIndices = tuple[Tensor, Tensor]


def candidates(
    queries: Queries, block: Block, limits: Tensor, group: int = 64, top_k: int | None = None
) -> PairIndices | None:
    """All pairs whose score may exceed the limit of their query, and few others.

    Args:
        queries: Queries.
        block: Rows.
        limits: (queries,) float64.
        group: Rows that are excluded together if their maximum product is too small.
        top_k: If given, only the ``top_k`` rows of each query are needed: their products raise the limits, which need
            not be finite then. This does not wait for the device.

    Returns:
        None if all pairs should be compared: the bound does not hold, or the candidates would be too many.
    """
    if block.low_precision is None or not queries.bounded:
        return None
    if top_k is None and not bool(torch.isfinite(limits).all()):
        return None
    products = queries.multiply(block.low_precision)  # (rows, queries)
    if len(products) % group:
        group = 1
    # The rows of a group are far apart in memory, so that the maximum is taken over whole rows of the matrix.
    products = products.view(group, -1, len(queries))  # (group, groups, queries)
    norms = block.norms.double().view(group, -1)  # (group, groups)
    if top_k is None:
        bound = _required_product(queries, limits, slice(None), norms.amin(0)[:, None], norms.amax(0)[:, None])
        # Rounding is monotonic, so rounded products may be compared with rounded bounds.
        promising = _group_maxima(products, bound) >= bound.to(products.dtype)
    else:
        limits, promising = _promising(queries, products, norms, limits, top_k)
    groups, query_ids = nonzero(promising)
    if len(groups) * group > products.numel() / 2:
        return None
    norms = norms[:, groups]  # (group, groups that remain)
    bound = _required_product(queries, limits[query_ids], query_ids, norms, norms)
    members, remaining = nonzero(products[:, groups, query_ids] >= bound.to(products.dtype))
    if len(remaining) > _MAX_FRACTION * products.numel():
        return None
    return members * products.shape[1] + groups[remaining], query_ids[remaining]


def _promising(queries: Queries, products: Tensor, norms: Tensor, limits: Tensor, top_k: int) -> tuple[Tensor, Tensor]:
    """The limits, raised to just below the score that a row of ``top_k`` groups reaches, and groups that may exceed it.

    With the inequality of ``prefilter``, the greatest (p.d) / |c| of a group is the greatest cosine of its rows but for
    ``error``. So are p.d for dot products, and p.d - |c|^2 / 2 for distances, which it determines.

    Shape:
        products: (group, groups, queries). norms: (group, groups). limits: (queries,). Outputs: (queries,),
        (groups, queries).
    """
    longest, norms = norms.amax(0)[:, None], norms[:, :, None].to(products.dtype)
    squares, error = queries.lengths.square(), queries.slack * longest
    if queries.similarity == "cosine":
        products, error = products / norms.clamp(min=_SHORTEST), queries.slack
    elif queries.similarity == "euclidean":  # Twice the margin, as these products are rounded, too.
        products, error = products - norms.square() / 2, error + 2 * queries.margin * (squares + longest.square())
    maxima = products.amax(0).double()
    if len(maxima) >= top_k:
        certain = (maxima - error).topk(top_k, dim=0).values[-1]
        if queries.similarity == "euclidean":
            certain = -(squares - 2 * certain).clamp(min=0).sqrt()
        limits = torch.maximum(limits, torch.nextafter(certain, torch.full_like(certain, -torch.inf)))
    if queries.similarity == "euclidean":
        return limits, maxima >= (squares - limits.square()) / 2 - error
    # All scores of a query or a group of zeros are 0, so the limit alone decides.
    return limits, torch.where((queries.lengths == 0) | (longest == 0), limits < 0, maxima >= limits - error)


def _required_product(
    queries: Queries, limits: Tensor, query_ids: Tensor | slice, shortest: Tensor, longest: Tensor
) -> Tensor:
    """The low-precision product without which no score exceeds the limit, for rows from ``shortest`` to ``longest``."""
    slack, length = queries.slack[query_ids], queries.lengths[query_ids]
    bound: Tensor
    if queries.similarity == "euclidean":
        # |s - c| < t  <=>  s.c > (|s|^2 + |c|^2 - t^2) / 2
        bound = (length.square() - limits.square() + shortest.square()) / 2 - slack * longest
        bound -= queries.margin * (length.square() + longest.square())
        return bound
    if queries.similarity == "cosine":
        # Only rows of zeros are shorter than this minimum; their score is 0.
        minimum = limits - slack
        bound = minimum * longest.clamp(min=_SHORTEST)
        if shortest is not longest:
            bound = torch.minimum(bound, minimum * shortest.clamp(min=_SHORTEST))
    else:
        bound = limits - slack * longest
    if shortest is longest:
        return bound
    # All scores of a query or a group of zeros are 0, so the limit alone decides.
    return torch.where((length == 0) | (longest == 0), torch.where(limits < 0, -torch.inf, torch.inf), bound)


def _group_maxima(products: Tensor, bound: Tensor) -> Tensor:
    """The maximum of each group, or some value below the bound. Shape: (groups, queries)."""
    if products.dtype == torch.bfloat16 and bool((bound > 0).all()):
        # Positive floats have the order of their bits, and negative ones are negative integers. Comparing integers is
        # ten times as fast.
        return products.view(torch.int16).amax(0).view(torch.bfloat16)
    return products.amax(0)


def nonzero(mask: Tensor) -> tuple[Tensor, Tensor]:
    """The row and the column of each true element of a matrix."""
    flat, columns = nonzero_flat(mask), max(1, mask.shape[1])
    rows = flat // columns
    return rows, flat - rows * columns  # Faster than the remainder.


def nonzero_flat(mask: Tensor) -> Tensor:
    """The positions of the true elements in the flattened mask."""
    if mask.device.type != "cpu":
        return mask.flatten().nonzero()[:, 0]
    return torch.from_numpy(np.flatnonzero(mask.numpy()))  # Several times as fast as torch.
