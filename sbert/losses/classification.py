"""SoftmaxLoss: the classifier over two sentences, as trained on NLI."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sbert.losses.checks import Data, check_differ, check_rows, check_values, check_whole, same_shape, without_model

PIECES = ("u", "v", "|u-v|", "u*v")


def _piece(name: str, first: Tensor, second: Tensor) -> Tensor:
    """(rows, dim): one part of what the classifier sees."""
    if name == "|u-v|":
        return (first - second).abs()
    if name == "u*v":
        return first * second
    return first if name == "u" else second


@without_model
class SoftmaxLoss(nn.Module):
    """Cross-entropy of a linear classifier over two sentences' vectors, set side by side.

        loss = mean_i -log softmax(W [u_i; v_i; |u_i - v_i|] + b)[labels_i]

    Args:
        dim: Width of the vectors.
        classes: Number of classes; labels are 0 to classes - 1.
        concatenation: What the classifier sees, in this order: any of ``"u"``, ``"v"``, ``"|u-v|"``, ``"u*v"``.

    Shape:
        first, second: (rows, dim). labels: (rows,), whole numbers. Output: scalar.

    Raises:
        ValueError: If a setting, a label or the vectors' width does not fit.
        TypeError: If the labels are not whole numbers.

    References:
        Reimers and Gurevych, 2019, section 3 and table 6. https://arxiv.org/abs/1908.10084
        Conneau et al., 2017, section 3.1. https://arxiv.org/abs/1705.02364

    Example:
        >>> loss = SoftmaxLoss(dim=2, classes=3)
        >>> loss(torch.eye(2), torch.ones(2, 2), labels=torch.tensor([0, 2])).shape
        torch.Size([])
    """

    def __init__(self, dim: int, classes: int, concatenation: tuple[str, ...] = ("u", "v", "|u-v|")) -> None:
        super().__init__()
        if dim < 1 or classes < 2:
            raise ValueError(f"dim={dim}, classes={classes} leave nothing to classify; pass dim >= 1 and classes >= 2")
        concatenation = tuple(concatenation)
        if not concatenation or len(set(concatenation)) < len(concatenation) or set(concatenation) - set(PIECES):
            raise ValueError(f"concatenation={concatenation}; pass a tuple of one or more of {PIECES}, each once")
        self.dim = dim
        self.classes = classes
        self.concatenation = concatenation
        self.classifier = nn.Linear(len(concatenation) * dim, classes)

    def forward(self, first: Tensor, second: Tensor, *, labels: Tensor) -> Tensor:
        first, second = same_shape(self, first, second)
        labels = check_rows(self, labels, (len(first),))
        return F.cross_entropy(self.scores(first, second), labels.long())

    def scores(self, first: Tensor, second: Tensor) -> Tensor:
        """The classifier's scores before softmax, as evaluation needs them.

        Shape:
            first, second: (rows, dim). Output: (rows, classes).

        Raises:
            ValueError: If the vectors have another width than ``dim``.

        Example:
            >>> SoftmaxLoss(dim=2, classes=3).scores(torch.eye(2), torch.eye(2)).shape
            torch.Size([2, 3])
        """
        first, second = same_shape(self, first, second)
        if first.shape[1] != self.dim:
            raise ValueError(
                f"vectors have dim {first.shape[1]}, but SoftmaxLoss was made with dim={self.dim};"
                f" pass dim={first.shape[1]}. Its classifier has one width and cannot see truncated vectors, too"
            )
        features = torch.cat([_piece(name, first, second) for name in self.concatenation], 1)
        weight, bias = self.classifier.weight, self.classifier.bias
        # The wider of both, so that neither float64 vectors nor float64 weights lose digits.
        dtype = torch.promote_types(features.dtype, weight.dtype)
        return F.linear(features.to(dtype), weight.to(dtype), bias.to(dtype))  # (rows, classes)

    def check_labels(self, labels: Tensor) -> None:
        """Raise unless every label is a whole number from 0 to classes - 1."""
        check_whole(self, labels, "number the classes from 0")
        remedy = "leave out rows without a gold label (-1), or pass the number of classes there are"
        good = (labels >= 0) & (labels < self.classes)
        check_values(self, labels, good, f"0 to {self.classes - 1}; {remedy}")

    def check_data(self, data: Data) -> None:
        """Raise unless labels differ."""
        check_differ(self, data, "one class would do for all texts")

    def extra_repr(self) -> str:
        return f"dim={self.dim}, classes={self.classes}, concatenation={self.concatenation}"
