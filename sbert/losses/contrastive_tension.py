"""ContrastiveTensionLoss: two copies of a model, trained apart, learn to agree on texts without labels."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sbert.functional import SIMILARITIES, check_similarity
from sbert.losses.checks import check_columns, check_several, check_temperature
from sbert.losses.module import Data, LossModule


class ContrastiveTensionLoss(LossModule):
    """Each text's vector by one model should be most similar to the same text's vector by the other.

        loss = (mean_i -log softmax_j(s(u_i, v_j) / t)_i + mean_i -log softmax_j(s(u_j, v_i) / t)_i) / 2

    The model returns the vectors u and v of both copies side by side, because a loss sees vectors only: see
    ``sbert.losses``. The negatives are the other rows of the batch. t is trained, too. For a single row, the loss is 0.

    Args:
        temperature: t, at the start.
        similarity: s, ``"cosine"``, ``"dot"``, ``"euclidean"`` or ``"manhattan"``; the last two are negative distances.

    Shape:
        sentence: (rows, 2 * dim), first u, then v. Output: scalar.

    Raises:
        ValueError: If a setting is invalid, or the vectors cannot be halved.

    References:
        Carlsson et al., 2021 (with sampled pairs). https://openreview.net/forum?id=Ov_sMNau-PF
        Radford et al., 2021, figure 3 (both directions in the batch, t trained). https://arxiv.org/abs/2103.00020

    Example:
        >>> loss = ContrastiveTensionLoss(temperature=1.0)
        >>> loss(torch.cat([torch.eye(2), torch.eye(2)], 1)).round(decimals=4).detach()
        tensor(0.3133)
    """

    takes_several_vectors = True

    def __init__(self, temperature: float = 0.05, similarity: str = "cosine") -> None:
        super().__init__()
        self.similarity: str = check_similarity(similarity)
        self.log_scale: nn.Parameter = nn.Parameter(torch.tensor(-math.log(check_temperature(temperature))))

    def forward(self, sentence: Tensor) -> Tensor:
        (sentence,) = check_columns(self, sentence)
        if sentence.shape[1] % 2:
            raise ValueError(f"dim {sentence.shape[1]} is odd; pass the vectors of two models side by side")
        first, second = sentence.chunk(2, 1)
        scores: Tensor = SIMILARITIES[self.similarity](first, second) * self.log_scale.exp()  # (rows, rows)
        own = torch.arange(len(scores), device=scores.device)
        return (F.cross_entropy(scores, own) + F.cross_entropy(scores.T, own)) / 2

    def check_data(self, data: Data) -> None:
        """Raise unless a batch has two rows."""
        check_several(self, data)
