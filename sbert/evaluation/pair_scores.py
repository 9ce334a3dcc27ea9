"""How alike a model finds the two texts of a pair."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from sbert.evaluation.evaluator import Vectors
from sbert.functional import check_similarity, pairwise_similarity

Similarity = str | Iterable[str]

# Pairs compared at a time, of which copies in float64 are made.
_STEP = 4096


def prefixed(similarity: Similarity) -> dict[str, str]:
    """Similarities by what their figures' names begin with: nothing, where one is given by its name.

    Raises:
        ValueError: If there is none, or one is unknown.

    Example:
        >>> prefixed("cosine"), prefixed(["cosine", "dot"])
        ({'': 'cosine'}, {'cosine_': 'cosine', 'dot_': 'dot'})
    """
    if isinstance(similarity, str):
        return {"": check_similarity(similarity)}
    names = {f"{check_similarity(name)}_": name for name in similarity}
    if not names:
        raise ValueError("similarity names none; pass one, or several")
    return names


def scores_of(vectors: Vectors, first: Sequence[str], second: Sequence[str]) -> np.ndarray:
    """The scores of a model that reads pairs.

    Shape:
        Output: (pairs,).

    Raises:
        ValueError: If it gives several a pair.
    """
    scores = vectors.pairs(first, second)
    if scores.ndim > 1:
        raise ValueError(
            f"the model gives {scores.shape[1]} scores a pair, where one is compared; measure it with LabelEvaluator,"
            " or load one with classes=1"
        )
    return scores


def compared(
    vectors: Vectors,
    first: Sequence[str],
    second: Sequence[str],
    similarities: dict[str, str],
    prompt: str | None = None,
) -> dict[str, np.ndarray]:
    """The scores of pairs by each similarity; by a model that reads pairs, its own alone.

    Shape:
        Output: (pairs,) each.
    """
    if vectors.is_cross_encoder:
        return {"": scores_of(vectors, first, second)}
    table = vectors([*first, *second], prompt=prompt)  # (2 * pairs, dim), in one call
    halves = table[: len(first)], table[len(first) :]
    return {prefix: _exact(*halves, name) for prefix, name in similarities.items()}


def _exact(first: np.ndarray, second: np.ndarray, name: str) -> np.ndarray:
    """Similarities with all digits of float32, so that equal vectors have a cosine of just 1 and share a rank.

    Summed in float32, they would be 1 give or take 1e-7, and their ranks a matter of chance.

    Shape:
        first, second: (pairs, dim). Output: (pairs,).
    """
    steps = [slice(start, start + _STEP) for start in range(0, len(first), _STEP)]
    parts = [pairwise_similarity(first[rows].astype(float), second[rows].astype(float), name) for rows in steps]
    return np.concatenate(parts).astype(np.float32)
