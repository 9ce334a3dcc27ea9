"""Checks of a loss's columns, labels and settings; the errors name the row and the remedy."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sbert.batch import TokenEmbeddings
from sbert.functional import token_rows


class Data(NamedTuple):
    """What a loss is told about the data set before training.

    Args:
        rows: Number of rows in the largest batch.
        columns: Number of text columns.
        labels: Labels of all rows; None if the data has none.
    """

    rows: int
    columns: int
    labels: Tensor | None


def run_check(loss: object, checked: Tensor | Data) -> None:
    """Call the loss's ``check_labels`` or ``check_data``, if it has one; a plain function accepts everything."""
    check = getattr(loss, "check_data", None) if isinstance(checked, Data) else getattr(loss, "check_labels", None)
    if check is not None:
        check(checked)


def check_temperature(temperature: float, name: str = "temperature") -> float:
    """Return ``temperature`` if it is above zero and finite, else raise a ValueError."""
    if not 0 < temperature < math.inf:
        raise ValueError(f"{name}={temperature} is not positive and finite; pass a number above 0")
    return temperature


def check_margin(margin: float, name: str = "margin") -> float:
    """Return ``margin`` if it is zero or more and finite, else raise a ValueError."""
    if not 0 <= margin < math.inf:
        raise ValueError(f"{name}={margin} is negative or not finite; pass 0 or more")
    return margin


def check_columns(loss: object, *columns: Any) -> list[Any]:
    """Check that the columns are matrices of one shape, and return them in one dtype, at least float32.

    In bfloat16, whose precision near 1 is 1/128, similarities would be too inaccurate. Of a loss with
    ``similarity="maxsim"``, the columns are ``TokenEmbeddings`` of as many texts.
    """
    if getattr(loss, "similarity", None) == "maxsim":
        if not all(isinstance(column, TokenEmbeddings) for column in columns):
            raise TypeError(f"{type(loss).__name__} with 'maxsim' takes token vectors; use a model without a pooling")
        return [token_rows("a column", column) for column in columns]
    name, dtype = type(loss).__name__, torch.float32
    for column in columns:
        if not isinstance(column, Tensor) or not column.is_floating_point():
            kind = f"{column.dtype} tensor" if isinstance(column, Tensor) else type(column).__name__
            raise TypeError(f"{name} takes columns of vectors, floating-point tensors (rows, dim), not a {kind}")
        dtype = torch.promote_types(dtype, column.dtype)
    shapes = [tuple(column.shape) for column in columns]
    if not shapes or len(shapes[0]) != 2 or len(set(shapes)) > 1:
        listed = ", ".join(map(str, shapes)) or "none"
        raise ValueError(f"{name} takes columns of one shape (rows, dim); found {listed}")
    if not shapes[0][0]:
        raise ValueError(f"{name} was given no rows; pass at least 1")
    return [column.to(dtype) for column in columns]


def check_dim(loss: object, vectors: Tensor, dim: int) -> None:
    """Raise a ValueError unless the vectors have the dimension for which the loss has weights."""
    if vectors.shape[-1] != dim:
        what = f"vectors have dim {vectors.shape[-1]}, but {type(loss).__name__} was made with dim={dim}"
        raise ValueError(f"{what}; pass dim={vectors.shape[-1]}; truncated vectors need a loss of their own")


def project(vectors: Tensor, layer: nn.Linear) -> Tensor:
    """The layer in the more precise dtype of both, so that neither float64 vectors nor float64 weights are rounded."""
    dtype = torch.promote_types(vectors.dtype, layer.weight.dtype)
    return F.linear(vectors.to(dtype), layer.weight.to(dtype), layer.bias.to(dtype))


def check_mask(loss: object, mask: Tensor, shape: torch.Size) -> None:
    """Raise unless a mask is boolean (TypeError) and of this shape (ValueError)."""
    name = type(loss).__name__
    if mask.dtype != torch.bool:
        raise TypeError(f"{name} was given a mask of {mask.dtype}; pass a boolean one, True where a document is")
    if mask.shape != shape:
        raise ValueError(f"{name} takes a mask of shape {tuple(shape)}, not {tuple(mask.shape)}")


def check_labelled(loss: object, *columns: Tensor, labels: Tensor) -> list[Tensor]:
    """The columns, checked by ``check_columns``, and the labels, one number for each row."""
    columns = tuple(check_columns(loss, *columns))
    return [*columns, require_labels(loss, labels, (len(columns[0]),))]


def require_labels(loss: object, labels: Tensor | None, shape: tuple[int, ...]) -> Tensor:
    """Check the labels' shape and, on the CPU, their values: on a GPU this would wait for the device."""
    name = type(loss).__name__
    if labels is None:
        raise ValueError(f"{name} needs labels; give the data a column of labels")
    if not isinstance(labels, Tensor):
        raise TypeError(f"{name} takes labels as a tensor, not a {type(labels).__name__}; pass torch.tensor(labels)")
    if tuple(labels.shape) != shape:
        raise ValueError(f"{name} takes labels of shape {shape} for these columns, not {tuple(labels.shape)}")
    if labels.device.type == "cpu":
        run_check(loss, labels)
    return labels


def check_values(loss: object, labels: Tensor, good: Tensor, expected: str) -> None:
    """Raise a ValueError that names the first row where ``good`` is false.

    Args:
        loss: The loss, whose name is part of the message.
        labels: Shape (rows, ...).
        good: Boolean, of the same shape.
        expected: The values that the loss takes, a semicolon, the remedy.
    """
    if bool(good.all()):
        return
    place = tuple((~good).nonzero()[0].tolist())
    value = labels[place].item()
    where = ", ".join(map(str, place))
    shown = f"{value:g}" if isinstance(value, float) else str(value)
    raise ValueError(f"labels[{where}] is {shown}; {type(loss).__name__} takes {expected}")


def check_finite_labels(loss: object, labels: Tensor) -> None:
    """Raise unless every label is a finite number."""
    remedy = "leave out rows without a label, or check whether their teacher ran in half precision"
    check_values(loss, labels, torch.isfinite(labels), f"finite numbers; {remedy}")


def check_between(loss: object, labels: Tensor, low: int, high: int, remedy: str) -> None:
    """Raise unless every label is between ``low`` and ``high``."""
    check_values(loss, labels, (labels >= low) & (labels <= high), f"{low} to {high}{remedy}")


def check_whole(loss: object, labels: Tensor, remedy: str) -> None:
    """Raise a TypeError unless the labels have an integer dtype."""
    if labels.is_floating_point() or labels.dtype == torch.bool:
        raise TypeError(f"labels are {labels.dtype}; {type(loss).__name__} takes whole numbers; {remedy}")


def check_class(loss: object, labels: Tensor, classes: int) -> None:
    """Raise unless every label is an integer from 0 to ``classes - 1``."""
    check_whole(loss, labels, "number the classes from 0")
    remedy = "leave out rows without a gold label (-1), or pass the number of classes in the data"
    check_between(loss, labels, 0, classes - 1, f"; {remedy}")
