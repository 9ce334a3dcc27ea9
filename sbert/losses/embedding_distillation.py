"""EmbeddingDistillationLoss: a student's vectors, perhaps projected, near its teacher's of another dimension."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sbert.losses.checks import check_columns, check_dim, check_finite, project, require_labels
from sbert.losses.distances import DISTANCES, check_distance, pairwise_distance
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

    def check_labels(self, labels: Tensor) -> None:
        """Raise unless all vectors are finite."""
        check_finite(self, labels, "check whether the teacher ran in half precision")
