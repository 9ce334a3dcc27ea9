"""Pure functions of vectors: similarities, and sums and maxima over rows of different lengths.

Similarities of vectors in half precision are computed and returned in float32, those of float64 in float64. A cosine
is that of the directions, whatever the lengths, 0 for a vector of zeros, and never beyond -1 to 1. A vector with NaN
or an infinity has no direction: its cosines are NaN. ``sbert.search``, which puts scores in order, names its row
instead.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from sbert.inputs.arguments import known_arguments
from sbert.inputs.vectors import vectors_of

Vectors = Any  # (rows, dim) or (dim,): ndarray, Tensor, or lists of floats


def _compare(compute: Callable[[Tensor, Tensor], Tensor], a: Vectors, b: Vectors) -> Any:
    """Apply ``compute`` to two matrices of float32, or of float64 where one is; NumPy in, NumPy out."""
    first, second = vectors_of("a", a), vectors_of("b", b)
    if first.shape[1] != second.shape[1]:
        raise ValueError(
            f"vectors of dim {first.shape[1]} and {second.shape[1]} cannot be compared; encode both with the same model"
            " and truncate_dim"
        )
    dtype = torch.promote_types(first.dtype, second.dtype)
    kind = first.device.type
    # The caller's autocast would make the products bfloat16 again.
    with torch.autocast(kind, enabled=False) if torch.amp.is_autocast_available(kind) else nullcontext():
        scores = compute(first.to(dtype), second.to(first.device, dtype))
    return scores.numpy() if isinstance(a, np.ndarray) and isinstance(b, np.ndarray) else scores


def _same_rows(first: Tensor, second: Tensor) -> None:
    if len(first) != len(second):
        raise ValueError(
            f"{len(first)} rows and {len(second)} rows cannot be compared pair by pair; pass as many of each"
        )


def _usual(greatest: Tensor) -> Tensor:
    """Whether the squares of numbers of this size, and sums of them, keep all their digits; also of 0."""
    kind = torch.finfo(greatest.dtype)
    usual: Tensor = ((greatest >= kind.tiny**0.4) & (greatest <= kind.max**0.4)) | (greatest == 0)
    return usual


def in_range(vectors: Tensor) -> Tensor:
    """The same directions, from vectors so long or so short that their squares overflow or vanish.

    Such a row is divided by its greatest number; all others are left as they are, to the bit.

    Shape:
        vectors: (rows, dim), float32 or float64. Output: the same.

    Example:
        >>> in_range(torch.tensor([[1e30, 2e30], [3.0, 4.0]]))
        tensor([[0.5000, 1.0000], [3.0000, 4.0000]])
    """
    greatest = vectors.detach().abs().amax(1, keepdim=True)  # (rows, 1)
    usual = _usual(greatest)
    if vectors.device.type == "cpu" and bool(usual.all()):
        return vectors
    return vectors / torch.where(usual, 1, greatest)


def directions(vectors: Tensor) -> Tensor:
    """Each row divided by its length, whatever that is; a row of zeros stays one.

    ``torch.nn.functional.normalize`` makes zeros of rows of 1e30, and leaves rows of 1e-30 short.

    Shape:
        vectors: (rows, dim), float32 or float64. Output: the same.

    Example:
        >>> directions(torch.tensor([[3e30, 4e30], [3e-30, 4e-30], [0.0, 0.0]]))
        tensor([[0.6000, 0.8000], [0.6000, 0.8000], [0.0000, 0.0000]])
    """
    scaled = in_range(vectors)
    lengths = torch.linalg.vector_norm(scaled, dim=1, keepdim=True)  # (rows, 1)
    return scaled / torch.where(lengths == 0, 1, lengths)


def _cosines(scores: Tensor) -> Tensor:
    """Products of directions, without what rounding adds beyond 1.

    The gradient is that of the products: that of a clamp would be 0 wherever two vectors are nearly parallel.
    """
    with torch.no_grad():
        return scores.clamp_(-1, 1)


def _wide(compute: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    """The same in float64 where numbers are so large or so small that their products leave float32.

    On a CPU alone: on another device, to look at the numbers would make it wait.
    """

    def computed(first: Tensor, second: Tensor) -> Tensor:
        numbers = [each.detach() for each in (first, second) if each.numel()]
        if first.device.type != "cpu" or all(_usual(each.abs().max()) for each in numbers):
            return compute(first, second)
        return compute(first.double(), second.double()).to(first.dtype)

    return computed


def _distances(first: Tensor, second: Tensor, p: float) -> Tensor:
    # The default of cdist goes through a matrix product, which loses the digits of small distances.
    return -torch.cdist(first, second, p=p, compute_mode="donot_use_mm_for_euclid_dist")


@known_arguments
def cos_sim(a: Vectors, b: Vectors) -> Any:
    """Cosine of the angle between every row of a and every row of b.

        score_ij = a_i . b_j / (|a_i| |b_j|)

    Args:
        a: Vectors, as NumPy array, tensor or lists.
        b: Vectors of the same dim.

    Shape:
        a: (n, dim) or (dim,). b: (m, dim) or (dim,). Output: (n, m), NumPy where both are NumPy.

    Raises:
        ValueError: If the dims differ.

    Example:
        >>> cos_sim(torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 1.0], [0.0, 2.0]]))
        tensor([[0.7071, 0.0000]])
    """
    return _compare(lambda x, y: _cosines(directions(x) @ directions(y).T), a, b)


@known_arguments
def dot_score(a: Vectors, b: Vectors) -> Any:
    """Dot product of every row of a with every row of b.

        score_ij = a_i . b_j

    Args:
        a: Vectors, as NumPy array, tensor or lists.
        b: Vectors of the same dim.

    Shape:
        a: (n, dim) or (dim,). b: (m, dim) or (dim,). Output: (n, m), NumPy where both are NumPy.

    Raises:
        ValueError: If the dims differ.

    Example:
        >>> dot_score(np.array([[1.0, 2.0]]), np.array([[3.0, 4.0]]))
        array([[11.]])
    """
    return _compare(_wide(lambda x, y: x @ y.T), a, b)


@known_arguments
def euclidean(a: Vectors, b: Vectors) -> Any:
    """Negative Euclidean distance between every row of a and every row of b, so that greater is closer.

        score_ij = -|a_i - b_j|_2

    Args:
        a: Vectors, as NumPy array, tensor or lists.
        b: Vectors of the same dim.

    Shape:
        a: (n, dim) or (dim,). b: (m, dim) or (dim,). Output: (n, m), NumPy where both are NumPy.

    Raises:
        ValueError: If the dims differ.

    Example:
        >>> euclidean(np.array([[0.0, 0.0]]), np.array([[3.0, 4.0]]))
        array([[-5.]])
    """
    return _compare(_wide(lambda x, y: _distances(x, y, 2.0)), a, b)


@known_arguments
def manhattan(a: Vectors, b: Vectors) -> Any:
    """Negative Manhattan distance between every row of a and every row of b, so that greater is closer.

        score_ij = -|a_i - b_j|_1

    Args:
        a: Vectors, as NumPy array, tensor or lists.
        b: Vectors of the same dim.

    Shape:
        a: (n, dim) or (dim,). b: (m, dim) or (dim,). Output: (n, m), NumPy where both are NumPy.

    Raises:
        ValueError: If the dims differ.

    Example:
        >>> manhattan(np.array([[0.0, 0.0]]), np.array([[3.0, 4.0]]))
        array([[-7.]])
    """
    return _compare(_wide(lambda x, y: _distances(x, y, 1.0)), a, b)


SIMILARITIES: dict[str, Callable[[Vectors, Vectors], Any]] = {
    "cosine": cos_sim,
    "dot": dot_score,
    "euclidean": euclidean,
    "manhattan": manhattan,
}

_PAIRWISE: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cosine": lambda x, y: _cosines((directions(x) * directions(y)).sum(1)),
    "dot": _wide(lambda x, y: (x * y).sum(1)),
    "euclidean": _wide(lambda x, y: -(x - y).norm(dim=1)),
    "manhattan": _wide(lambda x, y: -(x - y).abs().sum(1)),
}


@known_arguments
def pairwise_similarity(a: Vectors, b: Vectors, name: str = "cosine") -> Any:
    """Similarity of each row of a with the same row of b.

    Args:
        a: Vectors, as NumPy array, tensor or lists.
        b: As many vectors of the same dim.
        name: ``"cosine"``, ``"dot"``, ``"euclidean"`` or ``"manhattan"``; the last two are negative distances.

    Shape:
        a: (rows, dim) or (dim,). b: the same. Output: (rows,), NumPy where both are NumPy.

    Raises:
        ValueError: If the shapes differ, or the name is unknown.

    Example:
        >>> pairwise_similarity(torch.eye(2), torch.ones(2, 2))
        tensor([0.7071, 0.7071])
    """
    check_similarity(name)

    def compute(first: Tensor, second: Tensor) -> Tensor:
        _same_rows(first, second)
        return _PAIRWISE[name](first, second)

    return _compare(compute, a, b)


def check_similarity(name: str) -> str:
    """Return ``name`` if it names a similarity, else raise a ValueError that lists those there are."""
    if not isinstance(name, str) or name not in SIMILARITIES:
        what = name if isinstance(name, str) else getattr(name, "__name__", name)
        as_name = "" if isinstance(name, str) else " by its name"
        raise ValueError(f"similarity {what!r:.60} is unknown; pass one of {', '.join(SIMILARITIES)}{as_name}")
    return name


def accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype for sums of values of ``dtype``: never less than float32."""
    return torch.promote_types(dtype, torch.float32)


