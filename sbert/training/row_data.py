"""Row data: what a loss takes of each row beside its texts and label, such as a weight, an id or a list of scores."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

RowData: TypeAlias = Mapping[str, Tensor | list[Any]]


def as_row_data(values: Sequence[Any]) -> Tensor | list[Any]:
    """One tensor of numbers, or of lists with as many numbers in each row; else the values themselves, as a list.

    Shape:
        Output: (rows,) or (rows, ...), int64 or bool if no number is a fraction; or a list of the rows' values.

    Example:
        >>> as_row_data([[0.5, 1], [2, 3]]).shape
        torch.Size([2, 2])
        >>> as_row_data(["q1", "q7"]), as_row_data([[1], [1, 2]])
        (['q1', 'q7'], [[1], [1, 2]])
    """
    try:
        array = np.asarray([value.tolist() if isinstance(value, Tensor) else value for value in values])
    except ValueError:  # Lists of different lengths.
        return list(values)
    if array.dtype.kind not in "biuf":
        return list(values)
    return torch.from_numpy(array.astype(np.int64) if array.dtype.kind in "iu" else array)


def of_rows(data: RowData, rows: npt.NDArray[np.int64], dtype: torch.dtype) -> dict[str, Tensor | list[Any]]:
    """The data of some rows; fractions in the model's dtype.

    Example:
        >>> data = {"weight": torch.tensor([0.5, 1.0, 2.0]), "id": ["a", "b", "c"]}
        >>> of_rows(data, np.array([2, 0]), torch.float32)
        {'weight': tensor([2.0000, 0.5000]), 'id': ['c', 'a']}
    """
    chosen: dict[str, Tensor | list[Any]] = {}
    for name, values in data.items():
        if isinstance(values, Tensor):
            part = values[torch.from_numpy(rows)]
            chosen[name] = part.to(dtype) if part.is_floating_point() else part
        else:
            chosen[name] = [values[row] for row in rows.tolist()]
    return chosen


def digest(data: RowData) -> bytes:
    """A digest of all values, by which a checkpoint recognizes them; empty without row data.

    Example:
        >>> digest({}), digest({"id": ["a"]}) == digest({"id": ["b"]})
        (b'', False)
    """
    found = hashlib.blake2b(digest_size=16)
    for name, values in data.items():
        found.update(name.encode() + b"\0")
        found.update(values.numpy().tobytes() if isinstance(values, Tensor) else repr(values).encode())
    return found.digest() if data else b""
