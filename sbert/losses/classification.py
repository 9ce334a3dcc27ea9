"""SoftmaxLoss: a linear classifier over the vectors of two sentences, as used for NLI."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sbert.losses.checks import check_class, check_columns, check_dim, check_labelled, project
from sbert.losses.module import LossModule

FEATURES = ("u", "v", "|u-v|", "u*v")


class SoftmaxLoss(LossModule):
    """Cross-entropy of a linear classifier over the concatenated vectors of two sentences.

        loss = mean_i -log softmax(W [u_i; v_i; |u_i - v_i|] + b)[labels_i]

    Args:
        dim: Dimension of the vectors.
        classes: Number of classes; labels are 0 to classes - 1.
        concatenation: The classifier's input features, in this order: any of ``"u"``, ``"v"``, ``"|u-v|"``, ``"u*v"``.

    Shape:
        first, second: (rows, dim). labels: (rows,), integers. Output: scalar.

    Raises:
        ValueError: If a setting, a label or the dimension of the vectors is invalid.
        TypeError: If the labels are not integers.

    References:
        Reimers and Gurevych, 2019, section 3 and table 6. https://arxiv.org/abs/1908.10084
        Conneau et al., 2017, section 3.1. https://arxiv.org/abs/1705.02364

    Example:
        >>> loss = SoftmaxLoss(dim=2, classes=3)
        >>> loss(torch.eye(2), torch.ones(2, 2), labels=torch.tensor([0, 2])).shape
        torch.Size([])
    """

    labels_are_classes = True
    needs_different_labels = "the same class would be right for all texts"

    def __init__(self, dim: int, classes: int, concatenation: tuple[str, ...] = ("u", "v", "|u-v|")) -> None:
        super().__init__()
        if dim < 1 or classes < 2:
            raise ValueError(f"dim={dim}, classes={classes} leave nothing to classify; pass dim >= 1 and classes >= 2")
        concatenation = tuple(concatenation)
        if not concatenation or len(set(concatenation)) < len(concatenation) or set(concatenation) - set(FEATURES):
            raise ValueError(f"concatenation={concatenation}; pass a tuple of one or more of {FEATURES}, each once")
        self.dim = dim
        self.classes = classes
        self.concatenation: tuple[str, ...] = concatenation
        self.classifier: nn.Linear = nn.Linear(len(concatenation) * dim, classes)

    def forward(self, first: Tensor, second: Tensor, *, labels: Tensor) -> Tensor:
        first, second, labels = check_labelled(self, first, second, labels=labels)
        return F.cross_entropy(self.scores(first, second), labels.long())

    def scores(self, first: Tensor, second: Tensor) -> Tensor:
        """The classifier's scores before the softmax (logits).

        Shape:
            first, second: (rows, dim). Output: (rows, classes).

        Raises:
            ValueError: If the dimension of the vectors is not ``dim``.

        Example:
            >>> SoftmaxLoss(dim=2, classes=3).scores(torch.eye(2), torch.eye(2)).shape
            torch.Size([2, 3])
        """
        first, second = check_columns(self, first, second)
        check_dim(self, first, self.dim)
        known = dict(zip(FEATURES, (first, second, (first - second).abs(), first * second), strict=True))
        features = torch.cat([known[name] for name in self.concatenation], 1)  # (rows, blocks * dim)
        return project(features, self.classifier)  # (rows, classes)

    def check_labels(self, labels: Tensor) -> None:
        """Raise unless every label is an integer from 0 to classes - 1."""
        check_class(self, labels, self.classes)
