"""What losses ask of their columns, labels and settings, with errors that name the row and the remedy."""

from __future__ import annotations

import math
from typing import Protocol

import torch
from torch import Tensor


class Labelled(Protocol):
    """A loss that has labels."""

    def check_labels(self, labels: Tensor) -> None:
        """Raise a ValueError or TypeError for labels that the loss does not take."""


def check_positive(name: str, value: float) -> float:
    """Return ``value`` if it is above zero and finite, else raise a ValueError."""
    if not 0 < value < math.inf:
        raise ValueError(f"{name}={value} is not positive and finite; pass a number above 0")
    return value


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
