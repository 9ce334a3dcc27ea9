"""SimilarityEvaluator: whether a model orders pairs of texts as people do."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from sbert.evaluation.checks import as_many, texts
from sbert.evaluation.evaluator import Evaluator, Vectors
from sbert.evaluation.metrics import pearson, spearman
from sbert.evaluation.pair_scores import Similarity, compared, prefixed


class SimilarityEvaluator(Evaluator):
    """Spearman's and Pearson's correlation of the similarity of two texts' vectors with their score.

        spearman( cos(u_i, v_i), score_i )

    Of a ``CrossEncoder``, it is the model's score of the pair that is compared.

    Args:
        first: Texts.
        second: The text that each of them is compared with.
        scores: How alike they are, on any scale that grows with it.
        similarity: ``"cosine"``, ``"dot"``, ``"euclidean"`` or ``"manhattan"``; with several, figures are called
            ``cosine_spearman`` and so on.
        prompt: Before every text, in place of the model's default: the name of one of its prompts, or a text.

    Raises:
        ValueError: If there are not as many of each, fewer than two, a score is not finite, all are the same, or the
            similarity is unknown.
        TypeError: If a text is no str.

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
        self.first, self.second = texts("first", first), texts("second", second)
        self.scores = np.array(list(scores), float)
        as_many(2, first=self.first, second=self.second, scores=self.scores)
        wrong = np.flatnonzero(~np.isfinite(self.scores))
        if len(wrong):
            raise ValueError(f"scores[{wrong[0]}] is {self.scores[wrong[0]]}; leave out pairs without a score")
        if np.all(self.scores == self.scores[0]):
            raise ValueError(f"every score is {self.scores[0]:g}, which orders nothing; pass different scores")
        self.similarities, self.prompt = prefixed(similarity), prompt

    def measure(self, vectors: Vectors) -> dict[str, float]:
        found = {}
        for prefix, scores in compared(vectors, self.first, self.second, self.similarities, self.prompt).items():
            found[f"{prefix}spearman"] = spearman(scores, self.scores)
            found[f"{prefix}pearson"] = pearson(scores, self.scores)
        return found
