"""GlobalOrthogonalRegularizationLoss: vectors of different texts spread out like random directions."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from sbert.functional import cos_sim
from sbert.losses.checks import check_columns
from sbert.losses.module import LossModule


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
        ValueError: If a weight is negative or both are 0, or the shapes do not match.

    References:
        Zhang et al., 2017 (global orthogonal regularization). https://arxiv.org/abs/1708.06320

    Example:
        >>> GlobalOrthogonalRegularizationLoss()(torch.ones(2, 4))
        tensor(1.7500)
    """

    least_rows = 2

    def __init__(self, mean_weight: float = 1.0, second_moment_weight: float = 1.0) -> None:
        super().__init__()
        weights = (mean_weight, second_moment_weight)
        if not all(0 <= weight < math.inf for weight in weights) or not any(weights):
            raise ValueError(f"the weights are {weights}; pass numbers of 0 or more, not both 0")
        self.mean_weight: float = mean_weight
        self.second_moment_weight: float = second_moment_weight

    def forward(self, *sentences: Tensor) -> Tensor:
        return torch.stack([self._of_column(column) for column in check_columns(self, *sentences)]).mean()

    def _of_column(self, column: Tensor) -> Tensor:
        rows, dim = column.shape
        own = torch.eye(rows, dtype=torch.bool, device=column.device)
        cosines = cos_sim(column, column).masked_fill(own, 0)
        pairs = max(rows * (rows - 1), 1)
        second_moment = F.relu(cosines.square().sum() / pairs - 1 / dim)
        return self.mean_weight * (cosines.sum() / pairs).square() + self.second_moment_weight * second_moment
