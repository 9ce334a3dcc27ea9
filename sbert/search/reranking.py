"""Rankings of what a search has found by a second, slower score."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt


class Reranker(Protocol):
    """What ``rerank=`` takes: a ``CrossEncoder``, ``LateInteraction``, or another object that scores pairs.

    With an attribute ``weight``, its scores are fused with those of the search.
    """

    def predict(self, pairs: list[tuple[str, str]], /) -> npt.NDArray[np.float32]:
        """One score per pair of a query and a text."""
        ...


def reranked_scores(
    rerank: Reranker, queries: list[str], texts: list[list[str]], first: list[npt.NDArray[np.float32]]
) -> list[npt.NDArray[np.float32]]:
    """The scores of each query's results by a reranker, fused with those of the search.

    Args:
        rerank: Gives the second scores.
        queries: The queries.
        texts: What was found for each.
        first: The scores of the search, (texts,) for each query.

    Raises:
        ValueError: If there is not one score per pair.
    """
    pairs = [(query, text) for query, own in zip(queries, texts, strict=True) for text in own]
    second = np.asarray(rerank.predict(pairs) if pairs else [], np.float32)
    if second.shape != (len(pairs),):
        raise ValueError(f"rerank gives scores of shape {second.shape} for {len(pairs)} pairs; pass one with one each")
    parts = np.split(second, np.cumsum([len(own) for own in texts])[:-1])
    return [fused_scores(old, new, rerank) for old, new in zip(first, parts, strict=True)]


def fused_scores(
    first: npt.NDArray[np.float32], second: npt.NDArray[np.float32], rerank: Reranker
) -> npt.NDArray[np.float32]:
    """The scores of one query's results.

        score = (1 - weight) * first + weight * second

    where both go from 0 for the least to 1 for the greatest; the second as they are if the reranker has no weight.

    Shape:
        first, second, output: (results,).
    """
    weight = getattr(rerank, "weight", None)
    return second if weight is None else (1 - weight) * _scaled(first) + weight * _scaled(second)


def _scaled(scores: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    if not len(scores):
        return scores
    least, span = scores.min(), np.ptp(scores)
    return np.asarray((scores - least) / (span or 1), np.float32)
