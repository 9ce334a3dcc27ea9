"""Pure functions of vectors: similarity, normalization, truncation, and sums over rows of different lengths.

Half-precision vectors are compared in float32, float64 vectors in float64; the scores have that dtype. A cosine always
lies in [-1, 1]. It is 0 if one vector is all zeros, and NaN if one vector contains NaN or infinity. Very long and very
short vectors neither overflow nor underflow. ``sbert.search`` ranks scores, so it raises an error for NaN instead.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial, wraps
from typing import Any, Protocol, cast, overload

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sbert.batch import TokenEmbeddings
from sbert.inputs.arguments import check_number, known_arguments, publish, whole
from sbert.inputs.vectors import Array, vectors_of

__all__ = ["cos_sim", "dot_score", "euclidean", "manhattan", "maxsim", "pairwise_similarity", "truncate"]

publish(__name__)

# Vectors of shape (rows, dim) or (dim,).
NotNumPy = Tensor | Sequence[float] | Sequence[Sequence[float]] | Sequence[Tensor] | Sequence[Array]
Vectors = Array | NotNumPy
# Vectors of the tokens of several texts, (tokens, dim) for each; or of one text.
TokenVectors = TokenEmbeddings | Array | Tensor | Sequence[Array] | Sequence[Tensor]
# Similarities of tokens that ``maxsim`` has in memory at a time.
_TOKEN_SCORES = 1 << 24
# Tokens of a single text up to which ``segment_reduce`` gives the bits of ``embedding_bag`` in a third of its time or
# less: on Zen 4 after a forward, in 57 of 215 us for 13 tokens, 68 of 130 for 60; in five times as long for 256.
_SHORT = 64
Float32 = npt.NDArray[np.float32]
Scores = npt.NDArray[np.float32 | np.float64]


class Similarity(Protocol):
    """A similarity of all pairs of rows: NumPy if both arguments are NumPy, else a tensor."""

    @overload
    def __call__(self, a: Float32, b: Float32) -> Float32: ...
    @overload
    def __call__(self, a: Array, b: Array) -> Scores: ...
    @overload
    def __call__(self, a: NotNumPy, b: Vectors) -> Tensor: ...
    @overload
    def __call__(self, a: Array, b: NotNumPy) -> Tensor: ...


def _without_autocast(kind: str) -> AbstractContextManager[object]:
    """The caller's autocast would compute products in bfloat16."""
    return torch.autocast(kind, enabled=False) if torch.amp.is_autocast_available(kind) else nullcontext()


def _compare(compute: Callable[[Tensor, Tensor], Tensor], a: Vectors, b: Vectors) -> Scores | Tensor:
    """Apply ``compute`` to two matrices, in float64 if either is float64, else in float32. NumPy in, NumPy out."""
    first, second = vectors_of("a", a), vectors_of("b", b)
    if first.shape[1] != second.shape[1]:
        dims = f"{first.shape[1]} and {second.shape[1]}"
        raise ValueError(f"vectors of dim {dims} cannot be compared; encode both with one model and one truncate_dim")
    dtype = torch.promote_types(first.dtype, second.dtype)
    with _without_autocast(first.device.type):
        scores = compute(first.to(dtype), second.to(first.device, dtype))
    return scores.numpy() if isinstance(a, np.ndarray) and isinstance(b, np.ndarray) else scores


def _similarity(compute: Callable[[Tensor, Tensor], Tensor]) -> Similarity:
    """Decorator: extend a function of two float32 or float64 matrices to everything that ``Vectors`` allows."""

    @wraps(compute, assigned=("__module__", "__name__", "__qualname__", "__doc__"))
    def similarity(a: Vectors, b: Vectors) -> Scores | Tensor:
        return _compare(compute, a, b)

    del similarity.__wrapped__  # Its signature is wider than that of compute.
    return cast(Similarity, known_arguments(similarity))


# The magnitudes between which squares of values, and their sums, neither overflow nor lose digits.
_RANGES = {t: (torch.finfo(t).tiny ** 0.4, torch.finfo(t).max ** 0.4) for t in (torch.float32, torch.float64)}


def _squares_exactly(magnitude: Tensor) -> Tensor:
    """Whether magnitudes are in that range, or 0."""
    least, most = _RANGES[magnitude.dtype]
    exact: Tensor = ((magnitude >= least) & (magnitude <= most)) | (magnitude == 0)
    return exact


