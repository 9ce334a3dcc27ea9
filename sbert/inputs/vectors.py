"""Vectors from the caller, as arrays, tensors or lists: checked and converted."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Array = npt.NDArray[np.number[Any]]

_ENCODE = "pass the result of model.encode(texts)"


def matrix(name: str, given: Any) -> Array | Tensor:
    """Convert vectors to a two-dimensional array or tensor of real numbers; a single vector becomes one row.

    Args:
        name: Name of the caller's argument, for errors.
        given: An array, a tensor, a list of vectors, or an object with ``__array__``.

    Shape:
        given: (rows, dim) or (dim,). Output: (rows, dim).

    Raises:
        TypeError: If this is not real numbers, for example texts or a model.
        ValueError: If the shape is wrong.

    Example:
        >>> matrix("queries", [1.0, 2.0]).shape
        (1, 2)
        >>> matrix("queries", ["A cat.", "A dog."])
        Traceback (most recent call last):
        TypeError: queries must hold numbers, not text (['A cat.', 'A dog.']); pass the result of model.encode(texts)
    """
    if not isinstance(given, (np.ndarray, Tensor)):
        try:
            tensors = isinstance(given, (list, tuple)) and given and all(isinstance(each, Tensor) for each in given)
            given = torch.stack(list(given)) if tensors else np.asarray(given)
        except (ValueError, RuntimeError) as error:  # The rows differ in length.
            raise ValueError(f"{name} must hold vectors of the same dim, and they differ; {_ENCODE}") from error
    if isinstance(given, np.ndarray) and given.dtype.kind not in "fiub":
        first = given.flat[0] if given.size else None
        what = f"text ({given.tolist()!r:.60})" if isinstance(first, (str, bytes)) else type(first).__name__
        raise TypeError(f"{name} must hold numbers, not {what}; {_ENCODE}")
    if isinstance(given, Tensor) and (given.is_complex() or given.layout != torch.strided):
        raise TypeError(f"{name} must be a dense tensor of real numbers, not of {given.dtype}; {_ENCODE}")
    if given.ndim == 1 and len(given):
        given = given[None]
    if given.ndim != 2 or not given.shape[1]:
        raise ValueError(f"{name} must have the shape (rows, dim) or (dim,), not {tuple(given.shape)}; {_ENCODE}")
    checked: Array | Tensor = given
    return checked


def tensor_of(array: Array | Tensor) -> Tensor:
    """Convert to a tensor, sharing memory if possible; int8 and uint8 keep their dtype."""
    if isinstance(array, Tensor):
        return array
    if array.dtype not in (np.float16, np.float32, np.float64, np.int8, np.uint8):
        array = array.astype(np.float32)
    if not (array.flags.c_contiguous and array.flags.writeable and array.dtype.isnative):
        # torch.from_numpy warns about read-only arrays.
        array = np.array(array, array.dtype.newbyteorder("="), order="C")
    return torch.from_numpy(array)


def vectors_of(name: str, given: Any) -> Tensor:
    """Convert vectors in memory to a float32 or float64 tensor.

    Shape:
        given: (rows, dim) or (dim,). Output: (rows, dim).

    Raises:
        TypeError: If this is not floats, for example texts or quantized codes.
        ValueError: If the shape is wrong.

    Example:
        >>> vectors_of("vectors", np.ones(3, np.float16))
        tensor([[1., 1., 1.]])
    """
    tensor = tensor_of(matrix(name, given))
    if tensor.dtype in (torch.int8, torch.uint8):
        raise TypeError(
            f"{name} must hold floats, not codes of {tensor.dtype}; search codes with semantic_search, or pass"
            " sbert.search.dequantize(codes, precision)"
        )
    return tensor if tensor.dtype in (torch.float32, torch.float64) else tensor.float()
