"""Losses of pairs of a query's documents: RankNetLoss, and LambdaLoss, which weights pairs by a metric's change."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from sbert.inputs.arguments import check_choice
from sbert.losses.checks import Data, check_temperature, check_values
from sbert.losses.lists import ListLoss


class Ranking(NamedTuple):
    """A query's documents in the order of the model's scores, from which a weighting is computed.

    Args:
        labels: The labels, 0 at padding.
        gains: (2^label - 1) / maxDCG.
        discounts: log2(1 + rank).

    Shape:
        labels, gains: (queries, documents). discounts: (documents,).
    """

    labels: Tensor
    gains: Tensor
    discounts: Tensor


def _difference(values: Tensor) -> Tensor:
    """|x_i - x_j|: (..., documents) to (..., documents, documents)."""
    return (values[..., :, None] - values[..., None, :]).abs()


def _ndcg_loss2(ranking: Ranking) -> Tensor:
    inverse = 1 / ranking.discounts
    steps = F.pad(inverse[:-1] - inverse[1:], (1, 0))  # (documents,): for each difference of ranks
    positions = torch.arange(len(steps), device=steps.device)
    return steps[(positions[:, None] - positions).abs()] * _difference(ranking.gains)


def _lambda_rank(ranking: Ranking) -> Tensor:
    return _difference(1 / ranking.discounts) * _difference(ranking.gains)


def _lambda_mrr(ranking: Ranking) -> Tensor:
    relevant = ranking.labels > 0
    reciprocal = 1 / torch.arange(1, relevant.shape[1] + 1, dtype=ranking.gains.dtype, device=relevant.device)
    best, second = F.pad(relevant * reciprocal, (0, 1)).topk(2, 1).values[:, :, None].unbind(1)  # each (queries, 1)
    others = torch.where(reciprocal == best, second, best)  # (queries, documents): the best without document i
    after = torch.maximum(others[:, :, None], reciprocal)  # i in the place of j
    return (after - best[:, :, None]).abs() * (relevant[:, :, None] & ~relevant[:, None])


WEIGHTINGS: dict[str, Callable[[Ranking], Tensor]] = {
    "none": lambda ranking: torch.ones_like(_difference(ranking.labels)),
    "arp_loss2": lambda ranking: _difference(ranking.labels),
    "ndcg_loss1": lambda ranking: (ranking.gains / ranking.discounts)[:, :, None].expand_as(_difference(ranking.gains)),
    "ndcg_loss2": _ndcg_loss2,
    "ndcg_loss2++": lambda ranking: 10 * _ndcg_loss2(ranking) + _lambda_rank(ranking),
    "lambda_rank": _lambda_rank,
    "lambda_mrr": _lambda_mrr,
}


class _PairLoss(ListLoss):
    """What the losses below share: a sum over pairs of documents of a query, of which one is more relevant."""

    weighting: str | Callable[[Ranking], Tensor] = "none"

    def __init__(self, sigma: float = 1.0, k: int | None = None) -> None:
        super().__init__()
        if k is not None and k < 1:
            raise ValueError(f"k={k} leaves no document; pass 1 or more, or None for all")
        self.sigma: float = check_temperature(sigma, "sigma")
        self.k: int | None = k

    def forward(self, *scores: Tensor, labels: Tensor, mask: Tensor | None = None) -> Tensor:
        matrix, labels, mask = self.check_lists(scores, labels, mask)
        order = matrix.masked_fill(~mask, -torch.inf).argsort(dim=1, descending=True, stable=True)
        matrix, labels, mask = (each.gather(1, order) for each in (matrix, labels, mask))
        counted = mask[:, :, None] & mask[:, None]  # (queries, documents, documents)
        if self.weighting != "ndcg_loss1":
            counted = counted & (labels[:, :, None] > labels[:, None])
        top = torch.arange(matrix.shape[1], device=matrix.device) < (self.k or matrix.shape[1])
        counted = counted & (top[:, None] | top)
        cost = -F.logsigmoid(self.sigma * (matrix[:, :, None] - matrix[:, None]))
        return torch.where(counted, self._weights(labels) * cost, 0).sum() / counted.sum().clamp(min=1)

    def _weights(self, labels: Tensor) -> Tensor:
        """The weight of each pair of documents, the more relevant one first: (queries, documents, documents)."""
        discounts = torch.log2(2 + torch.arange(labels.shape[1], dtype=labels.dtype, device=labels.device))
        most = labels.amax(1, keepdim=True)  # Divided by 2^most, which cancels out, as 2^label may be infinite.
        gains = torch.exp2(labels - most) - torch.exp2(-most)
        ideal = (gains.sort(1, descending=True).values / discounts)[:, : self.k].sum(1, keepdim=True)
        ranking = Ranking(labels, gains / ideal.clamp(min=torch.finfo(labels.dtype).tiny), discounts)
        weighting = WEIGHTINGS[self.weighting] if isinstance(self.weighting, str) else self.weighting
        return weighting(ranking)

    def check_data(self, data: Data) -> None:
        """Raise if no query has documents of different labels."""
        super().check_data(data)
        if data.labels is not None and data.labels.ndim == 2 and bool((data.labels == data.labels[:, :1]).all()):
            name = f"the documents of each query have equal labels, which teaches {type(self).__name__} nothing"
            raise ValueError(f"{name}: it compares different ones; add documents with other labels")


class RankNetLoss(_PairLoss):
    """A query's more relevant documents should have greater scores, pair by pair.

        loss = mean over q and labels_i > labels_j of log(1 + exp(-sigma (s_i - s_j)))

    Only the order of the labels matters. The mean is over all pairs of the batch; it is 0 if there are none.

    Args:
        sigma: Slope of the sigmoid.
        k: If given, only pairs count of which a document is among the k with the greatest scores.

    Shape:
        scores: (queries, documents), or a column (queries, 1) for each document. labels: (queries, documents), any
        finite numbers. mask: (queries, documents), True where there is a document. Output: scalar.

    Raises:
        ValueError: If a setting or a label is invalid, or the shapes do not match.
        TypeError: If the mask is not boolean.

    References:
        Burges et al., 2005, section 3. https://doi.org/10.1145/1102351.1102363

    Example:
        >>> RankNetLoss()(torch.tensor([[0.0, 2.0]]), labels=torch.tensor([[0.0, 1.0]])).round(decimals=4)
        tensor(0.1269)
    """


class LambdaLoss(_PairLoss):
    """RankNetLoss with each pair weighted by how much a metric changes if both documents change places.

        loss = mean over q and labels_i > labels_j of w_ij log2(1 + exp(-sigma (s_i - s_j)))

    With G_i = (2^label_i - 1) / maxDCG, D_i = log2(1 + r_i) and r_i the rank of document i by the model's scores:

    | weighting | w_ij |
    |---|---|
    | ``"ndcg_loss1"`` | G_i / D_i, for all i and j |
    | ``"ndcg_loss2"`` | abs(1 / D(m) - 1 / D(m + 1)) abs(G_i - G_j), where D(m) = log2(1 + m), m = abs(r_i - r_j) |
    | ``"lambda_rank"`` | abs(1 / D_i - 1 / D_j) abs(G_i - G_j) |
    | ``"ndcg_loss2++"`` | 10 times ``"ndcg_loss2"`` plus ``"lambda_rank"`` |
    | ``"arp_loss2"`` | label_i - label_j |
    | ``"lambda_mrr"`` | change of 1 / rank of the first document with a label above 0, if i and j change places |
    | ``"none"`` | 1 |

    Args:
        weighting: A name in the table, or a function from a ``Ranking`` to (queries, documents, documents).
        sigma: Slope of the sigmoid.
        k: If given, maxDCG is that of k documents, and only pairs count of which a document is among the k with the
            greatest scores.

    Shape:
        scores: (queries, documents), or a column (queries, 1) for each document. labels: (queries, documents), grades
        of 0 or more. mask: (queries, documents), True where there is a document. Output: scalar.

    Raises:
        ValueError: If a setting or a label is invalid, or the shapes do not match.
        TypeError: If the mask is not boolean.

    References:
        Wang et al., 2018 (the weightings of nDCG and ARP; equation 18 for k). https://doi.org/10.1145/3269206.3271784
        Burges, 2010, section 4 (LambdaRank, for any metric); Donmez et al., 2009 (for MRR).
        https://www.microsoft.com/en-us/research/publication/from-ranknet-to-lambdarank-to-lambdamart-an-overview/

    Example:
        >>> scores, labels = torch.tensor([[0.0, 2.0, 1.0]]), torch.tensor([[2, 1, 0]])
        >>> LambdaLoss("lambda_rank")(scores, labels=labels).round(decimals=4)
        tensor(0.3653)
    """

    def __init__(
        self, weighting: str | Callable[[Ranking], Tensor] = "ndcg_loss2++", sigma: float = 1.0, k: int | None = None
    ) -> None:
        super().__init__(sigma, k)
        if isinstance(weighting, str):
            check_choice("weighting", weighting, list(WEIGHTINGS))
        self.weighting = weighting

    def forward(self, *scores: Tensor, labels: Tensor, mask: Tensor | None = None) -> Tensor:
        return super().forward(*scores, labels=labels, mask=mask) / math.log(2)

    def check_labels(self, labels: Tensor) -> None:
        """Raise unless every label is a finite number of 0 or more."""
        super().check_labels(labels)
        check_values(self, labels, labels >= 0, "grades of 0 or more; subtract the smallest, or use another loss")