def _values_can_be_read(vectors: Tensor) -> bool:
    """Whether there are values on a CPU: while a function is traced, exported, compiled or mapped, there are none."""
    recorded = torch.compiler.is_compiling() or torch._C._is_tracing() or torch._C._len_torch_dispatch_stack()
    mapped = recorded or torch._C._functorch.maybe_current_level() is not None
    return vectors.device.type == "cpu" and not mapped and len(vectors) > 0


def in_range(vectors: Tensor) -> Tensor:
    """Rescale rows whose squares would overflow or underflow; the directions stay the same.

    Such a row is divided by its largest absolute value. All other rows stay bit-identical.

    Shape:
        vectors: (rows, dim), float32 or float64. Output: (rows, dim).

    Example:
        >>> import torch
        >>> from sbert.functional import in_range
        >>> in_range(torch.tensor([[1e30, 2e30], [3.0, 4.0]]))
        tensor([[0.5000, 1.0000], [3.0000, 4.0000]])
    """
    magnitude = vectors.detach().abs().amax(1, keepdim=True)  # (rows, 1)
    if _values_can_be_read(vectors):
        least, most = magnitude.aminmax()
        low, high = _RANGES[vectors.dtype]
        if low <= least.item() and most.item() <= high:
            return vectors
    return vectors / torch.where(_squares_exactly(magnitude), 1, magnitude)


def directions(vectors: Tensor) -> Tensor:
    """Normalize each row to unit length (L2), at any scale; a row of zeros stays zero.

    ``torch.nn.functional.normalize`` returns zeros for values near 1e30 and rows that are too short near 1e-30.

    Shape:
        vectors: (rows, dim), float32 or float64. Output: (rows, dim).

    Example:
        >>> import torch
        >>> from sbert.functional import directions
        >>> directions(torch.tensor([[3e30, 4e30], [3e-30, 4e-30], [0.0, 0.0]]))
        tensor([[0.6000, 0.8000], [0.6000, 0.8000], [0.0000, 0.0000]])
    """
    lengths: Tensor = torch.linalg.vector_norm(vectors, dim=1, keepdim=True)  # (rows, 1)
    if _values_can_be_read(vectors):
        # In these bounds, so is the largest magnitude of each row, and nothing is rescaled.
        least, most = lengths.detach().aminmax() if len(vectors) > 1 else (lengths.detach(),) * 2
        low, high = _RANGES[vectors.dtype]
        if low * vectors.shape[1] <= least.item() and most.item() <= high:
            return vectors / lengths
    scaled = in_range(vectors)
    lengths = torch.linalg.vector_norm(scaled, dim=1, keepdim=True)
    return scaled / torch.where(lengths == 0, 1, lengths)


def _cosines(scores: Tensor) -> Tensor:
    """Clamp products of unit vectors to [-1, 1], which rounding may exceed.

    Outside the graph: the gradient of a clamp would be 0 where two vectors are nearly parallel.
    """
    with torch.no_grad():
        return scores.clamp_(-1, 1)


