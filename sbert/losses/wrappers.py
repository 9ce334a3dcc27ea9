"""Losses made of losses: MatryoshkaLoss, WeightedSum."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from sbert.losses.checks import Data, same_shape, without_model
from sbert.losses.signature import Loss, Signature


def _given(extras: dict[str, Tensor | None], *signatures: Signature) -> dict[str, Tensor]:
    """The extras that were given, once it is known that some loss asks for each of them."""
    given = {name: extra for name, extra in extras.items() if extra is not None}
    unasked = [name for name in given if not any(name in signature.extras for signature in signatures)]
    if unasked:
        names = " and ".join(signature.name for signature in signatures)
        raise TypeError(f"{', '.join(unasked)} given, which {names} does not take; leave it out")
    return given


def _check_labels(loss: Loss, labels: Tensor) -> None:
    """A plain function has no opinion about labels."""
    check = getattr(loss, "check_labels", None)
    if check is not None:
        check(labels)


def _check_data(loss: Loss, data: Data) -> None:
    check = getattr(loss, "check_data", None)
    if check is not None:
        check(data)


def _check_weights(weights: Sequence[float]) -> None:
    if not all(0 <= weight < math.inf for weight in weights) or not any(weights):
        raise ValueError(f"weights={tuple(weights)}; pass numbers of 0 or more, not all of them 0")


@without_model
class MatryoshkaLoss(nn.Module):
    """Sum of a loss on the first numbers of each vector, for several counts of numbers.

        loss = sum_d weight_d * loss(columns[:, :d])

    What is left of a vector is not scaled to length 1 again, so that a loss of dot products or distances sees the
    vectors that ``truncate_dim`` gives.

    Args:
        loss: A loss, or a function of columns.
        dims: How many numbers are kept, each once.
        weights: One for each of ``dims``; 1 where not given.

    Shape:
        Each column: (rows, dim). labels, texts and guide: what the loss takes. Labels that are vectors are truncated
        with the columns; a loss of such labels says so with ``labels_are_vectors = True``, as MSELoss does.
        Output: scalar.

    Raises:
        ValueError: If ``dims`` or ``weights`` do not fit each other or the vectors' width.
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
            raise ValueError(f"{len(weights)} weights for {len(dims)} dims; pass a weight for each")
        _check_weights(weights)
        self.dims = dims
        self.weights = weights
        self.loss = loss
        self.signature = replace(Signature.of(loss), name=type(self).__name__)
        self.labels_are_vectors = bool(getattr(loss, "labels_are_vectors", False))

    def forward(
        self, *columns: Tensor, labels: Tensor | None = None, texts: Tensor | None = None, guide: Tensor | None = None
    ) -> Tensor:
        width = same_shape(self, *columns)[0].shape[1]
        if max(self.dims) > width:
            raise ValueError(f"dims hold {max(self.dims)}, but the vectors have dim {width}; pass at most {width}")
        extras = _given({"labels": labels, "texts": texts, "guide": guide}, Signature.of(self.loss))
        if self.labels_are_vectors and labels is not None and labels.shape[-1] != width:
            raise ValueError(
                f"labels are vectors of dim {labels.shape[-1]}, but the columns have dim {width}; pass {width}"
            )
        losses = []
        for dim, weight in zip(self.dims, self.weights, strict=True):
            # Scores of `dim` candidates have the shape of vectors, so the loss says which of both its labels are.
            if self.labels_are_vectors and labels is not None:
                extras["labels"] = labels[..., :dim]
            losses.append(weight * self.loss(*(column[:, :dim] for column in columns), **extras))
        return torch.stack(losses).sum()

    def check_labels(self, labels: Tensor) -> None:
        """Raise what the loss itself raises."""
        _check_labels(self.loss, labels)

    def check_data(self, data: Data) -> None:
        """Raise what the loss itself raises."""
        _check_data(self.loss, data)

    def extra_repr(self) -> str:
        return f"dims={self.dims}, weights={self.weights}"


@without_model
class WeightedSum(nn.Module):
    """Weighted sum of losses of the same columns.

        loss = sum_k weight_k * loss_k(columns)

    All losses are given all columns, in one order, whatever each calls them: ``first, second`` and ``anchor, positive``
    go together. The data's names are those of the loss that names most columns, the first of these. A ranking loss
    takes both texts of every row for alike, whatever the label says that another loss learns from.

    Args:
        pairs: Each a loss, or a function of columns, and its weight.

    Shape:
        Each column: (rows, dim). labels, texts and guide: given to those losses that take them. Output: scalar.

    Raises:
        ValueError: If the losses take different numbers of columns, or the same in another order, or a weight is
            negative.
        TypeError: If a loss is not callable, or none takes an extra that was given.

    Example:
        >>> from sbert.losses import AnglELoss, CosineSimilarityLoss
        >>> loss = WeightedSum((CosineSimilarityLoss(), 2.0), (AnglELoss(), 1.0))
        >>> loss(torch.eye(2), torch.eye(2), labels=torch.tensor([1.0, 0.5]))
        tensor(0.9431)
    """

    def __init__(self, *pairs: tuple[Loss, float]) -> None:
        super().__init__()
        if not pairs:
            raise ValueError("WeightedSum was given nothing; pass pairs of a loss and its weight")
        self.weights = tuple(weight for _, weight in pairs)
        _check_weights(self.weights)
        losses = [loss for loss, _ in pairs]
        self.signature = Signature.together(type(self).__name__, [Signature.of(loss) for loss in losses])
        self.losses = tuple(losses)
        # A tuple may hold functions, but only a ModuleList shows the losses' weights to the optimizer.
        self.registered = nn.ModuleList(loss for loss in losses if isinstance(loss, nn.Module))
        self.labels_are_vectors = any(getattr(loss, "labels_are_vectors", False) for loss in losses)

    def forward(
        self, *columns: Tensor, labels: Tensor | None = None, texts: Tensor | None = None, guide: Tensor | None = None
    ) -> Tensor:
        signatures = [Signature.of(loss) for loss in self.losses]
        given = _given({"labels": labels, "texts": texts, "guide": guide}, *signatures)
        values = []
        for loss, weight, signature in zip(self.losses, self.weights, signatures, strict=True):
            asked = {name: extra for name, extra in given.items() if name in signature.extras}
            values.append(weight * loss(*columns, **asked))
        return torch.stack(values).sum()

    def check_labels(self, labels: Tensor) -> None:
        """Raise what the first of the losses raises that does not take the labels."""
        for loss in self.losses:
            _check_labels(loss, labels)

    def check_data(self, data: Data) -> None:
        """Raise what the first of the losses raises that the data teaches nothing."""
        for loss in self.losses:
            _check_data(loss, data)

    def extra_repr(self) -> str:
        return f"weights={self.weights}"
