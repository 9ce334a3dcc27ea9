"""Losses that combine other losses: MatryoshkaLoss, WeightedSum."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from sbert.losses.checks import Data, check_data_of, check_labels_of, same_shape, without_model
from sbert.losses.signature import Loss, Signature


def _given(signature: Signature, extras: dict[str, Tensor | None]) -> dict[str, Tensor]:
    """The extras that are not None, each of which the loss must take."""
    given = {name: extra for name, extra in extras.items() if extra is not None}
    unknown = [name for name in given if name not in signature.extras]
    if unknown:
        raise TypeError(f"{', '.join(unknown)} given, which no loss in {signature.name} takes; leave it out")
    return given


def _check_weights(weights: Sequence[float]) -> None:
    if not all(0 <= weight < math.inf for weight in weights) or not any(weights):
        raise ValueError(f"weights={tuple(weights)}; pass numbers of 0 or more, not all of them 0")


@without_model
class MatryoshkaLoss(nn.Module):
    """Weighted sum of a loss on vectors truncated to several dimensions.

        loss = sum_d weight_d * loss(columns[:, :d])

    Truncated vectors are not normalized again: the loss sees the same vectors that ``truncate_dim`` gives.

    Args:
        loss: A loss module, or a function of columns.
        dims: The dimensions to truncate to, all different.
        weights: One weight for each of ``dims``; by default all 1.

    Shape:
        Each column: (rows, dim). labels, texts and guide: as the loss takes them. Output: scalar.
        Labels that are vectors are truncated with the columns; a loss with such labels sets the class attribute
        ``labels_are_vectors = True``, as MSELoss does.

    Raises:
        ValueError: If a dimension or a weight is invalid, or a dimension is greater than that of the vectors.
        TypeError: If the loss is not callable, or does not take an extra that was given.

    References:
        Kusupati et al., 2022, equation 1. https://arxiv.org/abs/2205.13147

    Example:
        >>> from sbert.losses import CosineSimilarityLoss
        >>> loss = MatryoshkaLoss(CosineSimilarityLoss(), dims=[2, 1])
        >>> loss(torch.ones(1, 2), torch.tensor([[1.0, -1.0]]), labels=torch.tensor([1.0]))
        tensor(1.)
    """

    def __init__(self, loss: Loss, dims: Sequence[int], weights: Sequence[float] | None = None) -> None:
        super().__init__()
        dims = tuple(dims)
        if not dims or min(dims) < 1 or len(set(dims)) < len(dims):
            raise ValueError(f"dims={dims}; pass one or more different whole numbers above 0")
        weights = (1.0,) * len(dims) if weights is None else tuple(weights)
        if len(weights) != len(dims):
            raise ValueError(f"{len(weights)} weights for {len(dims)} dims; pass one weight for each")
        _check_weights(weights)
        self.dims = dims
        self.weights = weights
        self.loss = loss
        self.signature = replace(Signature.of(loss), name=type(self).__name__)

    def forward(
        self, *columns: Tensor, labels: Tensor | None = None, texts: Tensor | None = None, guide: Tensor | None = None
    ) -> Tensor:
        full = same_shape(self, *columns)[0].shape[1]
        if max(self.dims) > full:
            raise ValueError(f"dims contains {max(self.dims)}, but the vectors have dim {full}; pass at most {full}")
        extras = _given(self.signature, {"labels": labels, "texts": texts, "guide": guide})
        # The shape does not tell whether labels are vectors: the scores of `dim` candidates have the same one.
        vectors = labels if self.signature.labels_are_vectors else None
        if vectors is not None and vectors.shape[-1] != full:
            raise ValueError(
                f"labels are vectors of dim {vectors.shape[-1]}, but the columns have dim {full}; pass labels of that"
                " dim"
            )
        losses = []
        for dim, weight in zip(self.dims, self.weights, strict=True):
            if vectors is not None:
                extras["labels"] = vectors[..., :dim]
            losses.append(weight * self.loss(*(column[:, :dim] for column in columns), **extras))
        return torch.stack(losses).sum()

    def check_labels(self, labels: Tensor) -> None:
        """Raise the error that the wrapped loss raises."""
        check_labels_of(self.loss, labels)

    def check_data(self, data: Data) -> None:
        """Raise the error that the wrapped loss raises."""
        check_data_of(self.loss, data)

    def extra_repr(self) -> str:
        return f"dims={self.dims}, weights={self.weights}"


@without_model
class WeightedSum(nn.Module):
    """Weighted sum of several losses on the same columns.

        loss = sum_k weight_k * loss_k(columns)

    All losses get all columns in the same order, whatever names they use: ``first, second`` and ``anchor, positive``
    can be combined. The data uses the names of the loss with the most columns; if several have the most, of the
    first. A ranking loss treats every row as a pair of similar texts, whatever its label says.

    Args:
        pairs: Tuples of a loss (a module, or a function of columns) and its weight.

    Shape:
        Each column: (rows, dim). labels, texts and guide: passed to the losses that take them. Output: scalar.

    Raises:
        ValueError: If the losses take different numbers of columns, or the same names in a different order, or a
            weight is negative.
        TypeError: If a loss is not callable, or no loss takes an extra that was given.

    Example:
        >>> from sbert.losses import AnglELoss, CosineSimilarityLoss
        >>> loss = WeightedSum((CosineSimilarityLoss(), 2.0), (AnglELoss(), 1.0))
        >>> loss(torch.eye(2), torch.eye(2), labels=torch.tensor([1.0, 0.5]))
        tensor(0.9431)
    """

    def __init__(self, *pairs: tuple[Loss, float]) -> None:
        super().__init__()
        if not pairs:
            raise ValueError("WeightedSum was given no losses; pass pairs of a loss and its weight")
        self.weights = tuple(weight for _, weight in pairs)
        _check_weights(self.weights)
        losses = [loss for loss, _ in pairs]
        self.signature = Signature.combined(type(self).__name__, [Signature.of(loss) for loss in losses])
        self.losses = tuple(losses)
        # A tuple can hold functions, but the optimizer finds the losses' weights only in a ModuleList.
        self.registered = nn.ModuleList(loss for loss in losses if isinstance(loss, nn.Module))

    def forward(
        self, *columns: Tensor, labels: Tensor | None = None, texts: Tensor | None = None, guide: Tensor | None = None
    ) -> Tensor:
        given = _given(self.signature, {"labels": labels, "texts": texts, "guide": guide})
        values = []
        for loss, weight in zip(self.losses, self.weights, strict=True):
            taken = Signature.of(loss).extras
            extras = {name: extra for name, extra in given.items() if name in taken}
            values.append(weight * loss(*columns, **extras))
        return torch.stack(values).sum()

    def check_labels(self, labels: Tensor) -> None:
        """Raise the error of the first loss that rejects the labels."""
        for loss in self.losses:
            check_labels_of(loss, labels)

    def check_data(self, data: Data) -> None:
        """Raise the error of the first loss that rejects the data."""
        for loss in self.losses:
            check_data_of(loss, data)

    def extra_repr(self) -> str:
        return f"weights={self.weights}"
