"""Distances between vectors: what losses with a margin compare."""

from __future__ import annotations

from torch import Tensor

from sbert.functional import SIMILARITIES, pairwise_similarity

DISTANCES = ("euclidean", "cosine", "manhattan")


def check_distance(name: str) -> str:
    """Return ``name`` if it names a distance, else raise a ValueError that lists those there are."""
    if name not in DISTANCES:
        raise ValueError(f"distance {name!r} is unknown; pass one of {', '.join(DISTANCES)}")
    return name


def pairwise_distance(first: Tensor, second: Tensor, name: str) -> Tensor:
    """Distance of each row of first from the same row of second.

        euclidean: |a - b|_2    manhattan: |a - b|_1    cosine: 1 - cos(a, b)

    The gradient of the Euclidean distance of two equal vectors is 0, one of its subgradients.
    ``torch.nn.functional.pairwise_distance`` adds 1e-6 to every difference to the same end, and moves every
    distance a little.

    Shape:
        first, second: (rows, dim). Output: (rows,).

    Example:
        >>> pairwise_distance(torch.zeros(1, 2), torch.tensor([[3.0, 4.0]]), "euclidean")
        tensor([5.])
    """
    similarity: Tensor = pairwise_similarity(first, second, name)
    return 1 - similarity if name == "cosine" else -similarity


def distance_matrix(vectors: Tensor, name: str) -> Tensor:
    """Distance of every row from every row.

    Shape:
        vectors: (rows, dim). Output: (rows, rows).

    Example:
        >>> distance_matrix(torch.tensor([[0.0, 0.0], [3.0, 4.0]]), "manhattan").abs()
        tensor([[0., 7.],
                [7., 0.]])
    """
    similarity: Tensor = SIMILARITIES[name](vectors, vectors)
    return 1 - similarity if name == "cosine" else -similarity
