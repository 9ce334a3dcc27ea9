"""Triplets: given by the data (TripletLoss), or formed from the labels of a batch (the Batch…TripletLosses)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from sbert.losses.checks import Data, check_columns, check_labelled, check_margin, check_whole
from sbert.losses.distances import check_distance, distance_matrix, pairwise_distance
from sbert.losses.module import LossModule


class TripletLoss(LossModule):
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
        self.distance: str = check_distance(distance)
        self.margin: float = check_margin(margin)

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        anchor, positive, negative = check_columns(self, anchor, positive, negative)
        near = pairwise_distance(anchor, positive, self.distance)  # (rows,)
        far = pairwise_distance(anchor, negative, self.distance)  # (rows,)
        return F.relu(near - far + self.margin).mean()


class _BatchTriplets(LossModule):
    """What the losses below share: a distance, a margin and the checks of the labels."""

    labels_are_classes = True
    least_rows, needs_different_labels = 3, "a negative has another label than the anchor"

    def __init__(self, distance: str = "euclidean", margin: float | None = 5.0) -> None:
        super().__init__()
        self.distance: str = check_distance(distance)
        self.margin: float | None = None if margin is None else check_margin(margin)

    def check_labels(self, labels: Tensor) -> None:
        """Raise unless the labels are integers."""
        check_whole(self, labels, "number the groups")

    def check_data(self, data: Data) -> None:
        """Raise unless the data has a triplet: two rows with one label and a row with another."""
        super().check_data(data)
        if data.labels is not None and int(torch.unique(data.labels, return_counts=True)[1].max()) < 2:
            name = f"the {len(data.labels)} labels are all different, which teaches {type(self).__name__} nothing"
            raise ValueError(f"{name}: a positive has the label of its anchor; add rows with equal labels")


class _PairTriplets(_BatchTriplets):
    """What the losses of all pairs of an anchor and a positive share; they differ in the negatives."""

    margin: float

    def __init__(self, distance: str = "euclidean", margin: float = 5.0) -> None:
        super().__init__(distance, check_margin(margin))

    def _pairs(self, sentence: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """All pairs of an anchor and another row with the same label.

        Returns:
            The distance of each pair, (pairs, 1); the distance from its anchor to every row, (pairs, rows); and whether
            that row has another label, (pairs, rows).
        """
        sentence, labels = check_labelled(self, sentence, labels=labels)
        distances, same = distance_matrix(sentence, self.distance), labels[:, None] == labels
        anchors, positives = same.clone().fill_diagonal_(False).nonzero(as_tuple=True)
        return distances[anchors, positives][:, None], distances[anchors], ~same[anchors]


class BatchAllTripletLoss(_PairTriplets):
    """TripletLoss of all triplets in the batch, averaged over the triplets with a loss above 0.

        loss = mean over a, p, n with l > 0 of l,  l = d(a, p) - d(a, n) + margin

    where p has the same label as a, and n another label. The loss is 0 if there is no such triplet.

    Args:
        distance: ``"euclidean"``, ``"cosine"`` (1 - cos) or ``"manhattan"``.
        margin: In units of the distance.

    Shape:
        sentence: (rows, dim). labels: (rows,), integers. Output: scalar.
        Memory: pairs with the same label x rows.

    Raises:
        ValueError: If a setting is unknown or negative, or the shapes do not match.
        TypeError: If the labels are not integers.

    References:
        Hermans et al., 2017, section 2, L_BA with the mean over non-zero terms. https://arxiv.org/abs/1703.07737

    Example:
        >>> vectors = torch.tensor([[0.0], [1.0], [3.0]])
        >>> BatchAllTripletLoss(margin=1.0)(vectors, labels=torch.tensor([0, 1, 0]))
        tensor(2.5000)
    """

    def forward(self, sentence: Tensor, *, labels: Tensor) -> Tensor:
        near, far, different = self._pairs(sentence, labels)
        losses = torch.where(different, F.relu(near - far + self.margin), 0)  # (pairs, rows)
        return losses.sum() / (losses > 0).sum().clamp(min=1)


class BatchHardTripletLoss(_BatchTriplets):
    """TripletLoss of each row with its farthest positive (same label) and its nearest negative (another label).

        loss = mean_a max( max_p d(a, p) - min_n d(a, n) + margin, 0 )

    The mean is over the rows that have a positive. The loss is 0 if no row has one, or all labels are equal.
    sentence-transformers also counts rows without a positive, with a positive distance of 0; so for a batch in which
    a label occurs only once, the values differ.

    Args:
        distance: ``"euclidean"``, ``"cosine"`` (1 - cos) or ``"manhattan"``.
        margin: In units of the distance. None for the soft margin: log(1 + exp(x)) instead of max(x + margin, 0).

    Shape:
        sentence: (rows, dim). labels: (rows,), integers. Output: scalar.

    Raises:
        ValueError: If a setting is unknown or negative, or the shapes do not match.
        TypeError: If the labels are not integers.

    References:
        Hermans et al., 2017, section 2, L_BH and the soft margin. https://arxiv.org/abs/1703.07737

    Example:
        >>> vectors = torch.tensor([[0.0], [1.0], [3.0]])
        >>> BatchHardTripletLoss(margin=1.0)(vectors, labels=torch.tensor([0, 1, 0]))
        tensor(2.5000)
    """

    def forward(self, sentence: Tensor, *, labels: Tensor) -> Tensor:
        sentence, labels = check_labelled(self, sentence, labels=labels)
        distances, same = distance_matrix(sentence, self.distance), labels[:, None] == labels
        others = same.clone().fill_diagonal_(False)
        # 0, not -inf, for a row without a positive: its value must be finite to be masked out below.
        near = torch.where(others, distances, 0).max(1).values  # (rows,)
        far = torch.where(same, torch.inf, distances).min(1).values  # (rows,)
        losses = F.softplus(near - far) if self.margin is None else F.relu(near - far + self.margin)
        counted = others.any(1)
        return torch.where(counted, losses, 0).sum() / counted.sum().clamp(min=1)


class BatchSemiHardTripletLoss(_PairTriplets):
    """TripletLoss of each anchor and positive with the nearest negative that is farther away than the positive.

        loss = mean over a, p of max(d(a, p) - d(a, n) + margin, 0),  n = argmin over d(a, n) > d(a, p) of d(a, n)

    If no negative is farther away than the positive, n is the farthest negative. The loss is 0 if there is no pair
    with the same label, or no negative.

    Args:
        distance: ``"euclidean"``, ``"cosine"`` (1 - cos) or ``"manhattan"``.
        margin: In units of the distance.

    Shape:
        sentence: (rows, dim). labels: (rows,), integers. Output: scalar.
        Memory: pairs with the same label x rows.

    Raises:
        ValueError: If a setting is unknown or negative, or the shapes do not match.
        TypeError: If the labels are not integers.

    References:
        Schroff et al., 2015, section 3.2. https://arxiv.org/abs/1503.03832

    Example:
        >>> vectors = torch.tensor([[0.0], [1.0], [3.0]])
        >>> BatchSemiHardTripletLoss(margin=1.0)(vectors, labels=torch.tensor([0, 1, 0]))
        tensor(2.5000)
    """

    def forward(self, sentence: Tensor, *, labels: Tensor) -> Tensor:
        near, distances, different = self._pairs(sentence, labels)
        farther = torch.where(different & (distances > near), distances, torch.inf).min(1, keepdim=True).values
        farthest = torch.where(different, distances, -torch.inf).max(1, keepdim=True).values  # (pairs, 1)
        far = torch.where(torch.isfinite(farther), farther, farthest)
        losses = torch.where(different.any(1, keepdim=True), F.relu(near - far + self.margin), 0)  # (pairs, 1)
        return losses.sum() / max(1, len(losses))
