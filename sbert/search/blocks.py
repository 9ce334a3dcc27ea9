"""Vectors that are checked and prepared for comparison: blocks of a corpus, and queries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from sbert.functional import in_range
from sbert.search.low_precision import Product, product, product_dtype, safe_lengths, unit_roundoff

# Above this length squares overflow in float64. Cosines are computed from rescaled vectors instead.
_MAX_LENGTH = 1e150
# Rows that fit into the CPU cache between two operations on them, and rows that occupy a GPU.
_CACHED_ROWS, _ROWS_ON_GPU = 1024, 1 << 16


class Block(NamedTuple):
    """Rows of a corpus.

    Args:
        values: (rows, dim) float32 or float64.
        norms: (rows,) Euclidean lengths; exact if they are float64.
        low_precision: (rows, dim) the vectors in the dtype of the prefilter; None if its bound does not hold for them.
    """

    values: Tensor
    norms: Tensor
    low_precision: Tensor | None

    def part(self, low: int, high: int) -> Block:
        """Rows ``low`` to ``high``."""
        low_precision = None if self.low_precision is None else self.low_precision[low:high]
        return Block(self.values[low:high], self.norms[low:high], low_precision)


def prepare_block(
    values: Tensor, name: str, similarity: str, start: int = 0, exact: bool = False, buffer: Tensor | None = None
) -> Block:
    """Check a block of vectors, and compute what the comparisons need.

    Args:
        values: (rows, dim) float32 or float64.
        name: Name of the caller's argument, for messages.
        similarity: Similarity of the scores.
        start: Row of the corpus that is the first of this block, for messages.
        exact: Whether to compute exact lengths, which pays if the block is compared many times.
        buffer: Memory of an earlier block's ``low_precision`` to reuse; allocating new memory takes time.

    Raises:
        ValueError: If a value is NaN or infinite, or a vector is too long for float64; the message names its row.
    """
    low_precision, norms = _converted(values, buffer)
    shortest, longest = torch.stack(norms.aminmax()).tolist() if len(norms) else (0.0, 0.0)
    low, high = safe_lengths(low_precision.dtype)
    safe = shortest > low and longest < high  # False if a length is NaN.
    if not safe:
        unsafe = (~((norms > low) & (norms < high))).nonzero()[:, 0]
        wrong = (~torch.isfinite(values[unsafe]).all(1)).nonzero()
        if len(wrong):
            row = start + int(unsafe[wrong[0]])
            raise ValueError(f"{name}[{row}] has a NaN or an infinity; remove or correct that row")
        safe = not bool(values[unsafe].any())  # The bound holds for rows of zeros.
    if not safe and similarity == "cosine" and values.dtype == torch.float64:
        values = in_range(values)  # float32 needs no rescaling: its squares do not overflow in float64.
    if exact or not safe:
        parts = torch.split(values, _rows_per_step(values.device))
        norms = torch.cat([torch.linalg.vector_norm(part.double(), dim=1) for part in parts])
    if similarity != "cosine" and not safe and bool((norms > _MAX_LENGTH).any()):
        row = int((norms > _MAX_LENGTH).nonzero()[0])
        raise ValueError(f"{name}[{start + row}] is longer than {_MAX_LENGTH}, too long to compare; scale the vectors")
    return Block(values, norms, low_precision if safe else None)


def _converted(values: Tensor, buffer: Tensor | None) -> tuple[Tensor, Tensor]:
    """The vectors in the dtype of the prefilter, (rows, dim), and their lengths, (rows,)."""
    norms = values.new_empty(len(values))
    if buffer is not None and len(buffer) >= len(values):
        low_precision = buffer[: len(values)]
    else:
        low_precision = torch.empty_like(values, dtype=product_dtype(values.device))
    step = _rows_per_step(values.device)
    for low in range(0, len(values), step):
        part = slice(low, low + step)
        torch.linalg.vector_norm(values[part], dim=1, out=norms[part])
        low_precision[part] = values[part]
    return low_precision, norms


def _rows_per_step(device: torch.device) -> int:
    return _CACHED_ROWS if device.type == "cpu" else _ROWS_ON_GPU


@dataclass(frozen=True, eq=False)
class Queries:
    """Queries, and the constants of the bounds that ``prefilter`` and ``scoring`` use.

    Args:
        similarity: ``"cosine"``, ``"dot"``, ``"euclidean"`` or ``"manhattan"``.
        values: (queries, dim) float64.
        norms: (queries,) lengths of ``values``.
        lengths: (queries,) lengths of the compared vectors: 1 for cosine, otherwise ``norms``.
        tolerance: Maximum difference of two orders of summation in float64, relative to the product of the lengths or
            to the distance.
        slack: (queries,) maximum error of a low-precision product with a row of length 1.
        margin: Maximum relative error of lengths in float32.
        bounded: Whether these errors hold, so that the prefilter may be used.
        multiply: Low-precision product with the compared vectors, from (rows, dim) to (rows, queries).
    """

    similarity: str
    values: Tensor
    norms: Tensor
    lengths: Tensor
    tolerance: float
    slack: Tensor
    margin: float
    bounded: bool
    multiply: Product

    def __len__(self) -> int:
        return len(self.values)


def prepare_queries(values: Tensor, similarity: str) -> Queries:
    """Convert queries to float64 and to low precision, and bound the errors; see ``prefilter`` for the formula.

    Shape:
        values: (queries, dim).
    """
    exact = values.double()
    if similarity == "cosine" and values.dtype == torch.float64:  # Squares of float32 do not overflow in float64.
        exact = in_range(exact)
    norms = torch.linalg.vector_norm(exact, dim=1)
    compared = exact / divisors(norms)[:, None] if similarity == "cosine" else exact
    lengths = torch.linalg.vector_norm(compared, dim=1)
    low_precision = compared.to(product_dtype(values.device))
    u, dim = unit_roundoff(low_precision.dtype, values.device), values.shape[1]
    g = 2 * (dim + 8) * 2.0**-24
    error = torch.linalg.vector_norm(compared - low_precision, dim=1)
    if low_precision.dtype == torch.float32:  # The product itself may round its inputs.
        error += lengths * u
    low, high = safe_lengths(low_precision.dtype)
    safe = (lengths == 0) | ((lengths > low) & (lengths < high))
    return Queries(
        similarity=similarity,
        values=exact,
        norms=norms,
        lengths=lengths,
        tolerance=4 * (dim + 8) * 2.0**-53,
        # The second g is for lengths in float32 and for the rounding of scores.
        slack=(1 + u) * (error + g * (lengths + error)) + (u + g) * lengths,
        margin=g,
        bounded=similarity != "manhattan" and bool(safe.all()),
        multiply=product(low_precision),
    )


def divisors(norms: Tensor) -> Tensor:
    """Lengths to divide by: 1 for vectors of zeros, whose cosines are 0."""
    return torch.where(norms == 0, 1, norms)
