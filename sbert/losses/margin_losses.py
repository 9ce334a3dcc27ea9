"""Losses of distances and margins: pairs that are similar or not, and triplets, given or formed from labels."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from sbert.functional import SIMILARITIES, pairwise_similarity
from sbert.inputs.arguments import check_choice
from sbert.losses.checks import Data, check_columns, check_labelled, check_margin, check_values, check_whole
from sbert.losses.module import LossModule

DISTANCES = ("euclidean", "cosine", "manhattan")


def check_distance(name: str, choices: Sequence[str] = DISTANCES) -> str:
    """Return ``name`` if it is one of the distances, else raise a ValueError that lists them."""
    check_choice("distance", name, choices)
    return name


def pairwise_distance(first: Tensor, second: Tensor, name: str) -> Tensor:
    """Distance between each row of ``first`` and the same row of ``second``.

        euclidean: |a - b|_2    manhattan: |a - b|_1    cosine: 1 - cos(a, b)

    The gradient of the Euclidean distance between two equal vectors is 0, which is one of its subgradients.
    ``torch.nn.functional.pairwise_distance`` avoids a NaN there by adding 1e-6 to every difference, which changes
    every distance slightly.

    Shape:
        first, second: (rows, dim). Output: (rows,).

    Example:
        >>> import torch
        >>> from sbert.losses.margin_losses import pairwise_distance
        >>> pairwise_distance(torch.zeros(1, 2), torch.tensor([[3.0, 4.0]]), "euclidean")
        tensor([5.])
    """
    similarity: Tensor = pairwise_similarity(first, second, name)
    return 1 - similarity if name == "cosine" else -similarity


def distance_matrix(vectors: Tensor, name: str) -> Tensor:
    """Distance between every two rows.

    Shape:
        vectors: (rows, dim). Output: (rows, rows).

    Example:
        >>> import torch
        >>> from sbert.losses.margin_losses import distance_matrix
        >>> distance_matrix(torch.tensor([[0.0, 0.0], [3.0, 4.0]]), "manhattan").abs()
        tensor([[0., 7.],
                [7., 0.]])
    """
    similarity: Tensor = SIMILARITIES[name](vectors, vectors)
    return 1 - similarity if name == "cosine" else -similarity


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
        >>> import torch
        >>> from sbert.losses import ContrastiveLoss
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
        >>> import torch
        >>> from sbert.losses import OnlineContrastiveLoss
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
        >>> import torch
        >>> from sbert.losses import TripletLoss
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
        >>> import torch
        >>> from sbert.losses import BatchAllTripletLoss
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
        >>> import torch
        >>> from sbert.losses import BatchHardTripletLoss
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
        >>> import torch
        >>> from sbert.losses import BatchSemiHardTripletLoss
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
