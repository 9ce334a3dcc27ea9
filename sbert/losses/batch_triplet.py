"""Triplets found in the batch by its labels: BatchAllTripletLoss, BatchHardTripletLoss, BatchSemiHardTripletLoss."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sbert.losses.checks import (
    Data,
    check_differ,
    check_margin,
    check_rows,
    check_several,
    check_whole,
    same_shape,
    without_model,
)
from sbert.losses.distances import check_distance, distance_matrix


def _check_groups(loss: nn.Module, data: Data) -> None:
    """Raise unless rows of the data make a triplet: two of one label and one of another."""
    check_several(loss, data, 3)
    check_differ(loss, data, "a negative has another label than the anchor")
    if data.labels is not None and int(torch.unique(data.labels, return_counts=True)[1].max()) < 2:
        raise ValueError(
            f"the {len(data.labels)} labels are all different, which teaches {type(loss).__name__} nothing: a positive"
            " has the label of the anchor; add rows of the same labels"
        )


def _alike(labels: Tensor) -> Tensor:
    """(rows, rows), boolean: whether two rows have one label."""
    return labels[:, None] == labels


def _pairs(distances: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Every anchor with every other row of its label.

    Returns:
        The distance of each pair, (pairs, 1); the distances of its anchor from every row, (pairs, rows); and whether
        that row has another label, (pairs, rows).
    """
    alike = _alike(labels)
    anchors, positives = alike.clone().fill_diagonal_(False).nonzero(as_tuple=True)
    return distances[anchors, positives][:, None], distances[anchors], ~alike[anchors]


@without_model
class BatchAllTripletLoss(nn.Module):
    """TripletLoss of all triplets in the batch, averaged over those that are not yet fulfilled.

        loss = mean over a, p, n with l > 0 of l,  l = d(a, p) - d(a, n) + margin

    where p has the label of a and n has another. Where all are fulfilled, or there are none, the loss is 0.

    Args:
        distance: ``"euclidean"``, ``"cosine"`` (1 - cos) or ``"manhattan"``.
        margin: In units of the distance.

    Shape:
        sentence: (rows, dim). labels: (rows,), whole numbers. Output: scalar. Memory: pairs of one label x rows.

    Raises:
        ValueError: If a setting is unknown or negative, or the shapes do not fit.
        TypeError: If the labels are not whole numbers.

    References:
        Hermans et al., 2017, section 2, L_BA with the mean over non-zero terms. https://arxiv.org/abs/1703.07737

    Example:
        >>> vectors = torch.tensor([[0.0], [1.0], [3.0]])
        >>> BatchAllTripletLoss(margin=1.0)(vectors, labels=torch.tensor([0, 1, 0]))
        tensor(2.5000)
    """

    def __init__(self, distance: str = "euclidean", margin: float = 5.0) -> None:
        super().__init__()
        self.distance = check_distance(distance)
        self.margin = check_margin(margin)

    def forward(self, sentence: Tensor, *, labels: Tensor) -> Tensor:
        (sentence,) = same_shape(self, sentence)
        labels = check_rows(self, labels, (len(sentence),))
        near, far, different = _pairs(distance_matrix(sentence, self.distance), labels)
        losses = torch.where(different, F.relu(near - far + self.margin), 0)  # (pairs, rows)
        return losses.sum() / (losses > 0).sum().clamp(min=1)

    def check_labels(self, labels: Tensor) -> None:
        """Raise unless the labels are whole numbers."""
        check_whole(self, labels, "number the groups")

    def check_data(self, data: Data) -> None:
        """Raise unless one label stands twice, and not all are the same."""
        _check_groups(self, data)

    def extra_repr(self) -> str:
        return f"distance={self.distance!r}, margin={self.margin}"


