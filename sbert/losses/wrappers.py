"""Losses made of losses: MatryoshkaLoss, WeightedSum."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from sbert.losses.checks import same_shape

Loss = Callable[..., Tensor]

_EXTRAS = ("labels", "texts", "guide")


def _function(loss: Loss) -> Callable[..., Tensor]:
    """What bears the loss's parameters: the function, or the module's ``forward``."""
    if not callable(loss):
        raise TypeError(f"{loss!r} is no loss; pass a function of columns, or a module")
    function: Callable[..., Tensor] = inspect.unwrap(loss)
    return function.forward if isinstance(function, nn.Module) else function


def _columns(loss: Loss) -> list[str]:
    """The parameters that are columns, as a signature prints them: ``anchor``, ``positive``, ``*negatives``."""
    found = []
    for name, parameter in inspect.signature(_function(loss)).parameters.items():
        if name not in _EXTRAS and parameter.kind not in (parameter.KEYWORD_ONLY, parameter.VAR_KEYWORD):
            found.append("*" * (parameter.kind == parameter.VAR_POSITIONAL) + name)
    return found


def _extras(loss: Loss) -> dict[str, inspect.Parameter]:
    """The parameters that are no columns, as keywords."""
    parameters = inspect.signature(_function(loss)).parameters
    return {
        name: parameters[name].replace(kind=inspect.Parameter.KEYWORD_ONLY) for name in _EXTRAS if name in parameters
    }


def _given(extras: dict[str, Tensor | None], *losses: Loss) -> dict[str, Tensor]:
    """The extras that were given, once it is known that some loss asks for each of them."""
    given = {name: extra for name, extra in extras.items() if extra is not None}
    unasked = [name for name in given if not any(name in _extras(loss) for loss in losses)]
    if unasked:
        names = " and ".join(map(_name, losses))
        raise TypeError(f"{', '.join(unasked)} given, which {names} does not take; leave it out")
    return given


def _name(loss: Loss) -> str:
    name: str = getattr(loss, "__name__", type(loss).__name__)
    return name


def _check_labels(loss: Loss, labels: Tensor) -> None:
    """A plain function has no opinion about labels."""
    check = getattr(loss, "check_labels", None)
    if check is not None:
        check(labels)


def _check_weights(weights: Sequence[float]) -> None:
    if not all(0 <= weight < math.inf for weight in weights) or not any(weights):
        raise ValueError(f"weights={tuple(weights)}; pass numbers of 0 or more, not all of them 0")


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
        # Where inspect finds the names of the columns.
        self.__wrapped__ = _function(loss)
        self.labels_are_vectors = bool(getattr(loss, "labels_are_vectors", False))

    def forward(
        self, *columns: Tensor, labels: Tensor | None = None, texts: Tensor | None = None, guide: Tensor | None = None
    ) -> Tensor:
        width = same_shape(self, *columns)[0].shape[1]
        if max(self.dims) > width:
            raise ValueError(f"dims hold {max(self.dims)}, but the vectors have dim {width}; pass at most {width}")
        extras = _given({"labels": labels, "texts": texts, "guide": guide}, self.loss)
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

    def extra_repr(self) -> str:
        return f"dims={self.dims}, weights={self.weights}"


class _Parameters:
    """A loss with the parameters of several: the columns that all share, and whatever extras one of them takes."""

    def __init__(self, losses: Sequence[Loss]) -> None:
        self.function = _function(losses[0])
        parameters = inspect.signature(self.function).parameters.values()
        columns = [
            parameter
            for parameter in parameters
            if parameter.name not in _EXTRAS and parameter.kind != inspect.Parameter.VAR_KEYWORD
        ]
        extras: dict[str, inspect.Parameter] = {}
        for loss in losses:
            for name, parameter in _extras(loss).items():
                if name not in extras or parameter.default is parameter.empty:
                    extras[name] = parameter
        self.__signature__ = inspect.Signature([*columns, *extras.values()])

    def __call__(self, *columns: Tensor, **extras: Tensor) -> Tensor:
        return self.function(*columns, **extras)


class WeightedSum(nn.Module):
    """Weighted sum of losses of the same columns.

        loss = sum_k weight_k * loss_k(columns)

    Args:
        pairs: Each a loss, or a function of columns, and its weight.

    Shape:
        Each column: (rows, dim). labels, texts and guide: given to those losses that take them. Output: scalar.

    Raises:
        ValueError: If the losses name their columns differently, or a weight is negative.
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
        first = _columns(losses[0])
        for loss in losses[1:]:
            if _columns(loss) != first:
                raise ValueError(
                    f"{_name(losses[0])} takes {', '.join(first)}, but {_name(loss)} takes {', '.join(_columns(loss))};"
                    " pass losses of the same columns"
                )
        self.losses = tuple(losses)
        # A tuple may hold functions, but only a ModuleList shows the losses' weights to the optimizer.
        self.registered = nn.ModuleList(loss for loss in losses if isinstance(loss, nn.Module))
        self.__wrapped__ = _Parameters(losses)
        self.labels_are_vectors = any(getattr(loss, "labels_are_vectors", False) for loss in losses)

    def forward(
        self, *columns: Tensor, labels: Tensor | None = None, texts: Tensor | None = None, guide: Tensor | None = None
    ) -> Tensor:
        given = _given({"labels": labels, "texts": texts, "guide": guide}, *self.losses)
        values = []
        for loss, weight in zip(self.losses, self.weights, strict=True):
            asked = _extras(loss)
            values.append(weight * loss(*columns, **{name: extra for name, extra in given.items() if name in asked}))
        return torch.stack(values).sum()

    def check_labels(self, labels: Tensor) -> None:
        """Raise what the first of the losses raises that does not take the labels."""
        for loss in self.losses:
            _check_labels(loss, labels)

    def extra_repr(self) -> str:
        return f"weights={self.weights}"
