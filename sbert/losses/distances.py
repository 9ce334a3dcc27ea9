"""Distances between vectors, for losses with a margin."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from sbert.functional import SIMILARITIES, pairwise_similarity
from sbert.inputs.arguments import check_choice

DISTANCES = ("euclidean", "cosine", "manhattan")


def check_distance(name: str, known: Sequence[str] = DISTANCES) -> str:
    """Return ``name`` if it is a known distance, else raise a ValueError that lists the known ones."""
    check_choice("distance", name, known)
    return name


def pairwise_distance(first: Tensor, second: Tensor, name: str) -> Tensor:
    """Distance between each row of ``first`` and the same row of ``second``.

        euclidean: |a - b|_2    manhattan: |a - b|_1    cosine: 1 - cos(a, b)

    The gradient of the Euclidean distance between two equal vectors is 0, which is one of its subgradients.
    ``torch.nn.functional.pairwise_distance`` avoids a NaN there by adding 1e-6 to every difference, which changes
    every distance slightly.

    Shape:
        first, second: (rows, dim). Output: (rows,).

    Example:
        >>> pairwise_distance(torch.zeros(1, 2), torch.tensor([[3.0, 4.0]]), "euclidean")
        tensor([5.])
    """
    similarity: Tensor = pairwise_similarity(first, second, name)
    return 1 - similarity if name == "cosine" else -similarity


def distance_matrix(vectors: Tensor, name: str) -> Tensor:
    """Distance between every two rows.

    Shape:
        vectors: (rows, dim). Output: (rows, rows).

    Example:
        >>> distance_matrix(torch.tensor([[0.0, 0.0], [3.0, 4.0]]), "manhattan").abs()
        tensor([[0., 7.],
                [7., 0.]])
    """
    similarity: Tensor = SIMILARITIES[name](vectors, vectors)
    return 1 - similarity if name == "cosine" else -similarity
