"""Exact comparisons of vectors, few of which have to be made.

Scores are defined as the similarities of the vectors as they are given, computed in float64 and rounded to float32,
with sums by halves: they depend on nothing but the two vectors. Sums in any other order are faster, and differ by no
more than is known; where so little might change what float32 makes of them, they are made once more by halves. Most
pairs never get that far. A product in few bits, mostly bfloat16,
comes first, and it is off by no more than is known. With p for the query s in few bits, d for the row c in few bits, u
for the greatest part by which a number changes on its way to few bits, and g for the same of a sum in float32,

    |p.d - s.c| <= |p - s| |d| + |s| |d - c| <= |c| ((1 + u) |p - s| + u |s|),    and g (1 + u) |p| |c| for the sum,

by the inequality of Cauchy and Schwarz. So a pair whose rough product is less than what its score would have to be,
less that much, is not among the best: to leave it out changes nothing.
"""

from __future__ import annotations

import warnings
from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from sbert.functional import in_range
from sbert.search.prefilter import product, rough_dtype, unit
from sbert.storage.processes import Lock

_lock = Lock()
# Beyond these lengths float32 may overflow or lose the products of small numbers, so that the bound says nothing.
_RANGE = (1e-14, 1e15)
# Beyond this length float64 overflows, but for cosines, which are of vectors that were scaled.
_LONGEST = 1e150
# Pairs that are compared exactly at once: their vectors stay in the cache.
_PAIRS = 256
# Pairs from which on a sparse product is faster, if there are as many as rows.
_SPARSE = 4096
# Scores that are rounded at once, on a CPU, where they stay in the cache, and on a GPU.
_ROUNDED, _ROUNDED_OF_GPU = 1 << 17, 1 << 24
# Rows that stay in the cache between two things that are done to them.
_CACHED = 1024
# From this part of all pairs on, comparing all exactly is cheaper than to pick those that are worth it.
_MANY = 1 / 32

# Similarities that are negative distances, and which.
_DISTANCES = {"euclidean": 2.0, "manhattan": 1.0}

Places = tuple[Tensor, Tensor]


class Rows(NamedTuple):
    """A block of vectors to be compared with queries.

    Args:
        values: (rows, dim), float32 or float64.
        norms: (rows,) their lengths; exact where they are float64.
        rough: (rows, dim) the vectors in few bits; None where they are such that no bound holds.
    """

    values: Tensor
    norms: Tensor
    rough: Tensor | None

    def part(self, low: int, high: int) -> Rows:
        """Some of the rows."""
        rough = None if self.rough is None else self.rough[low:high]
        return Rows(self.values[low:high], self.norms[low:high], rough)


def rows(
    values: Tensor, name: str, similarity: str, start: int = 0, exact: bool = False, room: Tensor | None = None
) -> Rows:
    """A block, checked.

    Args:
        values: (rows, dim), float32 or float64.
        name: What the caller calls the vectors.
        similarity: How they will be compared.
        start: Which of them is the first of this block.
        exact: Whether their lengths will be needed many times.
        room: Memory of a block before, whose vectors in few bits are needed no more: new memory costs time.

    Raises:
        ValueError: If a number is NaN or infinite, or too large for float64 to square, naming its row.
    """
    norms = values.new_empty(len(values))
    if room is not None and len(room) >= len(values):
        rough = room[: len(values)]
    else:
        rough = torch.empty_like(values, dtype=rough_dtype(values.device))
    for low in range(0, len(values), _CACHED):
        part = slice(low, low + _CACHED)
        torch.linalg.vector_norm(values[part], dim=1, out=norms[part])
        rough[part] = values[part]
    shortest, longest = (float(end) for end in norms.aminmax()) if len(norms) else (0.0, 0.0)
    usual = shortest > _RANGE[0] and longest < _RANGE[1]  # False of NaN.
    if not usual:
        odd = (~((norms > _RANGE[0]) & (norms < _RANGE[1]))).nonzero()[:, 0]
        wrong = (~torch.isfinite(values[odd]).all(1)).nonzero()
        if len(wrong):
            row = start + int(odd[wrong[0]])
            raise ValueError(f"{name}[{row}] has a NaN or an infinity; leave that row out, or mend it")
        usual = not bool(values[odd].any())  # But rows of zeros, all are.
    if not usual and similarity == "cosine":
        values = in_range(values) if values.dtype == torch.float64 else values  # float64 squares all of float32.
    if exact or not usual:
        norms = torch.cat([torch.linalg.vector_norm(some.double(), dim=1) for some in torch.split(values, _CACHED)])
    if similarity != "cosine" and not usual and bool((norms > _LONGEST).any()):
        row = int((norms > _LONGEST).nonzero()[0])
        raise ValueError(f"{name}[{start + row}] is longer than {_LONGEST}, too long to compare; scale the vectors")
    return Rows(values, norms, rough if usual else None)


