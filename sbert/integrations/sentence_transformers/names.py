"""Similarities and distances: their functions and enumerations as our names."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Any

import torch
from torch import Tensor

from sbert.functional import SIMILARITIES, check_similarity, pairwise_similarity


def rows(vectors: Any) -> Tensor:
    """Vectors of any form as a tensor (rows, dim): an array, a list of vectors or of numbers, a single vector."""
    if isinstance(vectors, (list, tuple)) and len(vectors) and isinstance(vectors[0], Tensor):
        vectors = torch.stack(list(vectors))
    found = torch.as_tensor(vectors)
    return found if found.ndim > 1 else found[None]


def similarity_name(given: Any) -> str:
    """Our name of a similarity: of a name, of an entry of an enumeration, or of one of the functions of ``util``.

    Raises:
        ValueError: If it is a function of another kind.

    Example:
        >>> similarity_name(SimilarityFunction.DOT_PRODUCT), similarity_name("cosine")
        ('dot', 'cosine')
    """
    name = getattr(given, "value", given)
    if callable(name):
        called = getattr(name, "__name__", "").removeprefix("pytorch_").removeprefix("pairwise_")
        known = {"cos": "cosine", "dot": "dot", "euclidean": "euclidean", "manhattan": "manhattan"}
        name = known.get(called.split("_")[0], called)
    return check_similarity(str(name))


class SimilarityFunction(Enum):
    """Names of similarities."""

    COSINE = "cosine"
    DOT_PRODUCT = "dot"
    DOT = DOT_PRODUCT
    EUCLIDEAN = "euclidean"
    MANHATTAN = "manhattan"

    @staticmethod
    def possible_values() -> list[str]:
        """All names."""
        return list(SIMILARITIES)

    @staticmethod
    def to_similarity_fn(similarity: Any) -> Callable[[Any, Any], Tensor]:
        """The function of a name: of each row of one and each of the other."""
        return compared(similarity_name(similarity))

    @staticmethod
    def to_similarity_pairwise_fn(similarity: Any) -> Callable[[Any, Any], Tensor]:
        """The function of a name: of the rows of both in turn."""
        return partial(_pairwise, name=similarity_name(similarity))


class DistanceMetric:
    """Names of distances, under the names of all their enumerations of them."""

    COSINE = COSINE_DISTANCE = "cosine"
    EUCLIDEAN = "euclidean"
    MANHATTAN = "manhattan"
    cosine_distance = COSINE
    eucledian_distance = euclidean_distance = EUCLIDEAN


def _pairwise(a: Any, b: Any, name: str) -> Tensor:
    return pairwise_similarity(rows(a), rows(b), name)


def compared(name: str, pairwise: bool = False, called: str = "") -> Callable[[Any, Any], Tensor]:
    """The function of a similarity that gives tensors: (rows of a, rows of b), or (rows,) if pairwise."""

    def similarity(a: Any, b: Any) -> Tensor:
        return _pairwise(a, b, name) if pairwise else SIMILARITIES[name](rows(a), rows(b))

    similarity.__name__ = similarity.__qualname__ = called or f"{name}_sim"
    return similarity