def _in_float64_if_needed(compute: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    """Compute in float64 where products of the values would overflow or underflow in float32.

    Only on a CPU: on another device, reading the values would force a synchronization.
    """

    @wraps(compute)
    def call(first: Tensor, second: Tensor) -> Tensor:
        matrices = [matrix.detach() for matrix in (first, second) if matrix.numel()]
        if first.device.type != "cpu" or all(_squares_exactly(matrix.abs().max()) for matrix in matrices):
            return compute(first, second)
        return compute(first.double(), second.double()).to(first.dtype)

    return call


def _distances(first: Tensor, second: Tensor, p: float) -> Tensor:
    # By default, cdist uses a matrix product, which is inaccurate for small distances.
    return -torch.cdist(first, second, p=p, compute_mode="donot_use_mm_for_euclid_dist")


@_similarity
def cos_sim(a: Tensor, b: Tensor) -> Tensor:
    """Cosine of the angle between every row of a and every row of b.

        score_ij = a_i . b_j / (|a_i| |b_j|)

    Args:
        a: Vectors: a NumPy array, a tensor, or lists of floats.
        b: Vectors of the same dimension.

    Shape:
        a: (n, dim) or (dim,). b: (m, dim) or (dim,). Output: (n, m), NumPy if both are NumPy.

    Raises:
        ValueError: If the dimensions differ.

    Example:
        >>> import torch
        >>> from sbert.functional import cos_sim
        >>> cos_sim(torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 1.0], [0.0, 2.0]]))
        tensor([[0.7071, 0.0000]])
    """
    return _cosines(directions(a) @ directions(b).T)


@_similarity
@_in_float64_if_needed
def dot_score(a: Tensor, b: Tensor) -> Tensor:
    """Dot product of every row of a with every row of b.

        score_ij = a_i . b_j

    Args:
        a: Vectors: a NumPy array, a tensor, or lists of floats.
        b: Vectors of the same dimension.

    Shape:
        a: (n, dim) or (dim,). b: (m, dim) or (dim,). Output: (n, m), NumPy if both are NumPy.

    Raises:
        ValueError: If the dimensions differ.

    Example:
        >>> import numpy as np
        >>> from sbert.functional import dot_score
        >>> dot_score(np.array([[1.0, 2.0]]), np.array([[3.0, 4.0]]))
        array([[11.]])
    """
    return a @ b.T


@_similarity
@_in_float64_if_needed
def euclidean(a: Tensor, b: Tensor) -> Tensor:
    """Negative Euclidean distance between every row of a and every row of b: larger means closer.

        score_ij = -|a_i - b_j|_2

    Args:
        a: Vectors: a NumPy array, a tensor, or lists of floats.
        b: Vectors of the same dimension.

    Shape:
        a: (n, dim) or (dim,). b: (m, dim) or (dim,). Output: (n, m), NumPy if both are NumPy.

    Raises:
        ValueError: If the dimensions differ.

    Example:
        >>> import numpy as np
        >>> from sbert.functional import euclidean
        >>> euclidean(np.array([[0.0, 0.0]]), np.array([[3.0, 4.0]]))
        array([[-5.]])
    """
    return _distances(a, b, 2.0)


@_similarity
@_in_float64_if_needed
def manhattan(a: Tensor, b: Tensor) -> Tensor:
    """Negative Manhattan distance between every row of a and every row of b: larger means closer.

        score_ij = -|a_i - b_j|_1

    Args:
        a: Vectors: a NumPy array, a tensor, or lists of floats.
        b: Vectors of the same dimension.

    Shape:
        a: (n, dim) or (dim,). b: (m, dim) or (dim,). Output: (n, m), NumPy if both are NumPy.

    Raises:
        ValueError: If the dimensions differ.

    Example:
        >>> import numpy as np
        >>> from sbert.functional import manhattan
        >>> manhattan(np.array([[0.0, 0.0]]), np.array([[3.0, 4.0]]))
        array([[-7.]])
    """
    return _distances(a, b, 1.0)


SIMILARITIES = {"cosine": cos_sim, "dot": dot_score, "euclidean": euclidean, "manhattan": manhattan}


def token_rows(name: str, vectors: TokenVectors) -> TokenEmbeddings:
    """Convert vectors of tokens to float32 or float64, stored end to end.

    Args:
        name: Name of the caller's argument, for errors.
        vectors: One array or tensor per text; or of one text.

    Shape:
        vectors: (tokens, dim) for each text.

    Raises:
        TypeError: If this is not floats.
        ValueError: If the shape of one is wrong.

    Example:
        >>> import numpy as np
        >>> from sbert.functional import token_rows
        >>> token_rows("queries", [np.ones((2, 4)), np.ones((3, 4))]).lengths
        tensor([2, 3])
    """
    if not isinstance(vectors, TokenEmbeddings):
        texts = [vectors] if getattr(vectors, "ndim", 0) == 2 else vectors
        parts = [vectors_of(f"a text of {name}", text) for text in texts]
        if len({part.shape[1] for part in parts}) != 1:
            raise ValueError(f"{name} must have an array (tokens, dim) for each of one or more texts, of the same dim")
        lengths = torch.tensor([0, *map(len, parts)], device=parts[0].device)
        vectors = TokenEmbeddings(torch.cat(parts), lengths.cumsum(0))
    return replace(vectors, values=vectors.values.to(accumulation_dtype(vectors.values.dtype)))


def _on_tokens(
    a: TokenVectors, b: TokenVectors, compute: Callable[[TokenEmbeddings, TokenEmbeddings], Tensor]
) -> Scores | Tensor:
    """Apply ``compute`` to the vectors of tokens. NumPy in, NumPy out."""
    first, second = token_rows("a", a), token_rows("b", b)
    if first.values.shape[1] != second.values.shape[1]:
        dims = f"{first.values.shape[1]} and {second.values.shape[1]}"
        raise ValueError(f"token vectors of dim {dims} cannot be compared; encode both with one model")
    dtype = torch.promote_types(first.values.dtype, second.values.dtype)
    with _without_autocast(first.device.type):
        scores = compute(*(replace(rows, values=rows.values.to(dtype)) for rows in (first, second.to(first.device))))
    arrays = [x for value in (a, b) for x in (value if isinstance(value, (list, tuple)) else [value])]
    return scores.numpy() if all(isinstance(x, np.ndarray) for x in arrays) else scores


def _maxsim(queries: TokenEmbeddings, documents: TokenEmbeddings) -> Tensor:
    lengths, starts, tokens = documents.lengths.tolist(), documents.offsets.tolist(), queries.values
    step = max(1, _TOKEN_SCORES // max(1, documents.longest * len(tokens)))
    best: list[Tensor] = []
    for low in range(0, len(lengths), step):  # One product for many documents: on Zen 4 faster than one for each.
        part = documents.values[starts[low] : starts[min(low + step, len(lengths))]] @ tokens.T
        scores = torch.split(part, lengths[low : low + step])  # (document tokens, query tokens) for each
        best += [score.amax(0) if len(score) else tokens.new_zeros(len(tokens)) for score in scores]
    return segment_sum(torch.stack(best).T, queries.offsets)


def maxsim(a: TokenVectors, b: TokenVectors) -> Scores | Tensor:
    """MaxSim, the late interaction of every text of a with every text of b.

        score_ij = sum over the tokens q of a_i of the greatest q . d of the tokens d of b_j

    A text without tokens scores 0.

    Args:
        a: Vectors of the tokens of queries: one array or tensor per text, as ``encode`` of a model without a pooling
            returns them.
        b: Vectors of the tokens of documents.

    Shape:
        a: (tokens, dim) for each of n texts. b: (tokens, dim) for each of m texts. Output: (n, m), NumPy if both are.

    Raises:
        ValueError: If the dimensions differ.

    References:
        Khattab and Zaharia, 2020, ColBERT, section 3.3. https://arxiv.org/abs/2004.12832

    Example:
        >>> import numpy as np
        >>> from sbert.functional import maxsim
        >>> maxsim([np.eye(2)], [np.eye(2), np.array([[0.5, 0.0]])])
        array([[2. , 0.5]])
    """
    return _on_tokens(a, b, _maxsim)


def _maxsim_pairs(first: TokenEmbeddings, second: TokenEmbeddings) -> Tensor:
    if len(first) != len(second):
        raise ValueError(f"{len(first)} and {len(second)} texts cannot be compared in pairs; pass as many of each")
    pairs = zip(*(torch.split(rows.values, rows.lengths.tolist()) for rows in (first, second)), strict=True)
    scores = [(x @ y.T).amax(1).sum() if len(y) else first.values.new_zeros(()) for x, y in pairs]
    return torch.stack(scores)


# Those of vectors, and that of the vectors of tokens.
ALL_SIMILARITIES: dict[str, Callable[..., Any]] = {**SIMILARITIES, "maxsim": maxsim}


def pairwise_cosines(x: Tensor, y: Tensor) -> Tensor:
    """The cosine of each row of two tensors of one shape, which is not checked. Shape: (rows, dim) to (rows,)."""
    return _cosines((directions(x) * directions(y)).sum(1))


_PAIRWISE: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cosine": pairwise_cosines,
    "dot": _in_float64_if_needed(lambda x, y: (x * y).sum(1)),
    "euclidean": _in_float64_if_needed(lambda x, y: -(x - y).norm(dim=1)),
    "manhattan": _in_float64_if_needed(lambda x, y: -(x - y).abs().sum(1)),
}


@overload
def pairwise_similarity(a: Float32, b: Float32, name: str = "cosine") -> Float32: ...
@overload
def pairwise_similarity(a: Array, b: Array, name: str = "cosine") -> Scores: ...
@overload
def pairwise_similarity(a: NotNumPy, b: Vectors, name: str = "cosine") -> Tensor: ...
@overload
def pairwise_similarity(a: Array, b: NotNumPy, name: str = "cosine") -> Tensor: ...
@known_arguments
def pairwise_similarity(a: Vectors, b: Vectors, name: str = "cosine") -> Scores | Tensor:
    """Similarity of row i of a and row i of b, for every i.

    Args:
        a: Vectors: a NumPy array, a tensor, or lists of floats.
        b: Vectors of the same shape.
        name: ``"cosine"``, ``"dot"``, ``"euclidean"`` or ``"manhattan"``; the last two are negative distances. With
            ``"maxsim"``, a and b are the vectors of the tokens of as many texts each.

    Shape:
        a, b: (rows, dim) or (dim,). Output: (rows,), NumPy if both are NumPy.

    Raises:
        ValueError: If the shapes differ, or the name is unknown.

    Example:
        >>> import torch
        >>> from sbert.functional import pairwise_similarity
        >>> pairwise_similarity(torch.eye(2), torch.ones(2, 2))
        tensor([0.7071, 0.7071])
    """
    if name == "maxsim":
        return _on_tokens(a, b, _maxsim_pairs)  # type: ignore[arg-type]
    check_similarity(name)

    def compute(first: Tensor, second: Tensor) -> Tensor:
        if len(first) != len(second):
            raise ValueError(f"{len(first)} and {len(second)} rows cannot be compared in pairs; pass as many of each")
        return _PAIRWISE[name](first, second)

    return _compare(compute, a, b)


def check_similarity(name: str, known: Collection[str] = SIMILARITIES) -> str:
    """Return ``name`` if it is one of ``known``, else raise a ValueError that lists these."""
    name = getattr(name, "value", name)  # Of an enum such as that of sentence-transformers.
    if not isinstance(name, str) or name not in known:
        raise ValueError(f"similarity {name!r:.60} is unknown; pass one of {', '.join(known)}")
    return name


def check_threshold(value: float, similarity: str = "cosine", name: str = "threshold") -> None:
    """Raise a TypeError or ValueError if no score of a similarity can have the value of a limit."""
    if abs(check_number(name, value)) > 1 and similarity == "cosine":
        raise ValueError(f"{name}={value} is not a cosine; pass -1 to 1")
    if value > 0 and similarity in ("euclidean", "manhattan"):
        raise ValueError(f"{name}={value} is above 0, but scores are negative distances; pass -{value} or lower")


# The dtype in which values of a dtype are summed: float32 or float64.
accumulation_dtype = partial(torch.promote_types, torch.float32)


def segment_sum(values: Tensor, offsets: Tensor, weights: Tensor | None = None, *, mean: bool = False) -> Tensor:
    """Sum the token vectors of each row in float32 or float64; an empty row gives zeros.

        sum_i = sum over the tokens t of row i of w_t x_t

    Args:
        values: One vector per token.
        offsets: Index of the first token of each row, then the number of tokens.
        weights: One factor per token. Default: 1.
        mean: Whether to divide each sum by the number of tokens; without weights.

    Shape:
        values: (tokens, dim). offsets: (rows + 1,). weights: (tokens,). Output: (rows, dim).

    Example:
        >>> import torch
        >>> from sbert.functional import segment_sum
        >>> segment_sum(torch.tensor([[1.0], [2.0], [4.0]]), torch.tensor([0, 2, 2, 3])).tolist()
        [[3.0], [0.0], [4.0]]
    """
    dtype = accumulation_dtype(values.dtype)
    is_short = len(offsets) == 2 and len(values) <= _SHORT and weights is None and not values.requires_grad
    if is_short and _values_can_be_read(values):
        return torch.segment_reduce(values.to(dtype), "mean" if mean else "sum", offsets=offsets, unsafe=True)
    weights = None if weights is None else weights.to(dtype)
    indices = torch.arange(len(values), device=values.device)
    return torch.embedding_bag(
        values.to(dtype), indices, offsets, mode=int(mean), per_sample_weights=weights, include_last_offset=True
    )[0]


def truncate(vectors: Tensor, dim: int | None) -> Tensor:
    """Keep the first ``dim`` dimensions of each vector; None keeps all.

    Shape:
        vectors: (rows, full dim). Output: (rows, dim).

    Raises:
        TypeError: If ``dim`` is not an integer.
        ValueError: If ``dim`` is not between 1 and the dimension of the vectors.

    Example:
        >>> import torch
        >>> from sbert.functional import truncate
        >>> truncate(torch.eye(3), 2).shape
        torch.Size([3, 2])
    """
    if dim is None:
        return vectors
    full = vectors.shape[-1]
    if not 1 <= whole("truncate_dim", dim) <= full:
        raise ValueError(f"truncate_dim={dim} does not fit the model's dim {full}; pass 1 to {full}")
    return vectors[..., :dim]
