"""ParaphraseMiningEvaluator: whether the most similar pairs of many sentences are paraphrases."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from sbert.evaluation.evaluator import Evaluator
from sbert.evaluation.metrics import threshold_counts
from sbert.evaluation.model_vectors import ModelVectors
from sbert.functional import check_similarity
from sbert.inputs.arguments import check_count
from sbert.inputs.texts import texts_of
from sbert.search import paraphrase_mining


class ParaphraseMiningEvaluator(Evaluator):
    """Average precision and F1 of finding the known duplicates among all pairs of sentences, by similarity.

    All pairs are compared, and the ``max_pairs`` most similar ones are ranked; duplicates that are not among them
    count as not found. F1, precision and recall are those at the threshold with the best F1.

    Args:
        sentences: The texts.
        duplicates: Pairs of indices into ``sentences``, from 0, in any order.
        max_pairs: Number of most similar pairs to rank.
        similarity: ``"cosine"``, ``"dot"``, ``"euclidean"`` or ``"manhattan"``.
        prompt: The prompt before every text, instead of the model's default: the name of a prompt, or a text.

    Raises:
        ValueError: If there are no duplicates, a pair is not two different valid indices, or another argument is
            invalid.
        TypeError: If a sentence is not a str, or the model gives one vector per token.

    Example:
        >>> from sbert import SentenceEncoder
        >>> from sbert.evaluation import ParaphraseMiningEvaluator
        >>> model = SentenceEncoder()
        >>> evaluator = ParaphraseMiningEvaluator(["A cat sleeps.", "Taxes rise.", "A cat is sleeping."], [(0, 2)])
        >>> evaluator(model)["f1"]
        1.0
    """

    def __init__(
        self,
        sentences: Iterable[str],
        duplicates: Iterable[tuple[int, int]],
        max_pairs: int = 500_000,
        similarity: str = "cosine",
        *,
        prompt: str | None = None,
    ) -> None:
        self._sentences, self._prompt = texts_of(sentences, "sentences"), prompt
        count = len(self._sentences)
        numbers = set()  # low * count + high of each pair.
        for row, pair in enumerate(duplicates):
            low, high = sorted(pair)
            if not 0 <= low < high < count:
                raise ValueError(f"duplicates[{row}] is {pair}; pass two different indices from 0 to {count - 1}")
            numbers.add(low * count + high)
        if not numbers:
            raise ValueError("there are no duplicates to find; pass at least one pair")
        self._duplicates = np.array(sorted(numbers))  # (pairs,)
        self._max_pairs, self._similarity = check_count("max_pairs", max_pairs), check_similarity(similarity)

    def measure(self, vectors: ModelVectors) -> dict[str, float]:
        """Average precision; and F1, precision and recall at the best threshold."""
        table, similarity = vectors.of_texts(self._sentences, self._prompt), self._similarity
        pairs = paraphrase_mining(table, max_pairs=self._max_pairs, similarity=similarity)
        is_duplicate = np.isin(pairs.first * len(self._sentences) + pairs.second, self._duplicates)
        thresholds, predicted, correct = threshold_counts(pairs.scores, is_duplicate)
        total = len(self._duplicates)
        f1 = 2 * correct / (predicted + total)
        best = int(np.argmax(f1))
        return {
            "average_precision": float(np.sum(np.diff(correct) * correct[1:] / predicted[1:]) / total),
            "f1": float(f1[best]),
            "precision": float(correct[best] / max(1, predicted[best])),
            "recall": float(correct[best] / total),
            "threshold": float(thresholds[best]),
        }
