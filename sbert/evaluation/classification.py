"""LabelEvaluator and PairClassificationEvaluator: whether a model predicts the classes of pairs."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch

from sbert.evaluation.checks import as_many, texts, whole
from sbert.evaluation.evaluator import Evaluator
from sbert.evaluation.metrics import accuracy, macro_f1, precision, recall
from sbert.evaluation.pair_scores import Similarity, compared, prefixed
from sbert.evaluation.thresholds import average_precision, best_threshold
from sbert.evaluation.vectors import Vectors
from sbert.losses import SoftmaxLoss

# Pairs whose features are in memory at once.
_ROWS = 16_384


class LabelEvaluator(Evaluator):
    """Accuracy and macro F1 of the classes of pairs, predicted by the classifier of a ``SoftmaxLoss``.

        accuracy = mean_i [ argmax_c (W [u_i; v_i; |u_i - v_i|] + b)_c = label_i ]

    A ``CrossEncoder`` with several classes has its own classifier.

    Args:
        first: The first text of each pair.
        second: The second text of each pair.
        labels: The class of each pair, from 0.
        loss: The loss that was trained with the model, which has the classifier; None for a ``CrossEncoder``.
        prompt: The prompt before every text, instead of the model's default: the name of a prompt, or a text.

    Raises:
        ValueError: If the lengths differ, a label is not a valid class, or there is no classifier.
        TypeError: If a text is not a str, or a label not a number.

    References:
        Conneau et al., 2017, section 3.1. https://arxiv.org/abs/1705.02364

    Example:
        >>> from sbert.losses import SoftmaxLoss
        >>> loss = SoftmaxLoss(dim=384, classes=2)
        >>> found = LabelEvaluator(["A cat.", "A cat."], ["A kitten.", "Taxes rise."], [0, 1], loss)(model)
        >>> list(found)
        ['accuracy', 'macro_f1']
    """

    def __init__(
        self,
        first: Iterable[str],
        second: Iterable[str],
        labels: Iterable[int],
        loss: SoftmaxLoss | None = None,
        *,
        prompt: str | None = None,
    ) -> None:
        self.first, self.second, self.labels = texts("first", first), texts("second", second), whole("labels", labels)
        as_many(1, first=self.first, second=self.second, labels=self.labels)
        self.loss, self.prompt = loss, prompt
        if loss is not None:
            self._check(loss.classes)

    def _check(self, classes: int) -> None:
        wrong = np.flatnonzero(self.labels >= classes)
        if len(wrong):
            raise ValueError(
                f"labels[{wrong[0]}] is {self.labels[wrong[0]]}, but the classifier has the classes 0 to {classes - 1};"
                " pass the labels that it was trained with"
            )

    def measure(self, vectors: Vectors) -> dict[str, float]:
        scores = self._scores_of_pairs(vectors) if vectors.is_cross_encoder else self._scores(vectors)
        predicted = scores.argmax(1)
        return {"accuracy": accuracy(predicted, self.labels), "macro_f1": macro_f1(predicted, self.labels)}

    def _scores_of_pairs(self, vectors: Vectors) -> np.ndarray:
        if self.loss is not None:
            raise ValueError("a CrossEncoder has its own classifier; leave loss= out")
        scores = vectors.pairs(self.first, self.second)
        if scores.ndim < 2:
            raise ValueError("the model gives one score per pair, not classes; use PairClassificationEvaluator")
        self._check(scores.shape[1])
        return scores

    def _scores(self, vectors: Vectors) -> np.ndarray:
        """The classifier's scores, (pairs, classes)."""
        if self.loss is None:
            raise ValueError("vectors have no classes; pass loss=, the SoftmaxLoss that was trained with the model")
        device, parts = self.loss.classifier.weight.device, []
        vectors([*self.first, *self.second], prompt=self.prompt)  # One call that encodes all texts.
        for start in range(0, len(self.first), _ROWS):
            columns = (vectors(part[start : start + _ROWS], prompt=self.prompt) for part in (self.first, self.second))
            with torch.no_grad():
                parts.append(self.loss.scores(*(torch.from_numpy(column).to(device) for column in columns)).cpu())
        return torch.cat(parts).numpy()


class PairClassificationEvaluator(Evaluator):
    """Binary classification of pairs by a threshold on their similarity, such as paraphrase or not.

    Average precision needs no threshold. Accuracy and F1 are each at the threshold that is best on these same pairs;
    precision and recall are at the threshold of F1. Pairs at the threshold or above are predicted positive. For a
    ``CrossEncoder``, the similarity is the model's score of the pair.

    Args:
        first: The first text of each pair.
        second: The second text of each pair.
        labels: 1 for positive pairs, 0 for negative pairs.
        similarity: ``"cosine"``, ``"dot"``, ``"euclidean"`` or ``"manhattan"``; with several, metrics are called
            ``cosine_accuracy`` and so on.
        prompt: The prompt before every text, instead of the model's default: the name of a prompt, or a text.

    Raises:
        ValueError: If the lengths differ, a label is not 0 or 1, all labels are equal, or the similarity is unknown.
        TypeError: If a text is not a str, or a label not a number.

    Example:
        >>> evaluator = PairClassificationEvaluator(["A cat.", "A cat."], ["A kitten.", "Taxes rise."], [1, 0])
        >>> evaluator(model)["average_precision"]
        1.0
    """

    def __init__(
        self,
        first: Iterable[str],
        second: Iterable[str],
        labels: Iterable[int],
        similarity: Similarity = "cosine",
        *,
        prompt: str | None = None,
    ) -> None:
        self.first, self.second, self.labels = texts("first", first), texts("second", second), whole("labels", labels)
        as_many(2, first=self.first, second=self.second, labels=self.labels)
        classes = set(self.labels.tolist())
        if classes != {0, 1}:
            raise ValueError(f"the labels are {sorted(classes)[:5]}; pass 1 for some pairs and 0 for others")
        self.similarities, self.prompt = prefixed(similarity), prompt

    def measure(self, vectors: Vectors) -> dict[str, float]:
        metrics = {}
        for prefix, scores in compared(vectors, self.first, self.second, self.similarities, self.prompt).items():
            for name, value in self._metrics(scores).items():
                metrics[f"{prefix}{name}"] = value
        return metrics

    def _metrics(self, scores: np.ndarray) -> dict[str, float]:
        accuracy_threshold, best_accuracy = best_threshold(scores, self.labels, "accuracy")
        f1_threshold, best_f1 = best_threshold(scores, self.labels, "f1")
        predicted = scores >= f1_threshold
        return {
            "average_precision": average_precision(scores, self.labels),
            "accuracy": best_accuracy,
            "accuracy_threshold": accuracy_threshold,
            "f1": best_f1,
            "f1_threshold": f1_threshold,
            "precision": precision(predicted, self.labels),
            "recall": recall(predicted, self.labels),
        }