class Queries:
    """Vectors that rows are compared with.

    Args:
        values: Vectors, (queries, dim).
        similarity: ``"cosine"``, ``"dot"``, ``"euclidean"`` or ``"manhattan"``.
    """

    def __init__(self, values: Tensor, similarity: str) -> None:
        self.similarity = similarity
        self.values = values.double()
        self.norms = torch.linalg.vector_norm(self.values, dim=1)
        if similarity == "cosine" and values.dtype == torch.float64:  # Which squares all of float32.
            self.values = in_range(self.values)
            self.norms = torch.linalg.vector_norm(self.values, dim=1)
        scaled = self.values / _divisors(self.norms)[:, None] if similarity == "cosine" else self.values
        self.lengths = torch.linalg.vector_norm(scaled, dim=1)
        few = scaled.to(rough_dtype(values.device))
        u, dim = unit(few.dtype, values.device), values.shape[1]
        g = 2 * (dim + 8) * 2.0**-24
        # By how much two ways to compute a score in float64 may differ, as a part of the lengths or of the distance.
        self._doubt = 4 * (dim + 8) * 2.0**-53
        error = torch.linalg.vector_norm(scaled - few, dim=1)
        if few.dtype == torch.float32:  # The product itself may leave bits away.
            error += self.lengths * u
        # The second g is for lengths in float32 and for the rounding of scores.
        self.slack = (1 + u) * (error + g * (self.lengths + error)) + (u + g) * self.lengths
        self._margin = g
        usual = (self.lengths == 0) | ((self.lengths > _RANGE[0]) & (self.lengths < _RANGE[1]))
        self._bounded = similarity != "manhattan" and bool(usual.all())
        self._multiply = product(few)

    def __len__(self) -> int:
        return len(self.values)

    def all(self, block: Rows) -> Tensor:
        """Exact scores of all rows. Shape: (queries, rows) float32."""
        values, lengths = self.about(block), self._row_lengths(block.norms)
        scores = torch.empty_like(values, dtype=torch.float32)
        step = max(1, (_ROUNDED if values.device.type == "cpu" else _ROUNDED_OF_GPU) // max(1, len(lengths)))
        doubtful = []
        for low in range(0, len(values), step):
            part = slice(low, low + step)
            scores[part], unsure = self._rounded(values[part], self.lengths[part, None], lengths)
            doubtful.append(unsure + low * len(lengths))
        places = torch.cat(doubtful) if doubtful else values.new_empty(0, dtype=torch.int64)
        if len(places):
            at, of = places % len(lengths), places // len(lengths)
            scores[of, at] = self._by_halves(block, at, of)
        return scores

    def about(self, block: Rows) -> Tensor:
        """Scores of all rows, before they are rounded: the sums are in any order. Shape: (queries, rows) float64."""
        values = block.values.double()
        if self.similarity in _DISTANCES:
            p = _DISTANCES[self.similarity]
            distances: Tensor = torch.cdist(self.values, values, p, "donot_use_mm_for_euclid_dist")
            return distances.neg_()
        products = self.values @ values.T
        if self.similarity == "cosine":
            norms = block.norms if block.norms.dtype == torch.float64 else torch.linalg.vector_norm(values, dim=1)
            products /= _divisors(self.norms)[:, None]
            products /= _divisors(norms)
        return products

    def some(self, block: Rows, places: Places) -> Tensor:
        """Exact scores of pairs, given as places in the block and in the queries. Shape: (pairs,) float32."""
        at, of = places
        if self.similarity in _DISTANCES or len(at) < max(_SPARSE, len(block.values)) or at.device.type != "cpu":
            parts = zip(torch.split(at, _PAIRS), torch.split(of, _PAIRS), strict=True)
            values = torch.cat([self._pairs(block, *part) for part in parts])
        else:
            values = self._sparse(block, at, of)
        lengths = self._row_lengths(block.norms).index_select(0, at)
        scores, unsure = self._rounded(values, self.lengths.index_select(0, of), lengths)
        if len(unsure):
            scores[unsure] = self._by_halves(block, at[unsure], of[unsure])
        return scores

    def above(
        self, block: Rows, limit: float, group: int = 64, behind: int | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Scores of more than a limit, and the places of their pairs in the block and in the queries.

        Args:
            block: Rows.
            limit: The score.
            group: As in ``worth``.
            behind: If given, pairs count whose place in the block is greater by more than this.
        """
        limits = torch.full((len(self),), limit, dtype=torch.float64, device=self.values.device)
        places = self.worth(block, limits, group)
        every: Tensor | None = None
        if places is None:
            every = self.all(block)  # (queries, rows)
            places = where(every > limit)[::-1]
        at, of = places
        if behind is not None and behind > -len(self):  # Or else all are.
            later = _true(at - of > behind)
            at, of = at.index_select(0, later), of.index_select(0, later)
        scores = self.some(block, (at, of)) if every is None else every[of, at]
        kept = _true(scores > limit)
        return scores.index_select(0, kept), at.index_select(0, kept), of.index_select(0, kept)

    def _sparse(self, block: Rows, at: Tensor, of: Tensor) -> Tensor:
        products = _products(self.values, block.values.double(), at, of)
        if self.similarity == "cosine":
            norms = block.norms
            if norms.dtype != torch.float64:
                norms = torch.linalg.vector_norm(block.values.double(), dim=1)
            products /= _divisors(self.norms).index_select(0, of)
            products /= _divisors(norms).index_select(0, at)
        return products

    def _pairs(self, block: Rows, at: Tensor, of: Tensor) -> Tensor:
        query, row = self.values.index_select(0, of), block.values.index_select(0, at).double()
        if self.similarity in _DISTANCES:
            distances: Tensor = torch.linalg.vector_norm(query - row, _DISTANCES[self.similarity], dim=1)
            return distances.neg_()
        products = (query * row).sum(1)
        if self.similarity == "cosine":
            exact = block.norms.dtype == torch.float64
            norms = block.norms.index_select(0, at) if exact else torch.linalg.vector_norm(row, dim=1)
            products /= _divisors(self.norms.index_select(0, of))
            products /= _divisors(norms)
        return products

    def _by_halves(self, block: Rows, at: Tensor, of: Tensor) -> Tensor:
        """The scores of pairs as they are defined: the same on each processor, and of a pair and its reverse."""
        parts = zip(torch.split(at, _PAIRS), torch.split(of, _PAIRS), strict=True)
        found = []
        for rows_of, queries_of in parts:
            query = self.values.index_select(0, queries_of)
            row = block.values.index_select(0, rows_of).double()
            if self.similarity == "manhattan":
                found.append(-_total((query - row).abs_()))
            elif self.similarity == "euclidean":
                found.append(-_total((query - row).square_()).sqrt_())
            elif self.similarity == "dot":
                found.append(_total(query * row))
            else:
                norms = [_divisors(_total(each.square()).sqrt_()) for each in (query, row)]
                found.append(_total(query * row) / (norms[0] * norms[1]))
        return torch.cat(found).float()

    def _row_lengths(self, norms: Tensor) -> Tensor:
        """How long rows are, as they are compared: 1 for cosines, but 0 for rows of zeros."""
        return (norms > 0).double() if self.similarity == "cosine" else norms.double()

    def _rounded(self, values: Tensor, of: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
        """Values as float32, and the places of those that another order of sums might round to another number."""
        if self.similarity in _DISTANCES:
            low, high = values * (1 - self._doubt), values * (1 + self._doubt)
        else:
            low, high = (torch.addcmul(values, of, at, value=doubt) for doubt in (-self._doubt, self._doubt))
        scores = low.float()
        return scores, _true(scores != high.float())

    def worth(self, block: Rows, limit: Tensor, group: int = 64) -> Places | None:
        """Places in the block and in the queries of all pairs that may have more than a score, and of few others.

        Args:
            block: Rows.
            limit: The score for each query, (queries,) float64.
            group: Rows whose greatest product is looked at first.

        Returns:
            None where every pair is better compared exactly: there would be many, or there is no bound.
        """
        if block.rough is None or not self._bounded or not bool(torch.isfinite(limit).all()):
            return None
        products = self._multiply(block.rough)  # (rows, queries)
        if len(products) % group:
            group = 1
        # Rows that stand far apart make a group, so that the maximum is taken of whole rows of the matrix at a time.
        products = products.view(group, -1, len(self))  # (group, groups, queries)
        norms = block.norms.double().view(group, -1)  # (group, groups)
        bound = self._bound(limit, slice(None), norms.amin(0)[:, None], norms.amax(0)[:, None])
        # Rounding keeps the order, so products that are rounded are compared with bounds that are rounded.
        which, of = where(_greatest(products, bound) >= bound.to(products.dtype))
        if len(which) * group > products.numel() / 2:
            return None
        norms = norms[:, which]  # (group, hits)
        bound = self._bound(limit[of], of, norms, norms)
        inner, hit = where(products[:, which, of] >= bound.to(products.dtype))
        if len(hit) > _MANY * products.numel():
            return None
        return inner * products.shape[1] + which[hit], of[hit]

    def _bound(self, limit: Tensor, of: Tensor | slice, shortest: Tensor, longest: Tensor) -> Tensor:
        """What a rough product must reach if a score is to exceed a limit, for rows of lengths between two."""
        slack, length = self.slack[of], self.lengths[of]
        bound: Tensor
        if self.similarity == "euclidean":
            # |s - c| < t  <=>  s.c > (|s|^2 + |c|^2 - t^2) / 2
            bound = (length.square() - limit.square() + shortest.square()) / 2 - slack * longest
            bound -= self._margin * (length.square() + longest.square())
            return bound
        if self.similarity == "cosine":
            # Rows of zeros, the only ones that are shorter, take part as those of a score of 0.
            least = limit - slack
            bound = least * longest.clamp(min=_RANGE[0])
            if shortest is not longest:
                bound = torch.minimum(bound, least * shortest.clamp(min=_RANGE[0]))
        else:
            bound = limit - slack * longest
        if shortest is longest:
            return bound
        # Whole groups are left out where all scores are 0, as those of vectors of length 0 are.
        return torch.where((length == 0) | (longest == 0), torch.where(limit < 0, -torch.inf, torch.inf), bound)


def _divisors(norms: Tensor) -> Tensor:
    """Lengths to divide by: 1 for rows of zeros, whose cosines are 0."""
    return torch.where(norms == 0, 1, norms)


def _total(terms: Tensor) -> Tensor:
    """The sum of each row: the second half of its numbers is added to the first, until one is left. Shape: (rows,)."""
    while terms.shape[1] > 1:
        half = terms.shape[1] // 2
        folded = terms[:, :half] + terms[:, half : 2 * half]
        terms = torch.cat([folded, terms[:, 2 * half :]], 1)
    return terms.sum(1)  # Of one number, or of none.


def _products(queries: Tensor, values: Tensor, at: Tensor, of: Tensor) -> Tensor:
    """The dot product of each pair in float64, without a copy of its vectors. Shape: (pairs,)."""
    # NumPy sorts numbers of 16 bits in one go.
    order = torch.from_numpy(np.argsort(of.numpy().astype(np.min_scalar_type(len(queries))), kind="stable"))
    ends = torch.bincount(of, minlength=len(queries)).cumsum(0)
    starts, numbers = torch.cat([ends.new_zeros(1), ends]), queries.new_zeros(len(at))
    _hear_of_sparse()
    wanted = torch.sparse_csr_tensor(starts, at[order], numbers, (len(queries), len(values)))
    products = queries.new_empty(len(at))
    products[order] = torch.sparse.sampled_addmm(wanted, queries, values.T, beta=0.0).values()
    return products


@cache
def _hear_of_sparse() -> None:
    """Let torch say, as it does once, that its sparse matrices may change; nobody needs to hear it."""
    with _lock, warnings.catch_warnings():  # Of two threads at once, the last would leave warnings switched off.
        warnings.simplefilter("ignore")
        torch.sparse_csr_tensor([0, 0], [], [], (1, 1))


def _greatest(products: Tensor, bound: Tensor) -> Tensor:
    """The greatest of each group, or some number below the bound."""
    if products.dtype == torch.bfloat16 and bool((bound > 0).all()):
        # Numbers above 0 are in the order of their bits, and those below come before them. Integers are ten times as
        # fast to compare.
        return products.view(torch.int16).amax(0).view(torch.bfloat16)
    return products.amax(0)


def where(found: Tensor) -> tuple[Tensor, Tensor]:
    """The rows and the columns of what is true in a matrix."""
    flat, columns = _true(found), max(1, found.shape[1])
    lines = flat // columns
    return lines, flat - lines * columns  # Remainders take longer.


def _true(found: Tensor) -> Tensor:
    """The places of what is true, counted row by row."""
    if found.device.type != "cpu":
        return found.flatten().nonzero()[:, 0]
    return torch.from_numpy(np.flatnonzero(found.numpy()))  # NumPy is several times as fast at this.
