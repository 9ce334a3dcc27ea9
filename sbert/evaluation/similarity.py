"""SimilarityEvaluator: whether a model's similarities agree with human scores."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from sbert.evaluation.checks import finite
from sbert.evaluation.metrics import pearson, spearman
from sbert.evaluation.pairs import PairEvaluator, Similarity
from sbert.evaluation.vectors import Floats


class SimilarityEvaluator(PairEvaluator):
    """Spearman's and Pearson's correlation between the similarity of two texts and a reference score.

        spearman( cos(u_i, v_i), score_i )

    For a ``CrossEncoder``, the similarity is the model's score of the pair.

    Args:
        first: The first text of each pair.
        second: The second text of each pair.
        scores: The reference score of each pair, on any scale; higher means more similar.
        similarity: ``"cosine"``, ``"dot"``, ``"euclidean"`` or ``"manhattan"``; with several, metrics are called
            ``cosine_spearman`` and so on.
        prompt: The prompt before every text, instead of the model's default: the name of a prompt, or a text.

    Raises:
        ValueError: If the lengths differ, there are fewer than two pairs, a score is not finite, all scores are equal,
            or the similarity is unknown.
        TypeError: If a text is not a str.

    References:
        Reimers and Gurevych, 2019, section 4. https://arxiv.org/abs/1908.10084

    Example:
        >>> evaluator = SimilarityEvaluator(["A cat.", "A cat."], ["A kitten.", "Taxes rise."], [4.5, 0])
        >>> evaluator(model)["spearman"]
        1.0
    """

    def __init__(
        self,
        first: Iterable[str],
        second: Iterable[str],
        scores: Iterable[float],
        similarity: Similarity = "cosine",
        *,
        prompt: str | None = None,
    ) -> None:
        self._scores = np.array(list(scores), float)
        super().__init__(first, second, similarity, prompt, scores=self._scores)
        finite("scores", self._scores)
        if np.all(self._scores == self._scores[0]):
            raise ValueError(f"every score is {self._scores[0]:g}, so there is no correlation; pass different scores")

    def metrics(self, similarities: Floats) -> dict[str, float]:
        """Both correlations."""
        return {"spearman": spearman(similarities, self._scores), "pearson": pearson(similarities, self._scores)}
