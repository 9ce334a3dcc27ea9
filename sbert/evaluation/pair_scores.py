"""The similarity of the two texts of a pair, by a model's vectors or by its scores."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from sbert.evaluation.vectors import Vectors
from sbert.functional import check_similarity, pairwise_similarity

Similarity = str | Iterable[str]

# Pairs compared at a time: float64 copies of all of them would take much memory.
_STEP = 4096


def prefixed(similarity: Similarity) -> dict[str, str]:
    """The similarities by the prefix of their metrics' names; a single similarity has no prefix.

    Raises:
        ValueError: If there are none, or one is unknown.

    Example:
        >>> prefixed("cosine"), prefixed(["cosine", "dot"])
        ({'': 'cosine'}, {'cosine_': 'cosine', 'dot_': 'dot'})
    """
    if isinstance(similarity, str):
        return {"": check_similarity(similarity)}
    names = {f"{check_similarity(name)}_": name for name in similarity}
    if not names:
        raise ValueError("similarity is empty; pass the name of one similarity, or several")
    return names


def scores_of(vectors: Vectors, first: Sequence[str], second: Sequence[str]) -> np.ndarray:
    """A cross-encoder's scores of pairs.

    Shape:
        Output: (pairs,).

    Raises:
        ValueError: If the model gives several scores per pair.
    """
    scores = vectors.pairs(first, second)
    if scores.ndim > 1:
        raise ValueError(
            f"the model gives {scores.shape[1]} scores per pair, but one is needed; measure it with LabelEvaluator, or"
            " use a model with classes=1"
        )
    return scores


def compared(
    vectors: Vectors,
    first: Sequence[str],
    second: Sequence[str],
    similarities: dict[str, str],
    prompt: str | None = None,
) -> dict[str, np.ndarray]:
    """The scores of pairs by each similarity; for a cross-encoder, only its own scores.

    Shape:
        Output: (pairs,) each.
    """
    if vectors.is_cross_encoder:
        return {"": scores_of(vectors, first, second)}
    table = vectors([*first, *second], prompt=prompt)  # (2 * pairs, dim)
    halves = table[: len(first)], table[len(first) :]
    return {prefix: _exact(*halves, name) for prefix, name in similarities.items()}


def _exact(first: np.ndarray, second: np.ndarray, name: str) -> np.ndarray:
    """Similarities computed in float64, so that equal vectors have a cosine of exactly 1 and the same rank.

    In float32, their cosines would differ by about 1e-7, and their ranks would be random.

    Shape:
        first, second: (pairs, dim). Output: (pairs,).
    """
    steps = [slice(start, start + _STEP) for start in range(0, len(first), _STEP)]
    parts = [pairwise_similarity(first[rows].astype(float), second[rows].astype(float), name) for rows in steps]
    return np.concatenate(parts).astype(np.float32)
