"""Pure functions of vectors: similarities, and sums and maxima over rows of different lengths."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

Vectors = Any  # (rows, dim) or (dim,): ndarray, Tensor, or lists of floats


def _matrix(vectors: Vectors) -> Tensor:
    """(rows, dim), floating; one vector becomes one row."""
    if isinstance(vectors, (list, tuple)) and len(vectors) and isinstance(vectors[0], Tensor):
        vectors = torch.stack(list(vectors))
    tensor = torch.as_tensor(vectors)
    if tensor.ndim == 1:
        tensor = tensor[None]
    if tensor.ndim != 2:
        raise ValueError(f"vectors have shape {tuple(tensor.shape)}; pass one vector (dim,) or a matrix (rows, dim)")
    return tensor if tensor.is_floating_point() else tensor.float()


def _compare(compute: Callable[[Tensor, Tensor], Tensor], a: Vectors, b: Vectors) -> Any:
    """Apply ``compute`` to two matrices; NumPy in, NumPy out."""
    first, second = _matrix(a), _matrix(b)
    if first.shape[1] != second.shape[1]:
        raise ValueError(f"vectors of dim {first.shape[1]} and {second.shape[1]} cannot be compared; encode both alike")
    dtype = torch.promote_types(first.dtype, second.dtype)
    scores = compute(first.to(dtype), second.to(dtype, copy=False).to(first.device))
    return scores.numpy() if isinstance(a, np.ndarray) and isinstance(b, np.ndarray) else scores


def _same_rows(first: Tensor, second: Tensor) -> None:
    if len(first) != len(second):
        raise ValueError(
            f"{len(first)} rows and {len(second)} rows cannot be compared pair by pair; pass as many of each"
        )


def _normalized(vectors: Tensor) -> Tensor:
    return F.normalize(vectors, dim=1)


def _distances(first: Tensor, second: Tensor, p: float) -> Tensor:
    # The default of cdist goes through a matrix product, which loses the digits of small distances.
    return -torch.cdist(first, second, p=p, compute_mode="donot_use_mm_for_euclid_dist")


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
    return _compare(lambda x, y: _normalized(x) @ _normalized(y).T, a, b)


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
    return _compare(lambda x, y: x @ y.T, a, b)


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
    return _compare(lambda x, y: _distances(x, y, 2.0), a, b)


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
    return _compare(lambda x, y: _distances(x, y, 1.0), a, b)


SIMILARITIES: dict[str, Callable[[Vectors, Vectors], Any]] = {
    "cosine": cos_sim,
    "dot": dot_score,
    "euclidean": euclidean,
    "manhattan": manhattan,
}

_PAIRWISE: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cosine": lambda x, y: (_normalized(x) * _normalized(y)).sum(1),
    "dot": lambda x, y: (x * y).sum(1),
    "euclidean": lambda x, y: -(x - y).norm(dim=1),
    "manhattan": lambda x, y: -(x - y).abs().sum(1),
}


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
        raise ValueError(f"similarity {name!r} is unknown; pass one of {', '.join(SIMILARITIES)}")
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
    if not 1 <= dim <= vectors.shape[-1]:
        raise ValueError(
            f"truncate_dim={dim} does not fit the model's dim {vectors.shape[-1]}; pass 1 to {vectors.shape[-1]}"
        )
    return vectors[..., :dim]
