"""Losses of pairs that are alike or different: ContrastiveLoss, OnlineContrastiveLoss."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sbert.losses.checks import Data, check_binary, check_margin, check_rows, check_several, same_shape, without_model
from sbert.losses.distances import check_distance, pairwise_distance


@without_model
class ContrastiveLoss(nn.Module):
    """Draws pairs that are alike together, and pushes different ones apart as far as the margin.

        loss = mean_i ( labels_i d_i^2 + (1 - labels_i) max(margin - d_i, 0)^2 ) / 2,  d_i = d(u_i, v_i)

    Args:
        distance: ``"cosine"`` (1 - cos), ``"euclidean"`` or ``"manhattan"``.
        margin: How far apart different pairs should be, in units of the distance.

    Shape:
        first, second: (rows, dim). labels: (rows,), 1 for alike, 0 for different. Output: scalar.

    Raises:
        ValueError: If a setting is unknown or negative, a label is not 0 or 1, or the shapes do not fit.

    References:
        Hadsell et al., 2006, equation 4, where the labels are the other way round.
        https://doi.org/10.1109/CVPR.2006.100

    Example:
        >>> ContrastiveLoss()(torch.eye(2), torch.eye(2), labels=torch.tensor([1, 0]))
        tensor(0.0625)
    """

    def __init__(self, distance: str = "cosine", margin: float = 0.5) -> None:
        super().__init__()
        self.distance = check_distance(distance)
        self.margin = check_margin(margin)

    def forward(self, first: Tensor, second: Tensor, *, labels: Tensor) -> Tensor:
        first, second = same_shape(self, first, second)
        alike = check_rows(self, labels, (len(first),)).to(first.dtype)
        distances = pairwise_distance(first, second, self.distance)  # (rows,)
        return 0.5 * (alike * distances**2 + (1 - alike) * F.relu(self.margin - distances) ** 2).mean()

    def check_labels(self, labels: Tensor) -> None:
        """Raise unless every label is 0 or 1."""
        check_binary(self, labels)

    def extra_repr(self) -> str:
        return f"distance={self.distance!r}, margin={self.margin}"


def _hard_pairs(distances: Tensor, alike: Tensor) -> Tensor:
    """(rows,), boolean: alike pairs farther apart than the nearest different pair, and the reverse.

    Where a batch holds one kind only, its mean distance stands for the other kind. Masks in place of indexing,
    which would wait for a GPU to count.
    """
    nearest = torch.where(alike, torch.inf, distances).min()
    farthest = torch.where(alike, distances, -torch.inf).max()
    mean = distances.mean()
    nearest = torch.where(alike.all(), mean, nearest)
    farthest = torch.where(alike.any(), farthest, mean)
    return torch.where(alike, distances > nearest, distances < farthest)


@without_model
class OnlineContrastiveLoss(nn.Module):
    """ContrastiveLoss of the batch's hard pairs only, summed and without the half.

        loss = sum over hard i of labels_i d_i^2 + (1 - labels_i) max(margin - d_i, 0)^2

    Alike pairs are hard if they are farther apart than the nearest different pair, different pairs if they are
    nearer than the farthest alike pair; in a batch of one kind, those beyond its mean distance. Where no pair is
    hard, the loss is 0. It is a sum, as it became known: it grows with the number of hard pairs.

    Args:
        distance: ``"cosine"`` (1 - cos), ``"euclidean"`` or ``"manhattan"``.
        margin: How far apart different pairs should be, in units of the distance.

    Shape:
        first, second: (rows, dim). labels: (rows,), 1 for alike, 0 for different. Output: scalar.

    Raises:
        ValueError: If a setting is unknown or negative, a label is not 0 or 1, or the shapes do not fit.

    References:
        Hadsell et al., 2006, equation 4. https://doi.org/10.1109/CVPR.2006.100
        Reimers and Gurevych's program, where the choice of pairs comes from. https://sbert.net

    Example:
        >>> second = torch.tensor([[0.0, 1.0], [0.0, 1.0]])
        >>> OnlineContrastiveLoss()(torch.eye(2), second, labels=torch.tensor([1, 0]))
        tensor(1.2500)
    """

    def __init__(self, distance: str = "cosine", margin: float = 0.5) -> None:
        super().__init__()
        self.distance = check_distance(distance)
        self.margin = check_margin(margin)

    def forward(self, first: Tensor, second: Tensor, *, labels: Tensor) -> Tensor:
        first, second = same_shape(self, first, second)
        alike = check_rows(self, labels, (len(first),)) == 1
        distances = pairwise_distance(first, second, self.distance)  # (rows,)
        losses = torch.where(alike, distances, F.relu(self.margin - distances)) ** 2
        return torch.where(_hard_pairs(distances.detach(), alike), losses, 0).sum()

    def check_labels(self, labels: Tensor) -> None:
        """Raise unless every label is 0 or 1."""
        check_binary(self, labels)

    def check_data(self, data: Data) -> None:
        """Raise unless there are pairs of which one is harder than another."""
        check_several(self, data)

    def extra_repr(self) -> str:
        return f"distance={self.distance!r}, margin={self.margin}"
