"""Vectors that a caller gives, in whatever holds them: checked in one way."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

_ENCODE = "pass what model.encode(texts) gives"


def matrix(name: str, given: Any) -> np.ndarray | Tensor:
    """Vectors as an array or a tensor of real numbers with two dimensions; one vector becomes one row.

    Args:
        name: What the caller calls them.
        given: Array, tensor, list of vectors, or what NumPy makes an array of.

    Shape:
        given: (rows, dim) or (dim,). Output: (rows, dim).

    Raises:
        TypeError: If these are texts, a model, or other things than real numbers.
        ValueError: If the shape is another.

    Example:
        >>> matrix("queries", [1.0, 2.0]).shape
        (1, 2)
        >>> matrix("queries", ["A cat.", "A dog."])
        Traceback (most recent call last):
        TypeError: queries must hold numbers, not text (['A cat.', 'A dog.']); pass what model.encode(texts) gives
    """
    if isinstance(given, (str, bytes)):
        raise TypeError(f"{name} must hold numbers, not text ({given!r:.60}); {_ENCODE}")
    if not isinstance(given, (np.ndarray, Tensor)):
        given = _arrayed(name, given)
    if isinstance(given, np.ndarray) and given.dtype.kind not in "fiub":
        if given.dtype.kind in "US" or (given.size and isinstance(given.flat[0], str)):
            raise TypeError(f"{name} must hold numbers, not text ({given.tolist()!r:.60}); {_ENCODE}")
        raise TypeError(f"{name} must hold real numbers, not {given.dtype}; {_ENCODE}")
    if isinstance(given, Tensor) and (given.is_complex() or given.layout != torch.strided):
        kind = given.dtype if given.is_complex() else given.layout
        raise TypeError(f"{name} must be a dense tensor of real numbers, not of {kind}; {_ENCODE}")
    if given.ndim == 1 and len(given):
        given = given[None]
    if given.ndim != 2 or not given.shape[1]:
        raise ValueError(f"{name} must have the shape (rows, dim) or (dim,), not {tuple(given.shape)}; {_ENCODE}")
    checked: np.ndarray | Tensor = given
    return checked


def _arrayed(name: str, given: Any) -> np.ndarray | Tensor:
    listed = isinstance(given, (list, tuple))
    if not listed and not hasattr(given, "__array__"):
        raise TypeError(
            f"{name} must be an array, a tensor or a list of vectors, not of type {type(given).__name__}; {_ENCODE}"
        )
    try:
        if listed and len(given) and all(isinstance(each, Tensor) for each in given):
            return torch.stack(list(given))
        array: np.ndarray = np.asarray(given)
        return array
    except (ValueError, RuntimeError) as error:  # Of rows that differ in length.
        raise ValueError(f"{name} must hold vectors of one dim, and they differ; {_ENCODE}") from error


def tensor_of(array: np.ndarray | Tensor) -> Tensor:
    """A tensor, of the array's own memory where that can be; int8 and uint8 stay what they are."""
    if isinstance(array, Tensor):
        return array
    if array.dtype not in (np.float16, np.float32, np.float64, np.int8, np.uint8):
        array = array.astype(np.float32)
    if not (array.flags.c_contiguous and array.flags.writeable and array.dtype.isnative):
        # torch warns of arrays that it could write to but must not.
        array = np.array(array, array.dtype.newbyteorder("="), order="C")
    return torch.from_numpy(array)


def vectors_of(name: str, given: Any) -> Tensor:
    """Vectors all of which are in memory, as floats of 32 bits or 64.

    Shape:
        given: (rows, dim) or (dim,). Output: (rows, dim).

    Raises:
        TypeError: If these are texts, codes, or other things than real numbers.
        ValueError: If the shape is another.

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
