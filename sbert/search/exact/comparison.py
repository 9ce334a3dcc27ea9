"""Exact scores of vectors, and a prefilter that leaves few pairs to score.

A score is the similarity of two vectors as they are given, computed in float64 and rounded to float32. Before that, a
matrix product in low precision excludes most pairs that cannot exceed a limit. With p for the query s in low precision,
d for the row c in low precision, u for the unit roundoff of low precision and g for the relative error of a sum in
float32, the inequality of Cauchy and Schwarz gives

    |p.d - s.c| <= |p - s| |d| + |s| |d - c| <= |c| ((1 + u) |p - s| + u |s|),

plus g (1 + u) |p| |c| for the summation. So a pair whose low-precision product is below the product that the limit
requires, minus this error, cannot exceed the limit.

For few queries, reading the rows takes longer than multiplying them. Then the rows are not converted, but multiplied as
they are: d = c, p is the query in float32, and u is its roundoff. For cosines, the products are divided by the lengths
instead of the rows, and rounded once more, by at most 2^-24 |p|, which g covers: it is twice what a sum needs. These
products are those of oneDNN or MKL, and for one query NumPy's, one row after another: of 1,000,000 rows of 384 dims
they take 50 ms, the time of reading the rows, and torch's 150 (Zen 4).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import pairwise
from operator import index
from typing import TYPE_CHECKING, Any, NamedTuple, SupportsIndex, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sbert.backends import matrix_product
from sbert.functional import Float32, in_range
from sbert.pipeline.notebook import Corpus, Table, tabulate_hits

if TYPE_CHECKING:
    from pandas import DataFrame

# The order p of the similarities that are negative distances.
_DISTANCES = {"euclidean": 2.0, "manhattan": 1.0}
# Lengths between which a low-precision product neither overflows nor loses digits; rows of zeros are exact, too.
_SHORTEST, _LONGEST = 1e-14, 1e15
# Above this length squares overflow in float64. Cosines are computed from rescaled vectors instead.
_MAX_LENGTH = 1e150
# Rows that fit into the CPU cache between two operations on them, and rows that occupy a GPU.
_CACHED_ROWS, _ROWS_ON_GPU = 1024, 1 << 16
# Pairs that are compared in one step, on a CPU, where their vectors fit into the cache, and on a GPU.
_PAIRS, _PAIRS_ON_GPU = 256, 1 << 15
# Pairs per query from which one product per query is faster than copies of both vectors of each pair.
_MANY = 16
# Rows that are excluded together if their greatest product is too small.
_GROUP = 32
# Above this fraction of all pairs, scoring all of them is faster than selecting some.
_MAX_FRACTION, _MAX_FRACTION_OF_FEW = 1 / 32, 1 / 2
# Maximum number of queries for which a CPU multiplies the rows as they are: converting them takes longer.
FEW = 16
# Queries, and rows, of a tile of the matrix of all pairs.
TILE_QUERIES, TILE_ROWS = 256, 1 << 14
# Queries that are compared with a block in one step.
QUERIES = 512
# Maximum number of values, and of rows, in a block, on a CPU and on a GPU. For a small dimension, the scores take more
# memory than the vectors.
_VALUES, _VALUES_ON_GPU = 6 << 20, 1 << 26
_ROWS, _BLOCK_ON_GPU = 1 << 15, 1 << 18
# Rows in a block for few queries, which is not copied; and in a step through it, whose overhead counts.
_ROWS_OF_FEW, _ROWS_OF_DOTS = 1 << 18, 1 << 11

# The lengths of the first rows of a corpus, by device.
Norms = dict[torch.device, Tensor]


class PreparedVectors(NamedTuple):
    """Checked vectors of a corpus, or of queries.

    Args:
        similarity: ``"cosine"``, ``"dot"``, ``"euclidean"`` or ``"manhattan"``.
        values: (rows, dim) float32 or float64.
        norms: (rows,) Euclidean lengths; exact if they are float64.
        low_precision: (rows, dim) the vectors in the dtype of the prefilter, of length 1 for cosines; None if its
            bound does not hold for them.
        products: (rows, queries) products with few queries, divided by ``norms`` for cosines; otherwise None.
    """

    similarity: str
    values: Tensor
    norms: Tensor
    low_precision: Tensor | None
    products: Tensor | None = None

    def part(self, chosen: slice | Tensor) -> PreparedVectors:
        """Some of the rows."""
        low_precision = None if self.low_precision is None else self.low_precision[chosen]
        return self._replace(values=self.values[chosen], norms=self.norms[chosen], low_precision=low_precision)


def prepare(
    values: Tensor,
    name: str,
    similarity: str,
    start: int = 0,
    exact: bool = False,
    buffer: Tensor | None = None,
    queries: PreparedVectors | None = None,
    norms: Tensor | None = None,
) -> PreparedVectors:
    """Check vectors, and compute what the comparisons need.

    Args:
        values: (rows, dim) float32 or float64.
        name: Name of the caller's argument, for messages.
        similarity: Similarity of the scores.
        start: Row of the corpus that is the first of these, for messages.
        exact: Whether to compute exact lengths, which pays if the rows are compared many times.
        buffer: Memory for ``low_precision``, in its dtype; new memory for each block took a quarter of the time of 100
            queries (Zen 4, two threads).
        queries: Few queries, which the rows are multiplied with as they are, on a CPU.
        norms: The ``norms`` of an earlier call with the same values for which ``low_precision`` was not None.

    Raises:
        ValueError: If a value is NaN or infinite, or a vector is too long for float64; the message names its row.
    """
    products, low_precision, known = None, values, norms is not None
    few = None if queries is None or queries.low_precision is None else queries.low_precision.to(values.dtype)
    if few is not None:
        products, norms = _multiply_few(values, few, norms, similarity)
    else:
        if norms is None:
            norms = torch.empty(len(values), dtype=torch.float64 if exact else values.dtype, device=values.device)
        step = _CACHED_ROWS if values.device.type == "cpu" else _ROWS_ON_GPU
        if buffer is None or len(buffer) < len(values):
            buffer = torch.empty_like(values, dtype=product_dtype(values.device))
        low_precision = buffer[: len(values)]
        for low in range(0, len(values), step):
            part = slice(low, low + step)
            if not known:
                torch.linalg.vector_norm(values[part].double() if exact else values[part], dim=1, out=norms[part])
            divisors = norms[part, None].clamp(min=_SHORTEST) if similarity == "cosine" else norms.new_ones(1)
            torch.div(values[part], divisors, out=low_precision[part])
    lengths = norms.numpy() if norms.device.type == "cpu" else norms
    safe = known or bool(((lengths > _SHORTEST) & (lengths < _LONGEST)).all())  # False if a length is NaN.
    if not safe:
        values, norms, safe = _check_unusual(values, norms, name, similarity, start)
    bounded = safe and similarity != "manhattan"
    return PreparedVectors(similarity, values, norms, low_precision if bounded else None, products)


def _multiply_few(values: Tensor, queries: Tensor, norms: Tensor | None, similarity: str) -> tuple[Tensor, Tensor]:
    """``products`` with few queries, and ``norms``.

    Shape:
        values: (rows, dim). queries: (queries, dim). Output: (rows, queries) and (rows,).
    """
    rows, single = values.numpy(), len(queries) == 1
    lengths = np.empty(len(rows), rows.dtype) if norms is None else norms.numpy()
    products = np.empty((len(rows), 1), rows.dtype) if single else _low_precision_products(values, queries).numpy()
    with np.errstate(all="ignore"):  # The lengths tell what is not finite.
        for low in range(0, len(rows), _ROWS_OF_DOTS):
            part = slice(low, low + _ROWS_OF_DOTS)
            if norms is None:
                np.sqrt(_dots(rows[part], rows[part]), out=lengths[part])
            if single:  # Of rows that are in the CPU cache, if their lengths were computed.
                np.matmul(rows[part, None], queries.numpy()[:, :, None], out=products[part, :, None])
        if similarity == "cosine":
            products /= np.maximum(lengths, _SHORTEST)[:, None]
    return torch.from_numpy(products), torch.from_numpy(lengths)


def _dots(first: npt.NDArray[Any], second: npt.NDArray[Any]) -> Any:
    """The product of each row with that of another array, or with its only row, in one thread. Shape: (rows,)."""
    return np.matmul(first[:, None], second[:, :, None])[:, 0, 0]


def _check_unusual(
    values: Tensor, norms: Tensor, name: str, similarity: str, start: int
) -> tuple[Tensor, Tensor, bool]:
    """Vectors of which some are very short or long: in range, with exact lengths, and whether these are only zeros."""
    unusual = (~((norms > _SHORTEST) & (norms < _LONGEST))).nonzero()[:, 0]
    wrong = unusual[~torch.isfinite(values[unusual]).all(1)]
    if len(wrong):
        raise ValueError(f"{name}[{start + int(wrong[0])}] has a NaN or an infinity; remove or correct that row")
    if not bool(values[unusual].any()):
        return values, norms, True
    if similarity == "cosine" and values.dtype == torch.float64:  # Squares of float32 do not overflow in float64.
        values = in_range(values)
    norms = torch.cat([torch.linalg.vector_norm(part.double(), dim=1) for part in torch.split(values, _CACHED_ROWS)])
    too_long = (norms > _MAX_LENGTH).nonzero()
    if similarity != "cosine" and len(too_long):
        row = start + int(too_long[0])
        raise ValueError(f"{name}[{row}] is longer than {_MAX_LENGTH}, too long to compare; scale the vectors")
    return values, norms, False


# ------------------------------------------------------------------------------------------------------ exact scores


def all_scores(queries: PreparedVectors, rows: PreparedVectors) -> Tensor:
    """The exact scores of all pairs. Shape: (queries, rows) float32."""
    if len(rows.values) > _ROWS and rows.values.device.type == "cpu":
        parts = (rows.part(slice(low, low + _ROWS)) for low in range(0, len(rows.values), _ROWS))
        return torch.cat([all_scores(queries, part) for part in parts], 1)
    query, row = queries.values.double(), rows.values.double()
    if queries.similarity in _DISTANCES:
        p = _DISTANCES[queries.similarity]
        return torch.cdist(query, row, p, "donot_use_mm_for_euclid_dist").neg_().float()
    products = query @ row.T
    if queries.similarity == "cosine":
        products /= _divisors(queries.norms, query)[:, None]
        products /= _divisors(rows.norms, row)
    return products.float()


def pair_scores(queries: PreparedVectors, rows: PreparedVectors, row_ids: Tensor, query_ids: Tensor) -> Tensor:
    """The exact scores of some pairs. Shape: (pairs,) float32."""
    scores = queries.values.new_empty(len(row_ids), dtype=torch.float64)
    on_cpu, is_distance = row_ids.device.type == "cpu", queries.similarity in _DISTANCES
    if on_cpu and not is_distance and len(row_ids) >= _MANY * len(queries.values):
        # In NumPy, whose calls take less time than those of torch. Integers of 16 bits are sorted by radix sort.
        order = query_ids.numpy().astype(np.int16).argsort(kind="stable")
        ends = np.bincount(query_ids.numpy(), minlength=len(queries.values)).cumsum()
        values, exact = rows.values.numpy(), queries.values.double().numpy()
        pairs = zip(exact[:, None], np.split(row_ids.numpy()[order], ends[:-1]), strict=True)
        pieces = ((query, np.split(at, range(_ROWS_OF_DOTS, len(at), _ROWS_OF_DOTS))) for query, at in pairs)
        products = [_dots(values.take(at, 0).astype(np.float64), query) for query, parts in pieces for at in parts]
        scores[torch.from_numpy(order)] = torch.from_numpy(np.concatenate(products))
    else:
        size = _PAIRS if on_cpu else _PAIRS_ON_GPU
        parts_of = (torch.split(column, size) for column in (scores, row_ids, query_ids))
        for result, at, of in zip(*parts_of, strict=True):
            query, row = queries.values.index_select(0, of).double(), rows.values.index_select(0, at)
            if is_distance:
                torch.linalg.vector_norm(query.sub_(row), _DISTANCES[queries.similarity], dim=1, out=result).neg_()
            else:
                torch.sum(query.mul_(row), 1, out=result)
    if queries.similarity == "cosine":
        scores /= _exact_divisors(queries, query_ids)
        scores /= _exact_divisors(rows, row_ids)
    return scores.float()


def _exact_divisors(rows: PreparedVectors, ids: Tensor) -> Tensor:
    """The exact lengths of some rows, and 1 for zeros. Shape: (ids,)."""
    if rows.norms.dtype == torch.float64:
        return _divisors(rows.norms, rows.values).index_select(0, ids)
    size = _PAIRS if ids.device.type == "cpu" else _PAIRS_ON_GPU
    some = (rows.values.index_select(0, part).double() for part in torch.split(ids, size))
    return torch.cat([_divisors(rows.norms, part) for part in some])


def _divisors(norms: Tensor, values: Tensor) -> Tensor:
    """The lengths of float64 vectors, exact; 1 for vectors of zeros, whose cosines are 0."""
    exact = norms if norms.dtype == torch.float64 else torch.linalg.vector_norm(values, dim=1)
    return torch.where(exact == 0, 1, exact)


def just_below(score: float) -> float:
    """The greatest float32 below a score: limits must be exceeded, and a score equal to a threshold counts."""
    return float(np.nextafter(np.float32(score), np.float32(-np.inf)))


# -------------------------------------------------------------------------------------------------------- prefilter


@cache
def product_dtype(device: torch.device) -> torch.dtype:
    """The dtype of the fastest matrix product on a device: bfloat16 where the hardware multiplies it."""
    if device.type == "cpu":
        multiplies = torch.cpu._is_amx_tile_supported() or torch.cpu._is_avx512_bf16_supported()
        return torch.bfloat16 if multiplies else torch.float32
    # ROCm has no product of half precision with sums in float32.
    tensor_cores = device.type == "cuda" and not torch.version.hip and torch.cuda.get_device_capability(device) >= (8,)
    return torch.bfloat16 if tensor_cores else torch.float32


def _unit_roundoff(dtype: torch.dtype, device: torch.device) -> float:
    """The maximum relative error of an input of a matrix product, by its conversion and by the product itself."""
    try:
        exact = torch.get_float32_matmul_precision() == "highest"
    except RuntimeError:  # It was set by the newer torch.backends.….fp32_precision, which this function cannot read.
        exact = False
    if dtype == torch.bfloat16 or not exact:
        return 2.0**-8
    # A GPU may compute float32 products in TF32, which has a mantissa of 10 bits.
    return 2.0**-24 if device.type == "cpu" else 2.0**-10


class Prefilter:
    """Finds the pairs of some queries that may exceed a limit, and few others."""

    def __init__(self, queries: PreparedVectors) -> None:
        self.queries: PreparedVectors = queries
        if queries.low_precision is None:
            return
        exact = queries.values.double()
        if queries.similarity == "cosine":
            exact = exact / _divisors(queries.norms, exact)[:, None]
        self._norms = norms = torch.linalg.vector_norm(exact, dim=1)
        u = _unit_roundoff(queries.low_precision.dtype, exact.device)
        g = self._margin = 2 * (exact.shape[1] + 8) * 2.0**-24
        error = torch.linalg.vector_norm(exact - queries.low_precision, dim=1)
        if queries.low_precision.dtype == torch.float32:  # The product itself may round its inputs.
            error += norms * u
        # (queries,) for a row of length 1; the second g is for lengths in float32 and for the rounding of scores.
        self._slack = (1 + u) * (error + g * (norms + error)) + (u + g) * norms
        if queries.similarity == "euclidean":
            self._slack += u * norms  # The product is rounded before it is used.

    def candidates(self, rows: PreparedVectors, limits: Tensor | None, top_k: int = 0) -> tuple[Tensor, Tensor] | None:
        """All pairs whose score may exceed the limit of their query, and few others.

        Args:
            rows: Rows.
            limits: (queries,) float64; None to find all rows whose score may be that of rank ``top_k`` or above.
            top_k: See ``limits``; at most the number of rows.

        Returns:
            The rows and the queries of the pairs, (pairs,) each; None if all pairs should be scored: the bound does not
            hold, or the candidates would be too many.
        """
        if rows.low_precision is None or self.queries.low_precision is None:
            return None
        products = rows.products  # (rows, queries)
        if products is None:
            products = _low_precision_products(rows.low_precision, self.queries.low_precision)
        error, required = self._slack, limits
        if rows.similarity == "dot":
            error = self._slack * rows.norms.max()
        elif rows.similarity == "euclidean":  # |s - c| < t  <=>  s.c - |c|^2 / 2 > (|s|^2 - t^2) / 2
            products = products.float().sub(rows.norms.float().square()[:, None], alpha=0.5)
            longest, squares = rows.norms.max().double(), self._norms.square()
            error = self._slack * longest + 2 * self._margin * (squares + longest.square())
            required = None if limits is None else (squares - limits.square()) / 2
        if required is None:
            # At least top_k rows have these products, and so the scores that are lower by the error.
            best = _group_maxima(products) if top_k * _GROUP <= len(products) else products
            required = best.topk(top_k, dim=0).values[-1].double() - error
            required -= 2.0**-8 * required.abs() if products.dtype == torch.bfloat16 else 0
        # Rounding is monotonic, so rounded products may be compared with rounded bounds.
        return _at_least(products, (required - error).to(products.dtype))


def _low_precision_products(rows: Tensor, queries: Tensor) -> Tensor:
    """The products of all pairs, without autocast, which would lower their precision. Shape: (rows, queries)."""
    with torch.autocast(rows.device.type, enabled=False):
        if rows.device.type == "cuda" and rows.dtype == torch.bfloat16:  # In bfloat16, partial sums might be rounded.
            return torch.mm(rows, queries.T, out_dtype=torch.float32)
        return matrix_product(rows.dtype, rows.device.type)(rows, queries, None)


def _at_least(products: Tensor, bound: Tensor) -> tuple[Tensor, Tensor] | None:
    """The rows and the columns of products that reach the bound of their column; None if they are many."""
    if products.dtype == torch.bfloat16 and bool((bound > 0).all()):
        # Positive floats have the order of their bits, and negative ones are negative integers. Comparing integers is
        # ten times as fast.
        maxima = _group_maxima(products.view(torch.int16)).view(torch.bfloat16)
    else:
        maxima = _group_maxima(products)
    group = len(products) // len(maxima)
    products = products.view(group, len(maxima), -1)  # (group, groups, queries)
    groups, columns = nonzero(maxima >= bound)
    if len(groups) * group > products.numel() / 8:
        rows, columns = nonzero(products.flatten(0, 1) >= bound)
    else:
        members, remaining = nonzero(products[:, groups, columns] >= bound[columns])
        rows, columns = members * products.shape[1] + groups[remaining], columns[remaining]
    most = _MAX_FRACTION if products.shape[-1] > FEW else _MAX_FRACTION_OF_FEW
    return None if len(rows) > most * products.numel() else (rows, columns)


def _group_maxima(products: Tensor) -> Tensor:
    """The greatest products of each group of rows. Shape: (groups, queries)."""
    group = math.gcd(len(products), _GROUP)
    # The rows of a group are far apart in memory, so that the maximum is taken over whole rows of the matrix.
    grouped = products.view(group, len(products) // group, -1)
    if products.device.type == "cpu" and products.shape[1] <= FEW and products.dtype != torch.bfloat16:
        return torch.from_numpy(grouped.numpy().max(0))  # 0.1 ms for 1,000,000 rows and one query, torch 15 (Zen 4).
    return grouped.amax(0)


def nonzero(mask: Tensor) -> tuple[Tensor, Tensor]:
    """The row and the column of each true element of a matrix."""
    if mask.device.type == "cpu":
        flat = torch.from_numpy(np.flatnonzero(mask.numpy()))  # Several times as fast as torch.
    else:
        flat = mask.flatten().nonzero()[:, 0]
    rows = flat // max(1, mask.shape[1])
    return rows, flat - rows * mask.shape[1]  # Faster than the remainder.


# --------------------------------------------------------------------------------------- the greatest scores


class Hit(NamedTuple):
    """One result of a search.

    Args:
        id: The id of a vector or a document; without ids, its row in the corpus.
        score: Its score.
    """

    id: int | str
    score: float

    @property
    def row(self) -> int:
        """The id, where it is a row of the corpus."""
        return cast("int", self.id)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            raise TypeError(f"a hit is (row, score), not a dict; use hit.row or hit.score instead of hit[{key!r}]")
        return tuple.__getitem__(self, key)


class Hits:
    """For each query the best rows or ids, in the order of decreasing score: ``hits[0]`` has those of the first query.

    Args:
        scores: (queries, k) float32.
        ids: (queries, k): int64, rows of the corpus or other integers, or object arrays of strings.

    Example:
        >>> import numpy as np
        >>> from sbert.search import Hits
        >>> hits = Hits(np.array([[0.75, 0.25]], np.float32), np.array([[2, 0]]))
        >>> for hit in hits[0]:
        ...     print(hit.row, hit.score)
        2 0.75
        0 0.25
        >>> hits.indices
        array([[2, 0]])
    """

    def __init__(self, scores: Float32, ids: npt.NDArray[np.int64] | npt.NDArray[np.object_]) -> None:
        self.scores: Float32 = scores
        self.ids: npt.NDArray[np.int64] | npt.NDArray[np.object_] = ids

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[list[Hit]]:
        return map(self.__getitem__, range(len(self)))

    def __getitem__(self, query: SupportsIndex) -> list[Hit]:
        row = index(query)
        return [*map(Hit, self.ids[row].tolist(), self.scores[row].tolist())]

    @property
    def indices(self) -> npt.NDArray[np.int64]:
        """The ids, where they are rows of the corpus."""
        return cast("npt.NDArray[np.int64]", self.ids)

    def with_texts(self, corpus: Corpus, queries: str | Sequence[str] | None = None) -> Table:
        """A table with the text of each hit, which notebooks display.

        Args:
            corpus: The texts of the corpus, or a dict from ids to texts.
            queries: The queries; by default, they are numbered.

        Example:
            >>> from sbert import SentenceEncoder
            >>> from sbert.search import semantic_search
            >>> model = SentenceEncoder()
            >>> hits = semantic_search(model.encode("Who sleeps?"), model.encode(["Taxes.", "A cat naps."]), top_k=1)
            >>> hits.with_texts(["Taxes.", "A cat naps."], "Who sleeps?").rows[0][-1]
            'A cat naps.'
        """
        return tabulate_hits(self.scores, self.ids, corpus, queries)

    def to_frame(self) -> DataFrame:
        """A data frame of pandas with one row per hit: the number of its query, its id and its score.

        Example:
            >>> import numpy as np
            >>> from sbert.search import Hits
            >>> Hits(np.array([[0.5, 0.25]], np.float32), np.array([[7, 3]])).to_frame()
               query  id  score
            0      0   7   0.50
            1      0   3   0.25
        """
        from pandas import DataFrame

        queries = np.repeat(np.arange(len(self)), self.ids.shape[1])
        return DataFrame({"query": queries, "id": self.ids.ravel(), "score": self.scores.ravel()})

    def __repr__(self) -> str:
        return repr(tabulate_hits(self.scores, self.ids))

    def _repr_html_(self) -> str:
        return tabulate_hits(self.scores, self.ids)._repr_html_()


class TopK:
    """The k most similar rows of each query among the blocks that were added, in the order of the corpus.

    Args:
        queries: Queries.
        k: Maximum number of rows per query.
    """

    def __init__(self, queries: PreparedVectors, k: int) -> None:
        self._queries, self._k, self._count = queries, k, 0
        self._prefilter: Prefilter | None = None
        self._limits: Tensor | None = None  # (queries,) that a score must exceed, known once there are k hits.
        self._pairs: list[tuple[Tensor, Tensor, Tensor]] = []  # Query ids, rows of the corpus, scores.
        self._pending = 0

    def add(self, rows: PreparedVectors, start: int) -> None:
        """Compare rows, the first of which is row ``start`` of the corpus."""
        candidates = None
        if self._limits is not None or self._k < len(rows.values):
            self._prefilter = self._prefilter or Prefilter(self._queries)
            candidates = self._prefilter.candidates(rows, self._limits, self._k)
        if candidates is None:
            matrix = all_scores(self._queries, rows)
            above = matrix >= matrix.topk(min(self._k, len(rows.values)), dim=1).values[:, -1:]
            if self._limits is not None:
                above &= matrix > self._limits[:, None]
            query_ids, row_ids = nonzero(above)
            scores = matrix[query_ids, row_ids]
        else:
            row_ids, query_ids = candidates
            scores = pair_scores(self._queries, rows, row_ids, query_ids)
        self._count += len(rows.values)
        if not len(scores):
            return
        self._pairs.append((query_ids, row_ids + start, scores))
        self._pending += len(scores)
        # Sorting is slow, and limits that are slightly too low add few pairs.
        if self._limits is None or self._pending >= self._k * len(self._limits):
            self._select()

    def _select(self) -> None:
        """Keep the first k pairs of each query, and raise the limits."""
        query_ids, indices, scores = map(torch.cat, zip(*self._pairs, strict=True))
        order = indices.argsort()  # Of equal scores, the first row comes first.
        order = order[scores[order].argsort(descending=True, stable=True)]
        order = order[query_ids[order].argsort(stable=True)]
        query_ids = query_ids[order]
        counts = query_ids.bincount()
        ranks = torch.arange(len(order), device=order.device) - (counts.cumsum(0) - counts)[query_ids]
        order = order[ranks < self._k]
        self._pairs, self._pending = [(query_ids[ranks < self._k], indices[order], scores[order])], 0
        if self._count >= self._k:
            self._limits = scores[order].view(-1, self._k)[:, -1].double()

    def hits(self) -> Hits:
        """The top rows so far. Shape of each: (queries, min(k, rows so far))."""
        shape = len(self._queries.values), min(self._k, self._count)
        if not self._count:
            return Hits(np.empty(shape, np.float32), np.empty(shape, np.int64))
        if self._pending:
            self._select()
        _, indices, scores = self._pairs[0]
        return Hits(scores.view(shape).cpu().numpy(), indices.view(shape).cpu().numpy())


def block_rows(queries: Tensor, is_copied: bool) -> int:
    """The number of rows that some queries are compared with in one step: a multiple of the groups of the prefilter."""
    if not is_copied and is_few(queries):
        return _ROWS_OF_FEW
    most, values = (_ROWS, _VALUES) if queries.device.type == "cpu" else (_BLOCK_ON_GPU, _VALUES_ON_GPU)
    return max(64, min(values // queries.shape[1], most) // 64 * 64)


def is_few(queries: Tensor) -> bool:
    """Whether the rows are multiplied with these queries as they are."""
    return queries.device.type == "cpu" and len(queries) <= FEW


def search_blocks(asked: Tensor, parts: Iterable[Tensor], k: int, similarity: str, norms: Norms | None = None) -> Hits:
    """The top k rows of a corpus for each query.

    Args:
        asked: The queries, float32 or float64.
        parts: The corpus in parts of any number of rows, float32 or float64, on the device of the queries.
        k: Maximum number of rows per query.
        similarity: Similarity of the scores.
        norms: Lengths from earlier searches of the same corpus, to which those of this one are added.

    Shape:
        asked: (queries, dim). Each part: (rows, dim). Each output: (queries, min(k, rows of all parts)).
    """
    few, step, start = is_few(asked), block_rows(asked, is_copied=False), 0
    buffer = torch.empty(asked.shape) if few else None  # The products of few queries are those of float32.
    queries, buffer = prepare(asked, "queries", similarity, exact=True, buffer=buffer), None
    if not len(asked):
        return Hits(np.empty((0, k), np.float32), np.empty((0, k), np.int64))
    tops = [TopK(queries, k)]
    if not few:
        tops = [TopK(queries.part(slice(low, low + QUERIES)), k) for low in range(0, len(asked), QUERIES)]
    for part in parts:
        whole = len(part) // _GROUP * _GROUP  # The last rows are a block of their own if they are no whole group.
        for low, high in pairwise(sorted({*range(0, whole, step), whole, len(part)})):
            values = part[low:high]
            end, known = start + len(values), values.new_empty(0)
            known = known if norms is None else norms.get(values.device, known)
            cached, of_few = known[start:end] if len(known) >= end else None, queries if few else None
            rows = prepare(values, "corpus", similarity, start, buffer=buffer, queries=of_few, norms=cached)
            buffer = buffer if few or buffer is not None else rows.low_precision
            if norms is not None and start <= len(known) < end and rows.low_precision is not None:
                norms[values.device] = torch.cat([known[:start], rows.norms.to(values.dtype)])
            for top in tops:
                top.add(rows, start)
            start = end
    hits = [top.hits() for top in tops]
    return Hits(np.concatenate([part.scores for part in hits]), np.concatenate([part.ids for part in hits]))


# --------------------------------------------------------------------------------------- the pairs above a limit


def scores_above(prefilter: Prefilter, rows: PreparedVectors, limit: float) -> tuple[Tensor, Tensor, Tensor]:
    """The scores above a limit, with their rows and their queries. Shape of each: (pairs,)."""
    queries = prefilter.queries
    limits = torch.full((len(queries.values),), limit, dtype=torch.float64, device=queries.values.device)
    candidates = prefilter.candidates(rows, limits)
    if candidates is None:
        matrix = all_scores(queries, rows)  # (queries, rows)
        query_ids, row_ids = nonzero(matrix > limit)
        return matrix[query_ids, row_ids], row_ids, query_ids
    row_ids, query_ids = candidates
    scores = pair_scores(queries, rows, row_ids, query_ids)
    above = nonzero(scores[None] > limit)[1]
    return scores[above], row_ids[above], query_ids[above]


def pairs_above(rows: PreparedVectors, limit: Callable[[], float]) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """The scores above a limit of all pairs, and their rows, ``first < second``, in tiles. Shape of each: (pairs,).

    Args:
        rows: Vectors.
        limit: Gives the limit of the next tile.
    """
    total = len(rows.values)
    for low in range(0, total, TILE_QUERIES):
        prefilter = Prefilter(rows.part(slice(low, low + TILE_QUERIES)))
        for start in range(low, total, TILE_ROWS):
            scores, second, first = scores_above(prefilter, rows.part(slice(start, start + TILE_ROWS)), limit())
            first, second = first + low, second + start
            if start < low + TILE_QUERIES:  # On the diagonal, there are pairs of both orders.
                ordered = nonzero((first < second)[None])[1]
                scores, first, second = scores[ordered], first[ordered], second[ordered]
            yield scores, first, second
