"""What losses ask of their columns, labels and settings, with errors that name the row and the remedy."""

from __future__ import annotations

import functools
import inspect
import math
from typing import Any, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor, nn

Module = TypeVar("Module", bound=nn.Module)


class Data(NamedTuple):
    """What is known of the rows that a loss is to learn from.

    Args:
        rows: Of the largest batch.
        columns: Of text.
        labels: Of all rows, if they have any.
    """

    rows: int
    columns: int
    labels: Tensor | None


class Labelled(Protocol):
    """A loss that has labels."""

    def check_labels(self, labels: Tensor) -> None:
        """Raise a ValueError or TypeError for labels that the loss does not take."""


def is_model_like(value: object) -> bool:
    """Whether something turns texts into vectors or scores: a model of this library or another, or a part of one."""
    if not isinstance(value, nn.Module):
        return False
    # Not hasattr(value, ...): reading a tokenizer may build one.
    return any(
        "tokenizer" in vars(one) or hasattr(one, "save_pretrained") for one in (value, *type(value).__mro__[:-1])
    )


def without_model(loss: type[Module]) -> type[Module]:
    """Have a class of losses answer a model among its arguments with the call that is right."""
    construct = loss.__init__
    own = [] if construct is nn.Module.__init__ else list(inspect.signature(construct).parameters.values())[1:]
    starred = [f"*{one.name}" for one in own if one.kind is one.VAR_POSITIONAL]
    needed = [one.name for one in own if one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD]

    @functools.wraps(construct)
    def checked(self: Module, *values: Any, **named: Any) -> None:
        models = [value for value in (*values, *named.values()) if is_model_like(value)]
        if models or "model" in named:
            given = type(models[0] if models else named["model"]).__name__
            name = type(self).__name__
            raise TypeError(
                f"{name} was given a model ({given}); a loss is a function of vectors and never sees the model. Give"
                f" that to the trainer: Trainer(model, data, {name}({', '.join(needed + starred)}))"
            )
        construct(self, *values, **named)

    loss.__init__ = checked  # type: ignore[assignment]
    return loss


def check_temperature(temperature: float) -> float:
    """Return ``temperature`` if it is above zero and finite, else raise a ValueError."""
    if not 0 < temperature < math.inf:
        raise ValueError(f"temperature={temperature} is not positive and finite; pass a number above 0")
    return temperature


def check_margin(margin: float) -> float:
    """Return ``margin`` if it is zero or more and finite, else raise a ValueError."""
    if not 0 <= margin < math.inf:
        raise ValueError(f"margin={margin} is negative or not finite; pass 0 or more")
    return margin


def same_shape(loss: object, *columns: Tensor) -> list[Tensor]:
    """The columns in one dtype, float32 or wider, once they are known to be matrices of one shape.

    The similarities of bfloat16 vectors would else be sums in bfloat16, whose steps near 1 are 1/128.
    """
    name = type(loss).__name__
    for column in columns:
        if not isinstance(column, Tensor) or not column.is_floating_point():
            found = f"{column.dtype} tensor" if isinstance(column, Tensor) else type(column).__name__
            raise TypeError(f"{name} takes columns of vectors, floating tensors (rows, dim), not a {found}")
    shapes = [tuple(column.shape) for column in columns]
    if not shapes or len(shapes[0]) != 2 or len(set(shapes)) > 1:
        found = ", ".join(map(str, shapes)) or "none"
        raise ValueError(f"{name} takes columns of one shape (rows, dim); found {found}")
    if not shapes[0][0]:
        raise ValueError(f"{name} was given no rows; pass at least 1")
    dtype = torch.float32
    for column in columns:
        dtype = torch.promote_types(dtype, column.dtype)
    return [column.to(dtype) for column in columns]


def check_differ(loss: object, data: Data, reason: str) -> None:
    """Raise a ValueError where all labels of the data are equal, which teaches the loss nothing for some reason."""
    labels = data.labels
    if labels is not None and labels.ndim == 1 and bool((labels == labels[0]).all()):
        raise ValueError(
            f"every label is {labels[0].item():g}, which teaches {type(loss).__name__} nothing: {reason}; add rows of"
            " another label"
        )


def check_several(loss: object, data: Data, least: int = 2) -> None:
    """Raise a ValueError where no batch has as many rows as a loss needs that compares them with each other."""
    if data.rows < least:
        raise ValueError(
            f"batches of at most {data.rows} row{'s' * (data.rows > 1)} teach {type(loss).__name__} nothing, which"
            f" compares the rows of a batch with each other; pass {least} rows or more, and a batch_size of as many"
        )


def check_rows(loss: Labelled, labels: Tensor | None, shape: tuple[int, ...]) -> Tensor:
    """Return the labels if they have this shape and, where looking costs no synchronisation, the right values."""
    name = type(loss).__name__
    if labels is None:
        raise ValueError(f"{name} needs labels; give the data a column of labels")
    if not isinstance(labels, Tensor):
        raise TypeError(f"{name} takes labels as a tensor, not a {type(labels).__name__}; pass torch.tensor(labels)")
    if tuple(labels.shape) != shape:
        raise ValueError(f"{name} takes labels of shape {shape} for these columns, not {tuple(labels.shape)}")
    if labels.device.type == "cpu":
        loss.check_labels(labels)
    return labels


def check_values(loss: object, labels: Tensor, good: Tensor, expected: str) -> None:
    """Raise a ValueError that names the first row whose labels are not ``good``.

    Args:
        loss: The loss, for its name.
        labels: (rows, ...).
        good: The same shape, boolean.
        expected: What the loss takes, a semicolon, the remedy.
    """
    if bool(good.all()):
        return
    place = tuple((~good).nonzero()[0].tolist())
    value = labels[place].item()
    where = ", ".join(map(str, place))
    found = f"{value:g}" if isinstance(value, float) else str(value)
    raise ValueError(f"labels[{where}] is {found}; {type(loss).__name__} takes {expected}")


def check_finite(loss: object, labels: Tensor, remedy: str = "leave out rows without a label") -> None:
    """Raise unless every label is a finite number."""
    if labels.is_complex():
        raise TypeError(f"labels are {labels.dtype}; {type(loss).__name__} takes real numbers; pass their real part")
    check_values(loss, labels, torch.isfinite(labels), f"finite numbers; {remedy}")


def check_binary(loss: object, labels: Tensor) -> None:
    """Raise unless every label is 0 or 1."""
    remedy = "0 (different) or 1 (alike); compare graded scores with a threshold when you read them"
    check_values(loss, labels, (labels == 0) | (labels == 1), remedy)


def check_whole(loss: object, labels: Tensor, remedy: str) -> None:
    """Raise a TypeError unless the labels have an integer dtype."""
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise TypeError(f"labels are {labels.dtype}; {type(loss).__name__} takes whole numbers; {remedy}")
