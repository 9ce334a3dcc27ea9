"""LabelEvaluator and PairClassificationEvaluator: whether a model tells the classes of pairs apart."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch

from sbert.evaluation.checks import as_many, texts, whole
from sbert.evaluation.evaluator import Evaluator, Vectors
from sbert.evaluation.metrics import accuracy, macro_f1, precision, recall
from sbert.evaluation.pair_scores import Similarity, compared, prefixed
from sbert.evaluation.thresholds import average_precision, best_threshold
from sbert.losses import SoftmaxLoss

# Pairs whose features are in memory at once.
_ROWS = 16_384


class LabelEvaluator(Evaluator):
    """Accuracy, and macro F1, of the classes that the head of a ``SoftmaxLoss`` gives pairs of texts.

        accuracy = mean_i [ argmax_c (W [u_i; v_i; |u_i - v_i|] + b)_c = label_i ]

    A ``CrossEncoder`` of several classes has a head of its own.

    Args:
        first: Texts.
        second: The other text of each pair.
        labels: The class of each pair, from 0.
        loss: Whose head it is, which is trained with the model; none for a ``CrossEncoder``.
        prompt: Before every text, in place of the model's default: the name of one of its prompts, or a text.

    Raises:
        ValueError: If there are not as many of each, a label is no whole number from 0 to the number of classes, or
            what is measured has no head.
        TypeError: If a text is no str, or a label no number.

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
                f"labels[{wrong[0]}] is {self.labels[wrong[0]]}, and the head has {classes} classes, which are 0 to"
                f" {classes - 1}; pass the labels that it was trained with"
            )

    def measure(self, vectors: Vectors) -> dict[str, float]:
        scores = self._scores_of_pairs(vectors) if vectors.is_cross_encoder else self._scores(vectors)
        predicted = scores.argmax(1)
        return {"accuracy": accuracy(predicted, self.labels), "macro_f1": macro_f1(predicted, self.labels)}

    def _scores_of_pairs(self, vectors: Vectors) -> np.ndarray:
        if self.loss is not None:
            raise ValueError("a CrossEncoder has a head of its own; leave loss= out")
        scores = vectors.pairs(self.first, self.second)
        if scores.ndim < 2:
            raise ValueError("the model gives one score a pair, and no classes; use PairClassificationEvaluator")
        self._check(scores.shape[1])
        return scores

    def _scores(self, vectors: Vectors) -> np.ndarray:
        """(pairs, classes), by the head of the loss."""
        if self.loss is None:
            raise ValueError("vectors alone say no class; pass loss=, the SoftmaxLoss that was trained with the model")
        device, parts = self.loss.classifier.weight.device, []
        vectors([*self.first, *self.second], prompt=self.prompt)  # All in one call.
        for start in range(0, len(self.first), _ROWS):
            columns = (vectors(part[start : start + _ROWS], prompt=self.prompt) for part in (self.first, self.second))
            with torch.no_grad():
                parts.append(self.loss.scores(*(torch.from_numpy(column).to(device) for column in columns)).cpu())
        return torch.cat(parts).numpy()


class PairClassificationEvaluator(Evaluator):
    """How well a threshold on the similarity of two texts tells pairs that belong together from those that do not.

    Average precision needs no threshold. Accuracy and F1 are those of the thresholds that are best on these very
    pairs; precision and recall are those at the threshold of F1. Pairs at the threshold, or above, belong together.
    Of a ``CrossEncoder``, it is the model's score of the pair that is compared.

    Args:
        first: Texts.
        second: The other text of each pair.
        labels: 1 for pairs that belong together, or else 0.
        similarity: ``"cosine"``, ``"dot"``, ``"euclidean"`` or ``"manhattan"``; with several, figures are called
            ``cosine_accuracy`` and so on.
        prompt: Before every text, in place of the model's default: the name of one of its prompts, or a text.

    Raises:
        ValueError: If there are not as many of each, a label is neither 0 nor 1, all are the same, or the similarity
            is unknown.
        TypeError: If a text is no str, or a label no number.

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
        found = {}
        for prefix, scores in compared(vectors, self.first, self.second, self.similarities, self.prompt).items():
            for name, value in self._figures(scores).items():
                found[f"{prefix}{name}"] = value
        return found

    def _figures(self, scores: np.ndarray) -> dict[str, float]:
        highest, best = (best_threshold(scores, self.labels, metric) for metric in ("accuracy", "f1"))
        taken = scores >= best[0]
        return {
            "average_precision": average_precision(scores, self.labels),
            "accuracy": highest[1],
            "accuracy_threshold": highest[0],
            "f1": best[1],
            "f1_threshold": best[0],
            "precision": precision(taken, self.labels),
            "recall": recall(taken, self.labels),
        }
