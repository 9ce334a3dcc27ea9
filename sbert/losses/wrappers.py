"""Losses that combine other losses: MatryoshkaLoss, AdaptiveLayerLoss, WeightedSum."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sbert.losses.checks import Data, check_columns, check_temperature, run_check
from sbert.losses.module import LossModule, sum_parts
from sbert.losses.signature import Loss, Signature


class _Combination(LossModule):
    """What the losses below share: other losses, a weight for each term, and the extras that the losses take.

    Args:
        losses: Modules, or functions of columns.
        weights: The weights of the terms; None for 1 each.
        terms: Number of terms.
    """

    def __init__(self, losses: Sequence[Loss], weights: Sequence[float] | None, terms: int) -> None:
        super().__init__()
        self.weights: tuple[float, ...] = (1.0,) * terms if weights is None else tuple(weights)
        valid = len(self.weights) == terms and all(0 <= weight < math.inf for weight in self.weights)
        if not valid or not any(self.weights):
            raise ValueError(f"weights={self.weights}; pass {terms} numbers of 0 or more, not all of them 0")
        self.signature: Signature = Signature.combine(type(self).__name__, [Signature.of(loss) for loss in losses])
        if names := [type(loss).__name__ for loss in losses if hasattr(loss, "encode")]:
            raise TypeError(f"{names[0]} encodes by itself, which {type(self).__name__} does not call; train with it")
        self.losses: tuple[Loss, ...] = tuple(losses)
        # A tuple can hold functions, but the optimizer finds the losses' weights only in a ModuleList.
        self.registered: nn.ModuleList = nn.ModuleList(loss for loss in losses if isinstance(loss, nn.Module))

    def _select_extras(self, extras: Mapping[str, Any]) -> dict[str, Any]:
        """The extras that are not None, each of which a loss must take."""
        passed = {name: extra for name, extra in extras.items() if extra is not None}
        if unknown := [name for name in passed if name not in self.signature.by_name]:
            raise TypeError(f"{', '.join(unknown)} given, which no loss in {self.signature.name} takes; leave it out")
        return passed

    def check_labels(self, labels: Tensor) -> None:
        """Raise the error of the first loss that rejects the labels."""
        for loss in self.losses:
            run_check(loss, labels)

    def check_data(self, data: Data) -> None:
        """Raise the error of the first loss that rejects the data."""
        for loss in self.losses:
            run_check(loss, data)


class MatryoshkaLoss(_Combination):
    """Weighted sum of a loss on vectors truncated to several dimensions.

        loss = sum_d weight_d * loss(columns[:, :d])

    Truncated vectors are not normalized again: the loss sees the same vectors that ``truncate_dim`` gives.

    Args:
        loss: A loss module, or a function of columns.
        dims: The dimensions to truncate to, all different.
        weights: One weight for each of ``dims``; by default all 1.

    Shape:
        Each column: (rows, dim). labels, texts, guide and row data: as the loss takes them. Output: scalar.
        Labels that are vectors are truncated with the columns; a loss with such labels sets the class attribute
        ``labels_are_vectors = True``, as MSELoss does.

    Raises:
        ValueError: If a dimension or a weight is invalid, or a dimension is greater than that of the vectors.
        TypeError: If the loss is not callable, or does not take an extra that was passed.

    References:
        Kusupati et al., 2022, equation 1. https://arxiv.org/abs/2205.13147

    Example:
        >>> from sbert.losses import CosineSimilarityLoss
        >>> loss = MatryoshkaLoss(CosineSimilarityLoss(), dims=[2, 1])
        >>> loss(torch.ones(1, 2), torch.tensor([[1.0, -1.0]]), labels=torch.tensor([1.0]))
        tensor(1.)
    """

    def __init__(self, loss: Loss, dims: Sequence[int], weights: Sequence[float] | None = None) -> None:
        dims = tuple(dims)
        parts = loss.modules() if isinstance(loss, nn.Module) else ()
        if several := [type(part).__name__ for part in parts if getattr(part, "takes_several_vectors", False)]:
            raise ValueError(f"{several[0]} takes several vectors side by side; put MatryoshkaLoss into it instead")
        if not dims or min(dims) < 1 or len(set(dims)) < len(dims):
            raise ValueError(f"dims={dims}; pass one or more different whole numbers above 0")
        super().__init__([loss], weights, len(dims))
        self.dims: tuple[int, ...] = dims

    def forward(self, *columns: Tensor, **extras: Any) -> Tensor:
        full = check_columns(self, *columns)[0].shape[1]
        if max(self.dims) > full:
            raise ValueError(f"dims contains {max(self.dims)}, but the vectors have dim {full}; pass at most {full}")
        passed = self._select_extras(extras)
        # The shape does not tell whether labels are vectors: the scores of `dim` candidates have the same one.
        vectors = passed.get("labels") if self.signature.labels_are_vectors else None
        if vectors is not None and vectors.shape[-1] != full:
            what = f"labels are vectors of dim {vectors.shape[-1]}, but the columns have dim {full}"
            raise ValueError(f"{what}; pass labels of that dim")
        values = []
        for dim, weight in zip(self.dims, self.weights, strict=True):
            if vectors is not None:
                passed["labels"] = vectors[..., :dim]
            values.append(weight * sum_parts(self.losses[0](*(column[:, :dim] for column in columns), **passed)))
        return torch.stack(values).sum()


class AdaptiveLayerLoss(_Combination):
    """A loss on the vectors of every layer, so that a model is useful with its first layers alone.

        loss = w_L l(x_L) + mean over l < L of w_l l(x_l) + k t KL( softmax(x_L / t) || softmax(x_l / t) )

    The columns hold the vectors x_1 to x_L of all layers side by side: a loss sees vectors only, and a subclass of
    ``Transformer`` concatenates them in its ``forward``. The Kullback-Leibler divergence is the mean over all vectors,
    and has no gradient at x_L, from which the other layers learn.

    With a ``MatryoshkaLoss`` as the loss, this is 2d-Matryoshka: vectors that can be truncated, of every layer.
    Here all layers count in every step; the paper draws one.

    Args:
        loss: A loss module, or a function of columns.
        layers: L, the number of layers.
        weights: w, one weight for each layer, the last layer last; by default all 1.
        kl_weight: k; 0 leaves the divergence out.
        kl_temperature: t.

    Shape:
        Each column: (rows, layers * dim). labels, texts, guide and row data: as the loss takes them. Output: scalar.

    Raises:
        ValueError: If a setting is invalid, or the vectors cannot be divided into so many layers.
        TypeError: If the loss is not callable, or does not take an extra that was passed.

    References:
        Li et al., 2024 (2d-Matryoshka). https://arxiv.org/abs/2402.14776

    Example:
        >>> from sbert.losses import CosineSimilarityLoss
        >>> loss = AdaptiveLayerLoss(CosineSimilarityLoss(), layers=2, kl_weight=0)
        >>> second = torch.tensor([[1.0, 0.0, 0.0, 1.0]])  # The first layer sees equal texts, the last does not.
        >>> loss(torch.tensor([[1.0, 0.0, 1.0, 0.0]]), second, labels=torch.tensor([1.0]))
        tensor(1.)
    """

    takes_several_vectors = True

    def __init__(
        self,
        loss: Loss,
        layers: int,
        weights: Sequence[float] | None = None,
        kl_weight: float = 1.0,
        kl_temperature: float = 0.3,
    ) -> None:
        if layers < 2 or not 0 <= kl_weight < math.inf:
            raise ValueError(f"layers={layers}, kl_weight={kl_weight}; pass 2 layers or more, a weight of 0 or more")
        super().__init__([loss], weights, layers)
        self.layers: int = layers
        self.kl_weight: float = kl_weight
        self.kl_temperature: float = check_temperature(kl_temperature)

    def forward(self, *columns: Tensor, **extras: Any) -> Tensor:
        passed, columns = self._select_extras(extras), tuple(check_columns(self, *columns))
        if columns[0].shape[1] % self.layers:
            raise ValueError(f"vectors of dim {columns[0].shape[1]} are not those of {self.layers} layers side by side")
        layers = list(zip(*(column.chunk(self.layers, 1) for column in columns), strict=True))
        losses: list[Tensor] = [sum_parts(self.losses[0](*vectors, **passed)) for vectors in layers]
        values = [weight * loss for weight, loss in zip(self.weights, losses, strict=True)]
        loss = values[-1] + torch.stack(values[:-1]).mean()
        if not self.kl_weight:
            return loss
        *logs, last = [(torch.cat(x) / self.kl_temperature).log_softmax(1) for x in layers]
        target = last.detach()
        divergences = [F.kl_div(log, target, reduction="batchmean", log_target=True) for log in logs]
        return loss + self.kl_weight * self.kl_temperature * torch.stack(divergences).mean()


class WeightedSum(_Combination):
    """Weighted sum of several losses on the same columns.

        loss = sum_k weight_k * loss_k(columns)

    All losses get all columns in the same order, whatever names they use: ``first, second`` and ``anchor, positive``
    can be combined. The data uses the names of the loss with the most columns; if several have the most, of the
    first. A ranking loss treats every row as a pair of similar texts, whatever its label says.

    Args:
        pairs: Tuples of a loss (a module, or a function of columns) and its weight.

    Shape:
        Each column: (rows, dim). labels, texts, guide and row data: passed to the losses that take
        them. Output: scalar.

    Raises:
        ValueError: If the losses take different numbers of columns, or the same names in a different order, or a
            weight is negative.
        TypeError: If a loss is not callable, or no loss takes an extra that was passed.

    Example:
        >>> from sbert.losses import AnglELoss, CosineSimilarityLoss
        >>> loss = WeightedSum((CosineSimilarityLoss(), 2.0), (AnglELoss(), 1.0))
        >>> loss(torch.eye(2), torch.eye(2), labels=torch.tensor([1.0, 0.5]))
        tensor(0.9431)
    """

    def __init__(self, *pairs: tuple[Loss, float]) -> None:
        super().__init__([loss for loss, _ in pairs], [weight for _, weight in pairs], len(pairs))

    def forward(self, *columns: Tensor, **extras: Any) -> Tensor:
        passed, values = self._select_extras(extras), []
        for loss, weight in zip(self.losses, self.weights, strict=True):
            taken = Signature.of(loss).by_name
            value = loss(*columns, **{name: passed[name] for name in passed if name in taken})
            values.append(weight * sum_parts(value))
        return torch.stack(values).sum()

    def extra_repr(self) -> str:
        return f"weights={self.weights}"
