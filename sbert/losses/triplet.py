"""TripletLoss: the anchor should be nearer to its positive than to its negative."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from sbert.losses.checks import check_margin, same_shape, without_model
from sbert.losses.distances import check_distance, pairwise_distance


@without_model
class TripletLoss(nn.Module):
    """The anchor should be nearer to its positive than to its negative, by at least the margin.

        loss = mean_i max(d(a_i, p_i) - d(a_i, n_i) + margin, 0)

    Args:
        distance: ``"euclidean"``, ``"cosine"`` (1 - cos) or ``"manhattan"``.
        margin: In units of the distance. The paper takes 1.

    Shape:
        Each column: (rows, dim). Output: scalar.

    Raises:
        ValueError: If a setting is unknown or negative, or the shapes do not match.

    References:
        Reimers and Gurevych, 2019, section 3, triplet objective. https://arxiv.org/abs/1908.10084

    Example:
        >>> TripletLoss()(torch.tensor([[0.0, 0.0]]), torch.tensor([[3.0, 4.0]]), torch.tensor([[0.0, 2.0]]))
        tensor(4.)
    """

    def __init__(self, distance: str = "euclidean", margin: float = 1.0) -> None:
        super().__init__()
        self.distance = check_distance(distance)
        self.margin = check_margin(margin)

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        anchor, positive, negative = same_shape(self, anchor, positive, negative)
        near = pairwise_distance(anchor, positive, self.distance)  # (rows,)
        far = pairwise_distance(anchor, negative, self.distance)  # (rows,)
        return F.relu(near - far + self.margin).mean()

    def extra_repr(self) -> str:
        return f"distance={self.distance!r}, margin={self.margin}"
