"""How alike a model finds the two texts of a pair."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from sbert.evaluation.evaluator import Vectors
from sbert.functional import check_similarity, pairwise_similarity

Similarity = str | Iterable[str]


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
    if vectors.reads_pairs:
        return {"": scores_of(vectors, first, second)}
    table = vectors([*first, *second], prompt=prompt)  # (2 * pairs, dim), in one call
    halves = table[: len(first)], table[len(first) :]
    return {prefix: pairwise_similarity(*halves, name) for prefix, name in similarities.items()}
