"""ParaphraseMiningEvaluator: whether the most similar pairs of many sentences are those that mean the same."""

from __future__ import annotations

from collections.abc import Iterable
from operator import index

import numpy as np

from sbert.evaluation.checks import texts
from sbert.evaluation.evaluator import Evaluator, Vectors
from sbert.evaluation.thresholds import cuts
from sbert.functional import check_similarity
from sbert.inputs.arguments import check_positive
from sbert.search import paraphrase_mining


class ParaphraseMiningEvaluator(Evaluator):
    """How well the most similar ones of all pairs of sentences are those that are known to mean the same.

    Average precision needs no threshold; F1 is that of the best threshold, which comes with its precision and recall.
    Every pair is compared. Duplicates that are not among the most similar pairs count as not found.

    Args:
        sentences: Texts.
        duplicates: Pairs of places in ``sentences``, from 0, that mean the same; the order does not matter.
        max_pairs: How many of the most similar pairs to keep.
        similarity: ``"cosine"``, ``"dot"``, ``"euclidean"`` or ``"manhattan"``.
        prompt: Before every text, in place of the model's default: the name of one of its prompts, or a text.

    Raises:
        ValueError: If there are fewer than two sentences, a pair names a place that is not there, or one twice, there
            are no pairs, or another argument does not fit.
        TypeError: If a sentence is no str.

    Example:
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
        self.prompt = prompt
        self.sentences = texts("sentences", sentences)
        count = len(self.sentences)
        if count < 2:
            raise ValueError(f"there are {count} sentences; pass at least 2")
        known = set()
        for row, pair in enumerate(duplicates):
            try:
                low, high = sorted(map(index, pair))
            except (TypeError, ValueError):  # No pair, or not of whole numbers.
                low = high = 0
            if not 0 <= low < high < count:
                raise ValueError(f"duplicates[{row}] is {pair}; pass two different places from 0 to {count - 1}")
            known.add(low * count + high)
        if not known:
            raise ValueError("there are no duplicates to find; pass at least one pair")
        self.duplicates = np.array(sorted(known))  # (pairs,), each as one number
        self.max_pairs, self.similarity = check_positive("max_pairs", max_pairs) or 1, check_similarity(similarity)

    def measure(self, vectors: Vectors) -> dict[str, float]:
        found = paraphrase_mining(
            vectors(self.sentences, prompt=self.prompt),
            top_k=None,
            max_pairs=self.max_pairs,
            similarity=self.similarity,
        )
        right = np.isin(found.first * len(self.sentences) + found.second, self.duplicates)
        threshold, taken, true = cuts(found.scores, right)
        total = len(self.duplicates)
        f1 = 2 * true / (taken + total)
        best = int(np.argmax(f1))
        return {
            "average_precision": float(np.sum(np.diff(true) * true[1:] / taken[1:]) / total),
            "f1": float(f1[best]),
            "precision": float(true[best] / max(1, taken[best])),
            "recall": float(true[best] / total),
            "threshold": float(threshold[best]),
        }
