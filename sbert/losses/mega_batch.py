"""MegaBatchMarginLoss: each pair against the hardest negative of a large batch."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from sbert.functional import cos_sim, pairwise_cosines
from sbert.losses.checks import check_columns
from sbert.losses.module import LossModule

# Rows scored at a time in the search for negatives, which needs no gradient.
_ROWS = 512


class MegaBatchMarginLoss(LossModule):
    """A pair should be more similar than one margin, its anchor and the hardest negative less similar than another.

        loss = mean_i max(m_p - cos(a_i, p_i), 0) + max(max_{j != i} cos(a_i, p_j) - m_n, 0)

    The larger the batch, the harder its negatives: 500 rows or more, with ``chunk_tokens`` of ``TrainingConfig`` where
    memory is short. For a single row, the second term is 0.

    Args:
        positive_margin: m_p, a cosine.
        negative_margin: m_n, a cosine below ``positive_margin``.

    Shape:
        anchor, positive: (rows, dim). Output: scalar.

    Raises:
        ValueError: If the margins are not in order, or the shapes do not match.

    References:
        Wieting and Gimpel, 2018 (mega-batches; there with one margin, between both cosines).
        https://aclanthology.org/P18-1042

    Example:
        >>> MegaBatchMarginLoss()(torch.eye(2), torch.eye(2))
        tensor(0.)
        >>> MegaBatchMarginLoss()(torch.eye(2), torch.ones(2, 2)).round(decimals=4)
        tensor(0.5000)
    """

    def __init__(self, positive_margin: float = 0.8, negative_margin: float = 0.3) -> None:
        super().__init__()
        if not -1 <= negative_margin < positive_margin <= 1:
            raise ValueError(f"margins {positive_margin}, {negative_margin}; pass cosines, the first greater")
        self.positive_margin: float = positive_margin
        self.negative_margin: float = negative_margin

    def forward(self, anchor: Tensor, positive: Tensor) -> Tensor:
        anchor, positive = check_columns(self, anchor, positive)
        near = F.relu(self.positive_margin - pairwise_cosines(anchor, positive))  # (rows,)
        if len(anchor) == 1:
            return near.mean()
        far = pairwise_cosines(anchor, positive[self._hardest(anchor, positive)])  # (rows,)
        return (near + F.relu(far - self.negative_margin)).mean()

    @staticmethod
    @torch.no_grad()
    def _hardest(anchor: Tensor, positive: Tensor) -> Tensor:
        """The row of each anchor's most similar positive of another row."""
        hardest = []
        for start in range(0, len(anchor), _ROWS):
            cosines = cos_sim(anchor[start : start + _ROWS], positive)
            cosines.diagonal(start).fill_(-math.inf)
            hardest.append(cosines.argmax(1))
        return torch.cat(hardest)
