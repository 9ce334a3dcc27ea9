"""Losses of lists: a reranker's scores of one query and several documents, as one list or by pairs of documents."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from sbert.inputs.arguments import check_choice, check_positive
from sbert.losses.checks import Data, check_columns, check_mask, check_temperature, check_values, require_labels
from sbert.losses.module import LossModule


class ListLoss(LossModule):
    """What the losses of a query's documents share: checks of the scores, the labels and the mask.

    The scores are one matrix (queries, documents), or one column (queries, 1) for each document. Queries with fewer
    documents are padded; ``mask`` is False at padding, whose scores and labels count for nothing.
    """

    def join_scores(self, scores: tuple[Tensor, ...], mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Check the shapes; return the scores, at least float32 and 0 at padding, and the mask.

        Shape:
            Output: twice (queries, documents).

        Raises:
            ValueError: If the shapes do not match.
            TypeError: If the mask is not boolean.
        """
        matrix = torch.cat(check_columns(self, *scores), 1)  # (queries, documents)
        if mask is None:
            return matrix, torch.ones_like(matrix, dtype=torch.bool)
        check_mask(self, mask, matrix.shape)
        return matrix.masked_fill(~mask, 0), mask

    def check_lists(
        self, scores: tuple[Tensor, ...], labels: Tensor | None, mask: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The same with the labels, in the dtype of the scores and 0 at padding.

        Shape:
            Output: scores, labels and mask, each (queries, documents).

        Raises:
            ValueError: If the shapes do not match, or the loss rejects a label.
            TypeError: If the mask is not boolean.
        """
        matrix, mask = self.join_scores(scores, mask)
        if isinstance(labels, Tensor) and labels.shape == matrix.shape:
            labels = labels.masked_fill(~mask, 0)
        return matrix, require_labels(self, labels, tuple(matrix.shape)).to(matrix.dtype), mask

    def check_data(self, data: Data) -> None:
        """Raise if every query has one document."""
        if data.labels is not None and data.labels.ndim == 2 and data.labels.shape[1] == 1:
            name = f"each query has one document, which teaches {type(self).__name__} nothing"
            raise ValueError(f"{name}: it compares the documents of a query; add others")


class ListNetLoss(ListLoss):
    """Cross-entropy between the distributions over a query's documents by the labels and by the scores.

        loss = mean_q -sum_d softmax(labels_q / t)_d log softmax(scores_q)_d

    With the scores of a stronger reranker as labels, this is distillation.

    Args:
        temperature: t, divides the labels. Smaller values give the best documents more weight.

    Shape:
        scores: (queries, documents), or a column (queries, 1) for each document. labels: (queries, documents), any
        finite numbers. mask: (queries, documents), True where there is a document. Output: scalar.

    Raises:
        ValueError: If ``temperature`` is not positive, a label is not finite, or the shapes do not match.
        TypeError: If the mask is not boolean.

    References:
        Cao et al., 2007 (ListNet, with top one probabilities). https://doi.org/10.1145/1273496.1273513

    Example:
        >>> import torch
        >>> from sbert.losses import ListNetLoss
        >>> scores, labels = torch.tensor([[2.0, 0.0, 9.0]]), torch.tensor([[1.0, 0.0, 0.0]])
        >>> ListNetLoss()(scores, labels=labels, mask=torch.tensor([[True, True, False]])).round(decimals=4)
        tensor(0.6648)
    """

    def __init__(self, temperature: float = 1.0) -> None:
        super().__init__()
        self.temperature: float = check_temperature(temperature)

    def forward(self, *scores: Tensor, labels: Tensor, mask: Tensor | None = None) -> Tensor:
        matrix, labels, mask = self.check_lists(scores, labels, mask)
        lowest = torch.finfo(matrix.dtype).min  # Not -inf, as 0 * inf is NaN.
        expected = (labels / self.temperature).masked_fill(~mask, lowest).softmax(1) * mask
        return F.cross_entropy(matrix.masked_fill(~mask, lowest), expected)


class ListMLELoss(ListLoss):
    """Likelihood of the order of a query's documents by their labels, drawn without replacement by their scores.

        loss = mean_q -sum_i w_i log( exp(s_i) / sum_{j >= i} exp(s_j) )

    The documents of a query are numbered from 1 to n by descending labels; equal labels keep the order of the data.

    Args:
        position_aware: Whether early positions count more: w_i = (2^(n - i) - 1) / sum_j (2^(n - j) - 1). Otherwise
            all w_i = 1. The paper does not divide by the sum.

    Shape:
        scores: (queries, documents), or a column (queries, 1) for each document. labels: (queries, documents), any
        finite numbers. mask: (queries, documents), True where there is a document. Output: scalar.

    Raises:
        ValueError: If a label is not finite, or the shapes do not match.
        TypeError: If the mask is not boolean.

    References:
        Xia et al., 2008 (the likelihood loss). https://doi.org/10.1145/1390156.1390306
        Lan et al., 2014 (position-aware). https://auai.org/uai2014/proceedings/individuals/164.pdf

    Example:
        >>> import torch
        >>> from sbert.losses import ListMLELoss
        >>> scores, labels = torch.tensor([[0.0, 2.0]]), torch.tensor([[0.0, 1.0]])
        >>> ListMLELoss()(scores, labels=labels).round(decimals=4)
        tensor(0.1269)
    """

    def __init__(self, position_aware: bool = False) -> None:
        super().__init__()
        self.position_aware: bool = position_aware

    def forward(self, *scores: Tensor, labels: Tensor, mask: Tensor | None = None) -> Tensor:
        matrix, labels, mask = self.check_lists(scores, labels, mask)
        order = labels.masked_fill(~mask, -torch.inf).argsort(dim=1, descending=True, stable=True)
        counts, positions = mask.sum(1, keepdim=True), torch.arange(1, matrix.shape[1] + 1, device=matrix.device)
        documents = positions <= counts  # (queries, documents): padding last
        ordered = matrix.gather(1, order)
        remaining = ordered.masked_fill(~documents, torch.finfo(ordered.dtype).min).flip(1).logcumsumexp(1).flip(1)
        weights = documents.to(ordered.dtype)
        if self.position_aware:
            # Divided by 2^n, which no power exceeds.
            weights = weights * (torch.exp2(-positions.to(ordered.dtype)) - torch.exp2(-counts.to(ordered.dtype)))
            weights = weights / weights.sum(1, keepdim=True).clamp(min=torch.finfo(ordered.dtype).tiny)
        return (weights * (remaining - ordered).masked_fill(~documents, 0)).sum(1).mean()


class LocalizedContrastiveLoss(ListLoss):
    """Cross-entropy of the first document of each query, the relevant one, against its other documents.

        loss = mean_q -log( exp(s_q1 / t) / sum_d exp(s_qd / t) )

    The others are hard negatives, documents of other queries in the batch, or both.

    Args:
        temperature: t, divides the scores. Smaller values give hard negatives more weight.
        in_batch: Number of documents of other queries that a ``Trainer`` adds to each query, drawn at random from its
            batch; ``math.inf`` for all. A document that is listed for the same query in any row of the batch is not
            added. Each of them is one more pair to score.

    Shape:
        scores: (queries, documents), or a column (queries, 1) for each document. mask: (queries, documents), True
        where there is a document. Output: scalar.

    Raises:
        ValueError: If ``temperature`` is not positive, ``in_batch`` is negative, or the shapes do not match.
        TypeError: If the mask is not boolean.

    References:
        Gao et al., 2021, Rethink training of BERT rerankers (localized contrastive estimation).
        https://arxiv.org/abs/2101.08751

    Example:
        >>> import torch
        >>> from sbert.losses import LocalizedContrastiveLoss
        >>> LocalizedContrastiveLoss()(torch.tensor([[2.0, 0.0]])).round(decimals=4)
        tensor(0.1269)
    """

    def __init__(self, temperature: float = 1.0, in_batch: float = 0) -> None:
        super().__init__()
        self.temperature: float = check_temperature(temperature)
        if in_batch != math.inf and (in_batch < 0 or in_batch != int(in_batch)):
            raise ValueError(f"in_batch={in_batch} is not a number of documents; pass 0 or more, or math.inf for all")
        self.in_batch: float = in_batch

    def collate(
        self, texts: list[tuple[Any, ...]], generator: np.random.Generator
    ) -> tuple[list[tuple[Any, ...]], dict[str, Any]]:
        """Add documents of other queries to each row of pairs (query, document)."""
        documents = list(dict.fromkeys(document for row in texts for _, document in row))
        of_query: dict[str, set[str]] = {}
        for query, document in (pair for row in texts for pair in row):
            of_query.setdefault(query, set()).add(document)

        def add_others(query: str) -> list[tuple[str, str]]:
            others = [document for document in documents if document not in of_query[query]]
            count = int(min(self.in_batch, len(others)))
            return [(query, others[place]) for place in np.sort(generator.permutation(len(others))[:count])]

        return [(*row, *add_others(row[0][0])) for row in texts] if self.in_batch else texts, {}

    def forward(self, *scores: Tensor, mask: Tensor | None = None) -> Tensor:
        matrix, mask = self.join_scores(scores, mask)
        matrix = (matrix / self.temperature).masked_fill(~mask, torch.finfo(matrix.dtype).min)
        return (matrix.logsumexp(1) - matrix[:, 0]).mean()


class ScoreMarginMSELoss(ListLoss):
    """Mean squared difference between the margins of a reranker's scores and those of its teacher's.

        loss = mean over queries q and documents d > 1 of ((s_q1 - s_qd) - (labels_q1 - labels_qd))^2

    The first document of a query is the relevant one; a query with one document counts nothing. ``MarginMSELoss`` is
    the same for vectors.

    Shape:
        scores: (queries, documents), or a column (queries, 1) for each document. labels: (queries, documents), the
        teacher's scores. mask: (queries, documents), True where there is a document. Output: scalar.

    Raises:
        ValueError: If a label is not finite, or the shapes do not match.
        TypeError: If the mask is not boolean.

    References:
        Hofstätter et al., 2020. https://arxiv.org/abs/2010.02666

    Example:
        >>> import torch
        >>> from sbert.losses import ScoreMarginMSELoss
        >>> ScoreMarginMSELoss()(torch.tensor([[3.0, 1.0]]), labels=torch.tensor([[5.0, 4.0]]))
        tensor(1.)
    """

    def forward(self, *scores: Tensor, labels: Tensor, mask: Tensor | None = None) -> Tensor:
        matrix, labels, mask = self.check_lists(scores, labels, mask)
        errors = (matrix - labels)[:, :1] - (matrix - labels)[:, 1:]  # (queries, documents - 1)
        return (errors.square() * mask[:, 1:]).sum() / mask[:, 1:].sum().clamp(min=1)


# ------------------------------------------------------------------------------------------------ pairs of documents


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


WEIGHTINGS: dict[str, Callable[[Ranking], Tensor]] = {
    "none": lambda ranking: torch.ones_like(_difference(ranking.labels)),
    "ndcg_loss1": lambda ranking: (ranking.gains / ranking.discounts)[:, :, None].expand_as(_difference(ranking.gains)),
    "ndcg_loss2": _ndcg_loss2,
    "ndcg_loss2++": lambda ranking: 10 * _ndcg_loss2(ranking) + _lambda_rank(ranking),
    "lambda_rank": _lambda_rank,
}


class _PairLoss(ListLoss):
    """What the losses below share: a sum over pairs of documents of a query, of which one is more relevant."""

    weighting: str | Callable[[Ranking], Tensor] = "none"

    def __init__(self, sigma: float = 1.0, k: int | None = None) -> None:
        super().__init__()
        self.sigma: float = check_temperature(sigma, "sigma")
        self.k: int | None = check_positive("k", k)

    def forward(self, *scores: Tensor, labels: Tensor, mask: Tensor | None = None) -> Tensor:
        matrix, labels, mask = self.check_lists(scores, labels, mask)
        order = matrix.masked_fill(~mask, -torch.inf).argsort(dim=1, descending=True, stable=True)
        matrix, labels, mask = (tensor.gather(1, order) for tensor in (matrix, labels, mask))
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

    Only the order of the labels matters. The logarithm is the natural one: in others, values are log2(e) = 1.44 times
    as large. The mean is over all pairs of the batch; it is 0 if there are none.

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
        >>> import torch
        >>> from sbert.losses import RankNetLoss
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
        Wang et al., 2018 (the weightings of nDCG; equation 18 for k). https://doi.org/10.1145/3269206.3271784
        Burges, 2010, section 4 (LambdaRank, for any metric).
        https://www.microsoft.com/en-us/research/publication/from-ranknet-to-lambdarank-to-lambdamart-an-overview/

    Example:
        >>> import torch
        >>> from sbert.losses import LambdaLoss
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
