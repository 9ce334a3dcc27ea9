"""Losses for the scores of a cross-encoder: BinaryCrossEntropyLoss, SquaredErrorLoss, CrossEntropyLoss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from sbert.losses.checks import check_between, check_class, check_labelled
from sbert.losses.module import LossModule
from sbert.losses.signature import Loss


class _ScoreLoss(LossModule):
    """What the losses below share: checks of the scores and of the data."""

    needs_different_labels = "the same score would be right for all texts"

    def _check_scores(self, scores: Tensor, labels: Tensor, classes: int) -> list[Tensor]:
        """Check the number of scores per row; return the scores, at least float32, and the labels."""
        scores, labels = check_labelled(self, scores, labels=labels)
        if scores.shape[1] != classes:
            name = f"{type(self).__name__} takes {classes} score{'s' * (classes > 1)} per row"
            raise ValueError(f"{name}, but the model gives {scores.shape[1]}; pass classes={classes}, or another loss")
        return [scores, labels]


class BinaryCrossEntropyLoss(_ScoreLoss):
    """Cross-entropy between the label and the sigmoid of the score.

        loss = mean_i -(y_i log sigmoid(s_i) + (1 - y_i) log(1 - sigmoid(s_i)))

    A label between 0 and 1 is a probability, such as a graded similarity. The loss is then smallest, but above 0,
    where the sigmoid equals the label.

    Shape:
        scores: (rows, 1), before the sigmoid. labels: (rows,), 0 to 1. Output: scalar.

    Raises:
        ValueError: If a label is not between 0 and 1, or a row has several scores.

    References:
        Good, 1952, Rational decisions (the logarithmic score of a probability).
        https://doi.org/10.1111/j.2517-6161.1952.tb00104.x

    Example:
        >>> import torch
        >>> from sbert.losses import BinaryCrossEntropyLoss
        >>> BinaryCrossEntropyLoss()(torch.zeros(2, 1), labels=torch.tensor([1.0, 0.0])).round(decimals=4)
        tensor(0.6931)
    """

    def forward(self, scores: Tensor, *, labels: Tensor) -> Tensor:
        scores, labels = self._check_scores(scores, labels, 1)
        return F.binary_cross_entropy_with_logits(scores.squeeze(1), labels.to(scores.dtype))

    def check_labels(self, labels: Tensor) -> None:
        """Raise unless every label is between 0 and 1."""
        check_between(self, labels, 0, 1, "; divide scores of 0 to 5 by 5, or read them with scale=(0, 5)")


class SquaredErrorLoss(_ScoreLoss):
    """Mean squared difference between the score and the label.

        loss = mean_i (f(s_i) - y_i)^2

    Without an activation f, the raw score is fitted to the labels. ``predict`` of a model that applies a sigmoid
    would then not return estimates of the labels: pass the model's own activation.

    Args:
        activation: f; None for the raw score.

    Shape:
        scores: (rows, 1). labels: (rows,), any finite numbers; 0 to 1 if f is a sigmoid. Output: scalar.

    Raises:
        ValueError: If a label is not finite or outside the range of a sigmoid f, or a row has several scores.

    References:
        Reimers and Gurevych, 2019, section 4.2 (BERT with a regression output on STSb).
        https://arxiv.org/abs/1908.10084

    Example:
        >>> import torch
        >>> from torch import nn
        >>> from sbert.losses import SquaredErrorLoss
        >>> SquaredErrorLoss()(torch.tensor([[1.0], [3.0]]), labels=torch.tensor([1.0, 1.0]))
        tensor(2.)
        >>> SquaredErrorLoss(nn.Sigmoid())(torch.zeros(1, 1), labels=torch.tensor([1.0]))
        tensor(0.2500)
    """

    def __init__(self, activation: Callable[[Tensor], Tensor] | None = None) -> None:
        super().__init__()
        self.activation: Callable[[Tensor], Tensor] | None = activation

    def forward(self, scores: Tensor, *, labels: Tensor) -> Tensor:
        scores, labels = self._check_scores(scores, labels, 1)
        predicted = scores if self.activation is None else self.activation(scores)
        return F.mse_loss(predicted.squeeze(1), labels.to(scores.dtype))

    def check_labels(self, labels: Tensor) -> None:
        """Raise unless every label is finite and, with a sigmoid, between 0 and 1."""
        super().check_labels(labels)
        if isinstance(self.activation, nn.Sigmoid):
            remedy = "divide scores of 0 to 5 by 5, or give the model activation=nn.Identity()"
            check_between(self, labels, 0, 1, f" with a sigmoid; {remedy}")


class CrossEntropyLoss(_ScoreLoss):
    """Cross-entropy between the class and the softmax of the scores.

        loss = mean_i -log( exp(s_i,y_i) / sum_k exp(s_i,k) )

    Args:
        classes: Number of classes; labels are 0 to classes - 1.

    Shape:
        scores: (rows, classes), before the softmax. labels: (rows,), integers. Output: scalar.

    Raises:
        ValueError: If there are fewer than two classes, a label is out of range, or a row does not have one score
            per class.
        TypeError: If the labels are not integers.

    References:
        Devlin et al., 2019, section 4.1 (sentence pairs of GLUE). https://arxiv.org/abs/1810.04805

    Example:
        >>> import torch
        >>> from sbert.losses import CrossEntropyLoss
        >>> CrossEntropyLoss(classes=2)(torch.zeros(3, 2), labels=torch.tensor([0, 1, 1])).round(decimals=4)
        tensor(0.6931)
    """

    labels_are_classes = True

    def __init__(self, classes: int) -> None:
        super().__init__()
        if isinstance(classes, bool) or not isinstance(classes, int) or classes < 2:
            raise ValueError(f"classes={classes!r} leaves nothing to classify; pass 2 or more")
        self.classes = classes

    def forward(self, scores: Tensor, *, labels: Tensor) -> Tensor:
        scores, labels = self._check_scores(scores, labels, self.classes)
        return F.cross_entropy(scores, labels.long())

    def check_labels(self, labels: Tensor) -> None:
        """Raise unless every label is an integer from 0 to classes - 1."""
        check_class(self, labels, self.classes)


def default_score_loss(model: Any) -> Loss:
    """The loss of ``CrossEncoder.fit`` without another one, for the model's number of scores."""
    return CrossEntropyLoss(model.classes) if model.classes > 1 else BinaryCrossEntropyLoss()