def segment_sum(values: Tensor, offsets: Tensor, weights: Tensor | None = None) -> Tensor:
    """Sum of each row's tokens, in float32 or better; an empty row gives zeros.

        sum_i = sum over the tokens t of row i of w_t x_t

    Args:
        values: Vectors of the tokens.
        offsets: Where each row starts, and the number of tokens.
        weights: A factor for each token; 1 where it is not given.

    Shape:
        values: (tokens, dim). offsets: (rows + 1,). weights: (tokens,). Output: (rows, dim).

    Example:
        >>> segment_sum(torch.tensor([[1.0], [2.0], [4.0]]), torch.tensor([0, 2, 2, 3])).tolist()
        [[3.0], [0.0], [4.0]]
    """
    dtype = accumulation_dtype(values.dtype)
    return F.embedding_bag(
        torch.arange(len(values), device=values.device),
        values.to(dtype),
        offsets,
        mode="sum",
        include_last_offset=True,
        per_sample_weights=None if weights is None else weights.to(dtype),
    )


def truncate(vectors: Tensor, dim: int | None) -> Tensor:
    """The first ``dim`` numbers of each vector.

    Shape:
        vectors: (rows, width). Output: (rows, dim).

    Raises:
        ValueError: If ``dim`` is not between 1 and the vectors' width.

    Example:
        >>> truncate(torch.eye(3), 2).shape
        torch.Size([3, 2])
    """
    if dim is None:
        return vectors
    if isinstance(dim, bool) or not isinstance(dim, (int, np.integer)):
        raise TypeError(f"truncate_dim is {dim!r:.60}; pass a whole number")
    if not 1 <= dim <= vectors.shape[-1]:
        raise ValueError(
            f"truncate_dim={dim} does not fit the model's dim {vectors.shape[-1]}; pass 1 to {vectors.shape[-1]}"
        )
    return vectors[..., :dim]
