"""Losses for similar and dissimilar pairs: ContrastiveLoss, OnlineContrastiveLoss."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from sbert.losses.checks import check_labelled, check_margin, check_values
from sbert.losses.distances import check_distance, pairwise_distance
from sbert.losses.module import LossModule


class ContrastiveLoss(LossModule):
    """Pulls similar pairs together and pushes dissimilar pairs apart, up to the margin.

        loss = mean_i ( labels_i d_i^2 + (1 - labels_i) max(margin - d_i, 0)^2 ) / 2,  d_i = d(u_i, v_i)

    Args:
        distance: ``"cosine"`` (1 - cos), ``"euclidean"`` or ``"manhattan"``.
        margin: Distance that dissimilar pairs should have at least.

    Shape:
        first, second: (rows, dim). labels: (rows,), 1 for similar, 0 for dissimilar. Output: scalar.

    Raises:
        ValueError: If a setting is unknown or negative, a label is not 0 or 1, or the shapes do not match.

    References:
        Hadsell et al., 2006, equation 4, where 0 means similar. https://doi.org/10.1109/CVPR.2006.100

    Example:
        >>> ContrastiveLoss()(torch.eye(2), torch.eye(2), labels=torch.tensor([1, 0]))
        tensor(0.0625)
    """

    def __init__(self, distance: str = "cosine", margin: float = 0.5) -> None:
        super().__init__()
        self.distance: str = check_distance(distance)
        self.margin: float = check_margin(margin)

    def forward(self, first: Tensor, second: Tensor, *, labels: Tensor) -> Tensor:
        first, second, labels = check_labelled(self, first, second, labels=labels)
        similar = labels.to(first.dtype)
        distances = pairwise_distance(first, second, self.distance)  # (rows,)
        return 0.5 * (similar * distances**2 + (1 - similar) * F.relu(self.margin - distances) ** 2).mean()

    def check_labels(self, labels: Tensor) -> None:
        """Raise unless every label is 0 or 1."""
        expected = "0 (dissimilar) or 1 (similar); turn graded scores into 0 and 1 with a threshold"
        check_values(self, labels, (labels == 0) | (labels == 1), expected)


def _hard_pairs(distances: Tensor, similar: Tensor) -> Tensor:
    """Mask (rows,): similar pairs farther apart than the nearest dissimilar pair, and the reverse.

    If a batch has pairs of one kind only, they are compared with their mean distance. Masks are used instead of
    indexing, which would wait for a GPU.
    """
    nearest = torch.where(similar, torch.inf, distances).min()
    farthest = torch.where(similar, distances, -torch.inf).max()
    mean = distances.mean()
    nearest = torch.where(similar.all(), mean, nearest)
    farthest = torch.where(similar.any(), farthest, mean)
    return torch.where(similar, distances > nearest, distances < farthest)


class OnlineContrastiveLoss(ContrastiveLoss):
    """ContrastiveLoss of the hard pairs of the batch only: a sum, without the factor 1/2.

        loss = sum over hard i of labels_i d_i^2 + (1 - labels_i) max(margin - d_i, 0)^2

    A similar pair is hard if it is farther apart than the nearest dissimilar pair; a dissimilar pair is hard if it is
    nearer than the farthest similar pair. If a batch has pairs of one kind only, the hard ones are those beyond their
    mean distance. The loss is 0 if no pair is hard, and grows with the number of hard pairs.

    Args:
        distance: ``"cosine"`` (1 - cos), ``"euclidean"`` or ``"manhattan"``.
        margin: Distance that dissimilar pairs should have at least.

    Shape:
        first, second: (rows, dim). labels: (rows,), 1 for similar, 0 for dissimilar. Output: scalar.

    Raises:
        ValueError: If a setting is unknown or negative, a label is not 0 or 1, or the shapes do not match.

    References:
        Hadsell et al., 2006, equation 4. https://doi.org/10.1109/CVPR.2006.100
        Reimers and Gurevych, sentence-transformers (the selection of hard pairs). https://sbert.net

    Example:
        >>> second = torch.tensor([[0.0, 1.0], [0.0, 1.0]])
        >>> OnlineContrastiveLoss()(torch.eye(2), second, labels=torch.tensor([1, 0]))
        tensor(1.2500)
    """

    least_rows = 2

    def forward(self, first: Tensor, second: Tensor, *, labels: Tensor) -> Tensor:
        first, second, labels = check_labelled(self, first, second, labels=labels)
        similar = labels == 1
        distances = pairwise_distance(first, second, self.distance)  # (rows,)
        losses = torch.where(similar, distances, F.relu(self.margin - distances)) ** 2
        return torch.where(_hard_pairs(distances.detach(), similar), losses, 0).sum()
