"""SimilarityEvaluator: whether the cosine orders pairs of texts as people do."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from sbert.evaluation.evaluator import Evaluator, Vectors
from sbert.evaluation.metrics import spearman
from sbert.functional import pairwise_similarity


class SimilarityEvaluator(Evaluator):
    """Spearman's correlation of the cosine of two texts' vectors with their score.

        spearman( cos(u_i, v_i), score_i )

    Args:
        first: Texts.
        second: The text that each of them is compared with.
        scores: How alike they are, on any scale that grows with it.

    Raises:
        ValueError: If there are not as many of each, or fewer than two.

    References:
        Reimers and Gurevych, 2019, section 4. https://arxiv.org/abs/1908.10084

    Example:
        >>> evaluator = SimilarityEvaluator(["A cat.", "A cat."], ["A kitten.", "Taxes rise."], [4.5, 0])
        >>> evaluator(model)
        {'spearman': 1.0}
    """

    def __init__(self, first: Iterable[str], second: Iterable[str], scores: Iterable[float]) -> None:
        self.first, self.second = list(first), list(second)
        self.scores = np.array(list(scores), float)
        lengths = (len(self.first), len(self.second), len(self.scores))
        if len(set(lengths)) > 1 or lengths[0] < 2:
            raise ValueError(
                f"{lengths[0]} first texts, {lengths[1]} second ones and {lengths[2]} scores;"
                " pass as many of each, and at least 2"
            )
        if np.all(self.scores == self.scores[0]):
            raise ValueError(f"every score is {self.scores[0]:g}, which orders nothing; pass different scores")

    def measure(self, vectors: Vectors) -> dict[str, float]:
        table, half = vectors([*self.first, *self.second]), len(self.first)
        cosines = pairwise_similarity(table[:half], table[half:])
        return {"spearman": spearman(cosines, self.scores)}
