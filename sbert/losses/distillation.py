"""Distillation of a teacher: of its vectors, its margins (MarginMSELoss) or its ranking (DistillKLDivLoss)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sbert.functional import ALL_SIMILARITIES, check_similarity, pairwise_similarity
from sbert.losses.checks import check_columns, check_dim, check_mask, check_temperature, project, require_labels
from sbert.losses.margin_losses import DISTANCES, check_distance, pairwise_distance
from sbert.losses.module import LossModule


class EmbeddingDistillationLoss(LossModule):
    """Mean distance between the projected vectors of each column and the teacher's vectors.

        loss = mean over columns c and rows i of d(W c_i + b, labels_i)

    Args:
        dim: Dimension of the student's vectors, if they are projected; None for no projection.
        teacher_dim: Dimension of the teacher's vectors, if the student's are projected. W and b are weights of the
            loss, which checkpoints keep; the encoder that is saved has none of them.
        distance: d: ``"cosine"`` (1 - cos), ``"euclidean"``, ``"manhattan"``, or ``"mse"``, the mean squared
            difference.

    Shape:
        Each column: (rows, dim). labels: (rows, teacher_dim), for all columns; or (rows, columns, teacher_dim).
        Output: scalar.

    Raises:
        ValueError: If a setting is invalid, a label is not finite, or the shapes do not match.

    References:
        Kim et al., 2023, EmbedDistill, equations 7 and 8. https://arxiv.org/abs/2301.12005

    Example:
        >>> import torch
        >>> from sbert.losses import EmbeddingDistillationLoss
        >>> EmbeddingDistillationLoss()(torch.eye(2), labels=torch.ones(2, 2)).round(decimals=4)
        tensor(0.2929)
        >>> EmbeddingDistillationLoss(dim=2, teacher_dim=3).projection
        Linear(in_features=2, out_features=3, bias=True)
    """

    def __init__(self, dim: int | None = None, teacher_dim: int | None = None, distance: str = "cosine") -> None:
        super().__init__()
        if (dim is None) != (teacher_dim is None):
            raise ValueError(f"dim={dim}, teacher_dim={teacher_dim}; pass both for a projection, or neither")
        self.distance: str = check_distance(distance, (*DISTANCES, "mse"))
        self.projection: nn.Linear | None = None if dim is None or teacher_dim is None else nn.Linear(dim, teacher_dim)
        # Read by Signature: MatryoshkaLoss truncates such labels together with the columns.
        self.labels_are_vectors: bool = dim is None

    def forward(self, *sentences: Tensor, labels: Tensor) -> Tensor:
        columns = torch.stack(check_columns(self, *sentences), 1)  # (rows, columns, dim)
        if self.projection is not None:
            check_dim(self, columns, self.projection.in_features)
            columns = project(columns, self.projection)
        shape = (columns.shape[0], columns.shape[2])
        if isinstance(labels, Tensor) and labels.ndim == 3:
            shape = tuple(columns.shape)  # type: ignore[assignment]
        teacher = require_labels(self, labels, shape).to(columns.dtype)
        teacher = teacher.view(len(columns), -1, columns.shape[2]).expand_as(columns)
        if self.distance == "mse":
            return F.mse_loss(columns, teacher)
        return pairwise_distance(columns.flatten(0, 1), teacher.flatten(0, 1), self.distance).mean()


class MSELoss(EmbeddingDistillationLoss):
    """Mean squared difference between the vectors of each column and the teacher's vectors.

        loss = mean over columns c, rows i and dimensions k of (c_ik - labels_ik)^2

    With a sentence and its translation as columns, and the teacher's vector of the sentence as label, the student
    learns the teacher's vectors in both languages.

    Shape:
        Each column: (rows, dim). labels: (rows, dim). Output: scalar.

    Raises:
        ValueError: If a label is not finite, or the shapes do not match.

    References:
        Reimers and Gurevych, 2020, section 2. https://arxiv.org/abs/2004.09813

    Example:
        >>> import torch
        >>> from sbert.losses import MSELoss
        >>> MSELoss()(torch.eye(2), torch.ones(2, 2), labels=torch.eye(2))
        tensor(0.2500)
    """

    def __init__(self) -> None:
        super().__init__(distance="mse")


def _candidate_scores(columns: list[Tensor], similarity: str) -> Tensor:
    """The similarity of the first column with each other column, row by row: (rows, candidates)."""
    return torch.stack([pairwise_similarity(columns[0], column, similarity) for column in columns[1:]], 1)


def _check_negatives(loss: LossModule, negatives: tuple[Tensor, ...], reason: str) -> None:
    if not negatives:
        raise ValueError(f"{type(loss).__name__} was given no negatives; {reason}; add a column of negatives")


class MarginMSELoss(LossModule):
    """Mean squared difference between the student's margins and the teacher's.

        loss = mean over i and negatives n of (s(a_i, p_i) - s(a_i, n_i) - labels_in)^2

    Args:
        similarity: s, ``"dot"``, ``"cosine"``, ``"euclidean"`` or ``"manhattan"``; the last two are negative distances.
            With ``"maxsim"``, the columns are ``TokenEmbeddings``.

    Shape:
        Each column: (rows, dim). labels: (rows, negatives) or, with one negative, (rows,): the teacher's score of
        the positive minus its score of each negative. Output: scalar.

    Raises:
        ValueError: If the similarity is unknown, there are no negatives, a label is not finite, or the shapes do
            not match.

    References:
        Hofstätter et al., 2020. https://arxiv.org/abs/2010.02666

    Example:
        >>> import torch
        >>> from sbert.losses import MarginMSELoss
        >>> anchor = torch.eye(2)
        >>> MarginMSELoss()(anchor, anchor, anchor.flip(0), labels=torch.tensor([1.0, 3.0]))
        tensor(2.)
    """

    def __init__(self, similarity: str = "dot") -> None:
        super().__init__()
        self.similarity: str = check_similarity(similarity, ALL_SIMILARITIES)

    def forward(self, anchor: Tensor, positive: Tensor, *negatives: Tensor, labels: Tensor) -> Tensor:
        _check_negatives(self, negatives, "a margin is the positive's score minus a negative's")
        columns = check_columns(self, anchor, positive, *negatives)
        flat = len(negatives) == 1 and isinstance(labels, Tensor) and labels.ndim == 1
        labels = require_labels(self, labels, (len(anchor),) if flat else (len(anchor), len(negatives)))
        scores = _candidate_scores(columns, self.similarity)  # (rows, 1 + negatives)
        margins = scores[:, :1] - scores[:, 1:]  # (rows, negatives)
        return F.mse_loss(margins, labels.to(margins.dtype).view_as(margins))


class DistillKLDivLoss(LossModule):
    """KL divergence between the teacher's and the student's distribution over the candidates of each row.

        loss = t^2 mean_i KL( softmax(labels_i / t') || softmax(s(a_i, c_i) / t) )

    The candidates c of a row are its positive and its negatives. The factor t^2 makes the size of the gradient
    independent of the temperature.

    Args:
        temperature: t, divides the student's scores. Greater values make the distribution flatter.
        similarity: s, ``"dot"``, ``"cosine"``, ``"euclidean"`` or ``"manhattan"``; the last two are negative distances.
            With ``"maxsim"``, the columns are ``TokenEmbeddings``.
        teacher_temperature: t', divides the teacher's scores; by default t. Suit it to their spread.

    Shape:
        Each column: (rows, dim). labels: (rows, 1 + negatives), the teacher's scores of the positive and of each
        negative, before the softmax. mask: (rows, 1 + negatives), boolean; candidates where it is False, such as false
        negatives, are excluded from both distributions. Output: scalar.

    Raises:
        ValueError: If a setting is unknown or not positive, there are no negatives, a label is not finite, or the
            shapes do not match.

    References:
        Hinton et al., 2015, section 2. https://arxiv.org/abs/1503.02531
        Lin et al., 2020. https://arxiv.org/abs/2010.11386

    Example:
        >>> import torch
        >>> from sbert.losses import DistillKLDivLoss
        >>> anchor = torch.eye(2)
        >>> labels = torch.tensor([[1.0, 0.0], [0.0, 0.0]])
        >>> DistillKLDivLoss()(anchor, anchor, anchor.flip(0), labels=labels).round(decimals=4)
        tensor(0.0601)
    """

    def __init__(
        self, temperature: float = 1.0, similarity: str = "dot", teacher_temperature: float | None = None
    ) -> None:
        super().__init__()
        self.temperature: float = check_temperature(temperature)
        chosen = temperature if teacher_temperature is None else teacher_temperature
        self.teacher_temperature: float = check_temperature(chosen)
        self.similarity: str = check_similarity(similarity, ALL_SIMILARITIES)

    def forward(
        self, anchor: Tensor, positive: Tensor, *negatives: Tensor, labels: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        _check_negatives(self, negatives, "the distribution over one candidate is always 1")
        columns = check_columns(self, anchor, positive, *negatives)
        labels = require_labels(self, labels, (len(anchor), 1 + len(negatives)))
        student = _candidate_scores(columns, self.similarity) / self.temperature  # (rows, 1 + negatives)
        teacher = labels.to(student.dtype) / self.teacher_temperature
        if mask is not None:
            check_mask(self, mask, student.shape)
            # Not -inf, as 0 * inf is NaN.
            student, teacher = (
                scores.masked_fill(~mask, torch.finfo(scores.dtype).min / 2) for scores in (student, teacher)
            )
        student, teacher = student.log_softmax(1), teacher.log_softmax(1)
        return self.temperature**2 * F.kl_div(student, teacher, reduction="batchmean", log_target=True)
