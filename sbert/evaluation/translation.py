"""TranslationEvaluator: whether the most similar translation of a sentence is its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from sbert.evaluation.checks import check_columns
from sbert.evaluation.evaluator import Evaluator
from sbert.evaluation.vectors import Floats, Vectors
from sbert.functional import check_similarity
from sbert.search import semantic_search


class TranslationEvaluator(Evaluator):
    """The fraction of sentences whose own translation is the most similar of all translations, in both directions.

        accuracy = mean_i [ argmax_j s(u_i, v_j) = i ]

    If the same translation occurs several times, each of them is correct.

    Args:
        source: The sentences.
        target: The translation of each sentence.
        similarity: ``"cosine"``, ``"dot"``, ``"euclidean"`` or ``"manhattan"``.
        prompt: The prompt before every text, instead of the model's default: the name of a prompt, or a text.

    Raises:
        ValueError: If the lengths differ, there are no sentences, or the similarity is unknown.
        TypeError: If a text is not a str.

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
        self._source, self._target = check_columns(1, {"source": source, "target": target})
        self._similarity, self._prompt = check_similarity(similarity), prompt

    def measure(self, vectors: Vectors) -> dict[str, float]:
        """The accuracy of each direction, and their mean."""
        table, half = vectors([*self._source, *self._target], prompt=self._prompt), len(self._source)
        forward = _accuracy(table[:half], table[half:], self._target, self._similarity)
        backward = _accuracy(table[half:], table[:half], self._source, self._similarity)
        mean = (forward + backward) / 2
        return {"mean_accuracy": mean, "source_to_target": forward, "target_to_source": backward}


def _accuracy(queries: Floats, corpus: Floats, texts: Sequence[str], similarity: str) -> float:
    """The fraction of queries whose most similar vector of the corpus is that of the right text."""
    nearest = semantic_search(queries, corpus, 1, similarity=similarity).indices[:, 0]
    return float(np.mean([texts[position] == right for position, right in zip(nearest, texts, strict=True)]))
