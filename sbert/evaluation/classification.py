"""LabelEvaluator and PairClassificationEvaluator: whether a model predicts the classes of pairs."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from sbert.evaluation.checks import check_columns, check_labels
from sbert.evaluation.evaluator import Evaluator, Similarity, SimilarityBased, check_similarities
from sbert.evaluation.metrics import accuracy, macro_f1, precision, recall
from sbert.evaluation.pairs import compare
from sbert.evaluation.thresholds import average_precision, best_threshold
from sbert.evaluation.vectors import Floats, Vectors
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
        TypeError: If a text is not a str.

    References:
        Conneau et al., 2017, section 3.1. https://arxiv.org/abs/1705.02364

    Example:
        >>> from sbert.losses import SoftmaxLoss
        >>> loss = SoftmaxLoss(dim=384, classes=2)
        >>> figures = LabelEvaluator(["A cat.", "A cat."], ["A kitten.", "Taxes rise."], [0, 1], loss)(model)
        >>> list(figures)
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
        self._labels, self._prompt = check_labels("labels", labels), prompt
        self.loss: SoftmaxLoss | None = loss
        self._first, self._second = check_columns(1, {"first": first, "second": second}, labels=self._labels)
        if loss is not None:
            self._check(loss.classes)

    def _check(self, classes: int) -> None:
        row = int(self._labels.argmax())
        if (label := self._labels[row]) >= classes:
            raise ValueError(f"labels[{row}] is {label}, but the classifier has the classes 0 to {classes - 1}")

    def measure(self, vectors: Vectors) -> dict[str, float]:
        """Accuracy and macro F1."""
        scores = self._score_pairs(vectors) if vectors.is_cross_encoder else self._score_vectors(vectors)
        predicted = scores.argmax(1)
        return {"accuracy": accuracy(predicted, self._labels), "macro_f1": macro_f1(predicted, self._labels)}

    def _score_pairs(self, vectors: Vectors) -> Floats:
        if self.loss is not None:
            raise ValueError("a CrossEncoder has its own classifier; leave loss= out")
        scores = vectors.score_pairs(self._first, self._second)
        if scores.ndim < 2:
            raise ValueError("the model gives one score per pair, not classes; use PairClassificationEvaluator")
        self._check(scores.shape[1])
        return scores

    def _score_vectors(self, vectors: Vectors) -> Floats:
        """The classifier's scores, (pairs, classes)."""
        if self.loss is None:
            raise ValueError("vectors have no classes; pass loss=, the SoftmaxLoss that was trained with the model")
        table = torch.from_numpy(vectors([*self._first, *self._second], prompt=self._prompt))
        table = table.reshape(2, len(self._first), -1)  # (2, pairs, dim)
        device = self.loss.classifier.weight.device
        with torch.no_grad():
            return torch.cat(
                [self.loss.scores(*part.to(device)).cpu() for part in torch.split(table, _ROWS, 1)]
            ).numpy()


class PairClassificationEvaluator(SimilarityBased):
    """Binary classification of pairs by a threshold on their similarity, such as paraphrase or not.

    Average precision needs no threshold. Accuracy and F1 are each at the threshold that is best on these same pairs;
    precision and recall are at the threshold of F1. Pairs at the threshold or above are predicted positive. For a
    ``CrossEncoder``, the similarity is the model's score of the pair.

    Args:
        first: The first text of each pair.
        second: The second text of each pair.
        labels: 1 for positive pairs, 0 for negative pairs.
        similarity: ``"cosine"``, ``"dot"``, ``"euclidean"`` or ``"manhattan"``; with a list, metrics are called
            ``cosine_average_precision`` and so on.
        prompt: The prompt before every text, instead of the model's default: the name of a prompt, or a text.

    Raises:
        ValueError: If the lengths differ, a label is not 0 or 1, all labels are equal, or the similarity is unknown.
        TypeError: If a text is not a str.

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
        self._labels = check_labels("labels", labels)
        self._first, self._second = check_columns(2, {"first": first, "second": second}, labels=self._labels)
        self._similarities, self._prompt = check_similarities(similarity), prompt
        if (classes := set(self._labels.tolist())) != {0, 1}:
            raise ValueError(f"the labels are {sorted(classes)[:5]}; pass 1 for some pairs and 0 for others")

    def measure_by(self, vectors: Vectors, similarity: str) -> dict[str, float]:
        """Average precision, and accuracy and F1 at their best thresholds."""
        similarities = compare(vectors, self._first, self._second, similarity, self._prompt)
        accuracy_threshold, best_accuracy = best_threshold(similarities, self._labels, "accuracy")
        f1_threshold, best_f1 = best_threshold(similarities, self._labels, "f1")
        predicted = similarities >= f1_threshold
        return {
            "average_precision": average_precision(similarities, self._labels),
            "accuracy": best_accuracy,
            "accuracy_threshold": accuracy_threshold,
            "f1": best_f1,
            "f1_threshold": f1_threshold,
            "precision": precision(predicted, self._labels),
            "recall": recall(predicted, self._labels),
        }
