"""TranslationEvaluator: whether a sentence and its translation are nearest to each other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from sbert.evaluation.checks import as_many, texts
from sbert.evaluation.evaluator import Evaluator, Vectors
from sbert.functional import check_similarity
from sbert.search import semantic_search


class TranslationEvaluator(Evaluator):
    """The part of the sentences whose translation is, among all translations, the most similar one, both ways.

        accuracy = mean_i [ argmax_j s(u_i, v_j) = i ]

    A sentence that stands in several places is right in each of them.

    Args:
        source: Texts.
        target: The translation of each.
        similarity: ``"cosine"``, ``"dot"``, ``"euclidean"`` or ``"manhattan"``.
        prompt: Before every text, in place of the model's default: the name of one of its prompts, or a text.

    Raises:
        ValueError: If there are not as many of each, none, or the similarity is unknown.
        TypeError: If a text is no str.

    References:
        Reimers and Gurevych, 2020, section 4.3. https://arxiv.org/abs/2004.09813

    Example:
        >>> TranslationEvaluator(["A cat sleeps.", "Taxes rise."], ["A cat is sleeping.", "Taxes go up."])(model)
        {'mean_accuracy': 1.0, 'source_to_target': 1.0, 'target_to_source': 1.0}
    """

    def __init__(
        self,
        source: Iterable[str],
        target: Iterable[str],
        similarity: str = "cosine",
        *,
        prompt: str | None = None,
    ) -> None:
        self.source, self.target = texts("source", source), texts("target", target)
        as_many(1, source=self.source, target=self.target)
        self.similarity, self.prompt = check_similarity(similarity), prompt

    def measure(self, vectors: Vectors) -> dict[str, float]:
        table, half = vectors([*self.source, *self.target], prompt=self.prompt), len(self.source)
        source, target = table[:half], table[half:]
        there = self._accuracy(source, target, self.target)
        back = self._accuracy(target, source, self.source)
        return {"mean_accuracy": (there + back) / 2, "source_to_target": there, "target_to_source": back}

    def _accuracy(self, asked: np.ndarray, answers: np.ndarray, sentences: Sequence[str]) -> float:
        found = semantic_search(asked, answers, 1, similarity=self.similarity).indices[:, 0]
        return float(np.mean([sentences[place] == right for place, right in zip(found, sentences, strict=True)]))
