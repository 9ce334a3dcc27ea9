"""Losses of two columns: graded labels, classes, and vectors that spread out like random directions."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sbert.functional import cos_sim, directions, pairwise_cosines
from sbert.losses.checks import (
    check_between,
    check_class,
    check_columns,
    check_dim,
    check_labelled,
    check_temperature,
    project,
)
from sbert.losses.module import LossModule


class CosineSimilarityLoss(LossModule):
    """Mean squared difference between the cosine and the label.

        loss = mean_i (cos(u_i, v_i) - labels_i)^2

    Shape:
        first, second: (rows, dim). labels: (rows,), -1 to 1. Output: scalar.

    Raises:
        ValueError: If a label is not between -1 and 1, or the shapes do not match.

    References:
        Reimers and Gurevych, 2019, section 3, regression objective. https://arxiv.org/abs/1908.10084

    Example:
        >>> import torch
        >>> from sbert.losses import CosineSimilarityLoss
        >>> CosineSimilarityLoss()(torch.eye(2), torch.eye(2), labels=torch.tensor([1.0, 0.5]))
        tensor(0.1250)
    """

    def forward(self, first: Tensor, second: Tensor, *, labels: Tensor) -> Tensor:
        first, second, labels = check_labelled(self, first, second, labels=labels)
        return F.mse_loss(pairwise_cosines(first, second), labels.to(first.dtype))

    def check_labels(self, labels: Tensor) -> None:
        """Raise unless every label is between -1 and 1."""
        check_between(self, labels, -1, 1, "; divide scores of 0 to 5 by 5, or read them with scale=(0, 5)")


def _order_loss(scores: Tensor, labels: Tensor) -> Tensor:
    """log(1 + sum over all i, j with labels_i > labels_j of exp(scores_j - scores_i)).

    With the rows sorted by label, the sum over i for each j is a suffix of one cumulative sum. So memory grows
    linearly with the rows, not with their square.

    Shape:
        scores, labels: (rows,). Output: scalar.
    """
    labels, order = (labels.int() if labels.dtype == torch.bool else labels).sort()
    scores = scores[order]
    suffixes = torch.logcumsumexp(-scores.flip(0), 0).flip(0)  # (rows,): log of the sum over this row and all later
    suffixes = torch.cat([suffixes, suffixes.new_full((1,), -torch.inf)])  # (rows + 1,): the last sum is empty
    greater = torch.searchsorted(labels, labels, right=True)  # (rows,): the first row with a greater label
    return torch.logsumexp(torch.cat([scores.new_zeros(1), scores + suffixes[greater]]), 0)


class _OrderLoss(LossModule):
    """What CoSENTLoss and AnglELoss share; they differ in the similarity."""

    least_rows, needs_different_labels = 2, "only the order of labels matters"

    def __init__(self, temperature: float = 0.05) -> None:
        super().__init__()
        self.temperature: float = check_temperature(temperature)


class CoSENTLoss(_OrderLoss):
    """Pairs with a greater label should have a greater cosine.

        loss = log(1 + sum over labels_i > labels_j of exp((cos(u_j, v_j) - cos(u_i, v_i)) / t))

    Only the order of the labels matters. If all labels are equal, as in a batch of one row, the loss is 0.

    Args:
        temperature: t, divides the cosine. Smaller values give the worst pairs more weight.

    Shape:
        first, second: (rows, dim). labels: (rows,), any finite numbers. Output: scalar.

    Raises:
        ValueError: If ``temperature`` is not positive, a label is not finite, or the shapes do not match.

    References:
        Su, 2022. https://kexue.fm/archives/8847

    Example:
        >>> import torch
        >>> from sbert.losses import CoSENTLoss
        >>> second = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
        >>> CoSENTLoss(temperature=1.0)(torch.eye(2), second, labels=torch.tensor([5.0, 2.0])).round(decimals=4)
        tensor(0.3133)
    """

    def forward(self, first: Tensor, second: Tensor, *, labels: Tensor) -> Tensor:
        first, second, labels = check_labelled(self, first, second, labels=labels)
        return _order_loss(pairwise_cosines(first, second) / self.temperature, labels)


def _angle_similarity(first: Tensor, second: Tensor) -> Tensor:
    """|Re z + Im z| for z = sum_k u_k conj(v_k) of the normalized vectors, read as complex numbers.

    The first half of a vector has the real parts, the second half the imaginary parts; Re z is then the cosine. If
    dim is odd, the last imaginary part is 0.

    Shape:
        first, second: (rows, dim). Output: (rows,).
    """
    odd = first.shape[1] % 2
    a, b = directions(F.pad(first, (0, odd))).chunk(2, 1)  # each (rows, dim / 2)
    c, d = directions(F.pad(second, (0, odd))).chunk(2, 1)
    return (a * c + b * d + b * c - a * d).sum(1).abs()


class AnglELoss(_OrderLoss):
    """CoSENTLoss with a similarity whose gradient does not vanish where the cosine is near 1 or -1.

        loss = log(1 + sum over labels_i > labels_j of exp((s_j - s_i) / t)),  s = |Re z + Im z|

    with z = sum_k u_k conj(v_k) / (|u| |v|), where u_k is the complex number of dimensions k and k + dim / 2.

    The paper calls s an angle and has the opposite signs. The code of its authors has the signs above, which make s a
    similarity, and so does sentence-transformers. The paper adds this loss to CoSENTLoss and a ranking loss, which is
    ``WeightedSum((AnglELoss(), 1.0), (CoSENTLoss(), 1.0), (MultipleNegativesRankingLoss(), 1.0))``. The ranking loss
    treats every row as a pair of similar texts, whatever its label says: leave out the rows that are not.

    Args:
        temperature: t, divides s. Smaller values give the worst pairs more weight.

    Shape:
        first, second: (rows, dim). labels: (rows,), any finite numbers. Output: scalar.

    Raises:
        ValueError: If ``temperature`` is not positive, a label is not finite, or the shapes do not match.

    References:
        Li and Li, 2024, angle objective. https://arxiv.org/abs/2309.12871

    Example:
        >>> import torch
        >>> from sbert.losses import AnglELoss
        >>> second = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
        >>> AnglELoss(temperature=1.0)(torch.eye(2), second, labels=torch.tensor([5.0, 2.0])).round(decimals=4)
        tensor(0.6931)
    """

    def forward(self, first: Tensor, second: Tensor, *, labels: Tensor) -> Tensor:
        first, second, labels = check_labelled(self, first, second, labels=labels)
        return _order_loss(_angle_similarity(first, second) / self.temperature, labels)


FEATURES = ("u", "v", "|u-v|", "u*v", "u-v")


class SoftmaxLoss(LossModule):
    """Cross-entropy of a linear classifier over the concatenated vectors of two sentences.

        loss = mean_i -log softmax(W [u_i; v_i; |u_i - v_i|] + b)[labels_i]

    Class weights and label smoothing are left out: a subclass has them if its ``forward(first, second, *, labels)``
    returns ``F.cross_entropy(self.scores(first, second), labels, weight=weights, label_smoothing=0.1)``.

    Args:
        dim: Dimension of the vectors.
        classes: Number of classes; labels are 0 to classes - 1.
        concatenation: The classifier's input features, in this order: any of ``"u"``, ``"v"``, ``"|u-v|"``, ``"u*v"``,
            ``"u-v"``.

    Shape:
        first, second: (rows, dim). labels: (rows,), integers. Output: scalar.

    Raises:
        ValueError: If a setting, a label or the dimension of the vectors is invalid.
        TypeError: If the labels are not integers.

    References:
        Reimers and Gurevych, 2019, section 3 and table 6. https://arxiv.org/abs/1908.10084
        Conneau et al., 2017, section 3.1. https://arxiv.org/abs/1705.02364

    Example:
        >>> import torch
        >>> from sbert.losses import SoftmaxLoss
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
            >>> import torch
            >>> from sbert.losses import SoftmaxLoss
            >>> SoftmaxLoss(dim=2, classes=3).scores(torch.eye(2), torch.eye(2)).shape
            torch.Size([2, 3])
        """
        first, second = check_columns(self, first, second)
        check_dim(self, first, self.dim)
        difference = first - second
        by_name = dict(zip(FEATURES, (first, second, difference.abs(), first * second, difference), strict=True))
        features = torch.cat([by_name[name] for name in self.concatenation], 1)  # (rows, blocks * dim)
        return project(features, self.classifier)  # (rows, classes)

    def check_labels(self, labels: Tensor) -> None:
        """Raise unless every label is an integer from 0 to classes - 1."""
        check_class(self, labels, self.classes)


class GlobalOrthogonalRegularizationLoss(LossModule):
    """The cosines of different rows should have the mean and the second moment of random directions, 0 and 1 / dim.

        loss = mean over columns of  w_1 M_1^2 + w_2 max(M_2 - 1 / dim, 0)

    M_1 is the mean of the cosines of different rows of a column, M_2 the mean of their squares. The loss knows nothing
    of meaning, so add it to another: ``WeightedSum((MultipleNegativesRankingLoss(), 1.0), (this, 0.1))``. For a single
    row, it is 0.

    Args:
        mean_weight: w_1.
        second_moment_weight: w_2.

    Shape:
        Each column: (rows, dim). Output: scalar.

    Raises:
        ValueError: If the shapes do not match.

    References:
        Zhang et al., 2017 (global orthogonal regularization). https://arxiv.org/abs/1708.06320

    Example:
        >>> import torch
        >>> from sbert.losses import GlobalOrthogonalRegularizationLoss
        >>> GlobalOrthogonalRegularizationLoss()(torch.ones(2, 4))
        tensor(1.7500)
    """

    least_rows = 2

    def __init__(self, mean_weight: float = 1.0, second_moment_weight: float = 1.0) -> None:
        super().__init__()
        self.mean_weight: float = mean_weight
        self.second_moment_weight: float = second_moment_weight

    def forward(self, *sentences: Tensor) -> Tensor:
        return torch.stack([self._of_column(column) for column in check_columns(self, *sentences)]).mean()

    def _of_column(self, column: Tensor) -> Tensor:
        rows, dim = column.shape
        diagonal = torch.eye(rows, dtype=torch.bool, device=column.device)
        cosines = cos_sim(column, column).masked_fill(diagonal, 0)
        pairs = max(rows * (rows - 1), 1)
        second_moment = F.relu(cosines.square().sum() / pairs - 1 / dim)
        return self.mean_weight * (cosines.sum() / pairs).square() + self.second_moment_weight * second_moment