@without_model
class BatchHardTripletLoss(nn.Module):
    """TripletLoss of each row with its farthest row of the same label and its nearest row of another.

        loss = mean_a max( max_p d(a, p) - min_n d(a, n) + margin, 0 )

    The mean is over the rows that have a positive; where none has, or all labels are the same, the loss is 0.
    sentence-transformers counts the others, too, as if they were their own positive at distance 0; so a batch in which
    a label stands alone gives another value here.

    Args:
        distance: ``"euclidean"``, ``"cosine"`` (1 - cos) or ``"manhattan"``.
        margin: In units of the distance. None is the soft margin: log(1 + exp(x)) in place of max(x + margin, 0).

    Shape:
        sentence: (rows, dim). labels: (rows,), whole numbers. Output: scalar.

    Raises:
        ValueError: If a setting is unknown or negative, or the shapes do not fit.
        TypeError: If the labels are not whole numbers.

    References:
        Hermans et al., 2017, section 2, L_BH and the soft margin. https://arxiv.org/abs/1703.07737

    Example:
        >>> vectors = torch.tensor([[0.0], [1.0], [3.0]])
        >>> BatchHardTripletLoss(margin=1.0)(vectors, labels=torch.tensor([0, 1, 0]))
        tensor(2.5000)
    """

    def __init__(self, distance: str = "euclidean", margin: float | None = 5.0) -> None:
        super().__init__()
        self.distance = check_distance(distance)
        self.margin = None if margin is None else check_margin(margin)

    def forward(self, sentence: Tensor, *, labels: Tensor) -> Tensor:
        (sentence,) = same_shape(self, sentence)
        labels = check_rows(self, labels, (len(sentence),))
        distances, alike = distance_matrix(sentence, self.distance), _alike(labels)
        others = alike.clone().fill_diagonal_(False)
        # The row itself is at distance 0, so a row without a positive has a finite value to leave out.
        near = torch.where(others, distances, 0).max(1).values  # (rows,)
        far = torch.where(alike, torch.inf, distances).min(1).values  # (rows,)
        losses = F.softplus(near - far) if self.margin is None else F.relu(near - far + self.margin)
        counted = others.any(1)
        return torch.where(counted, losses, 0).sum() / counted.sum().clamp(min=1)

    def check_labels(self, labels: Tensor) -> None:
        """Raise unless the labels are whole numbers."""
        check_whole(self, labels, "number the groups")

    def check_data(self, data: Data) -> None:
        """Raise unless one label stands twice, and not all are the same."""
        _check_groups(self, data)

    def extra_repr(self) -> str:
        return f"distance={self.distance!r}, margin={self.margin}"


@without_model
class BatchSemiHardTripletLoss(nn.Module):
    """TripletLoss of each pair of one label with the nearest negative that is farther than the positive.

        loss = mean over a, p of max(d(a, p) - d(a, n) + margin, 0),  n = argmin over d(a, n) > d(a, p) of d(a, n)

    Where no negative is farther than the positive, n is the farthest negative. Where there is no pair of one label, or
    no negative, the loss is 0.

    Args:
        distance: ``"euclidean"``, ``"cosine"`` (1 - cos) or ``"manhattan"``.
        margin: In units of the distance.

    Shape:
        sentence: (rows, dim). labels: (rows,), whole numbers. Output: scalar. Memory: pairs of one label x rows.

    Raises:
        ValueError: If a setting is unknown or negative, or the shapes do not fit.
        TypeError: If the labels are not whole numbers.

    References:
        Schroff et al., 2015, section 3.2. https://arxiv.org/abs/1503.03832

    Example:
        >>> vectors = torch.tensor([[0.0], [1.0], [3.0]])
        >>> BatchSemiHardTripletLoss(margin=1.0)(vectors, labels=torch.tensor([0, 1, 0]))
        tensor(2.5000)
    """

    def __init__(self, distance: str = "euclidean", margin: float = 5.0) -> None:
        super().__init__()
        self.distance = check_distance(distance)
        self.margin = check_margin(margin)

    def forward(self, sentence: Tensor, *, labels: Tensor) -> Tensor:
        (sentence,) = same_shape(self, sentence)
        labels = check_rows(self, labels, (len(sentence),))
        near, distances, different = _pairs(distance_matrix(sentence, self.distance), labels)
        farther = torch.where(different & (distances > near), distances, torch.inf).min(1, keepdim=True).values
        farthest = torch.where(different, distances, -torch.inf).max(1, keepdim=True).values  # (pairs, 1)
        far = torch.where(torch.isfinite(farther), farther, farthest)
        losses = torch.where(different.any(1, keepdim=True), F.relu(near - far + self.margin), 0)  # (pairs, 1)
        return losses.sum() / max(1, len(losses))

    def check_labels(self, labels: Tensor) -> None:
        """Raise unless the labels are whole numbers."""
        check_whole(self, labels, "number the groups")

    def check_data(self, data: Data) -> None:
        """Raise unless one label stands twice, and not all are the same."""
        _check_groups(self, data)

    def extra_repr(self) -> str:
        return f"distance={self.distance!r}, margin={self.margin}"
