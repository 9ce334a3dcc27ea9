"""Vectors from the caller, as arrays, tensors or lists: checked and converted."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Array = npt.NDArray[np.number[Any]]

_ENCODE = "pass the result of model.encode(texts)"


def matrix(name: str, vectors: Any) -> Array | Tensor:
    """Convert vectors to a two-dimensional array or tensor of real numbers; a single vector becomes one row.

    Args:
        name: Name of the caller's argument, for errors.
        vectors: An array, a tensor, a list of vectors, or an object with ``__array__``.

    Shape:
        vectors: (rows, dim) or (dim,). Output: (rows, dim).

    Raises:
        TypeError: If this is not real numbers, for example texts or a model.
        ValueError: If the shape is wrong.

    Example:
        >>> from sbert.inputs.vectors import matrix
        >>> matrix("queries", [1.0, 2.0]).shape
        (1, 2)
        >>> matrix("queries", ["A cat.", "A dog."])
        Traceback (most recent call last):
        TypeError: queries must hold numbers, not text (['A cat.', 'A dog.']); pass the result of model.encode(texts)
    """
    if not isinstance(vectors, (np.ndarray, Tensor)):
        try:
            tensors = (
                isinstance(vectors, (list, tuple)) and vectors and all(isinstance(vector, Tensor) for vector in vectors)
            )
            vectors = torch.stack(list(vectors)) if tensors else np.asarray(vectors)
        except (ValueError, RuntimeError) as error:  # The rows differ in length.
            raise ValueError(f"{name} must hold vectors of the same dim, and they differ; {_ENCODE}") from error
    if isinstance(vectors, np.ndarray) and vectors.dtype.kind not in "fiub":
        first = vectors.flat[0] if vectors.size else None
        what = f"text ({vectors.tolist()!r:.60})" if isinstance(first, (str, bytes)) else type(first).__name__
        raise TypeError(f"{name} must hold numbers, not {what}; {_ENCODE}")
    if isinstance(vectors, Tensor) and (vectors.is_complex() or vectors.layout != torch.strided):
        raise TypeError(f"{name} must be a dense tensor of real numbers, not of {vectors.dtype}; {_ENCODE}")
    if vectors.ndim == 1 and len(vectors):
        vectors = vectors[None]
    if vectors.ndim != 2 or not vectors.shape[1]:
        raise ValueError(f"{name} must have the shape (rows, dim) or (dim,), not {tuple(vectors.shape)}; {_ENCODE}")
    return vectors  # type: ignore[no-any-return]


def tensor_of(array: Array | Tensor) -> Tensor:
    """Convert to a tensor, sharing memory if possible; int8 and uint8 keep their dtype."""
    if isinstance(array, Tensor):
        return array
    if array.dtype not in (np.float16, np.float32, np.float64, np.int8, np.uint8):
        array = array.astype(np.float32)
    # torch.from_numpy warns about read-only arrays. One row reversed is contiguous for NumPy, but not for torch.
    is_plain = array.flags.c_contiguous and array.flags.writeable and array.dtype.isnative
    if not is_plain or min(array.strides, default=0) < 0:
        array = np.array(array, array.dtype.newbyteorder("="), order="C")
    return torch.from_numpy(array)


def vectors_of(name: str, vectors: Any) -> Tensor:
    """Convert vectors in memory to a float32 or float64 tensor.

    Shape:
        vectors: (rows, dim) or (dim,). Output: (rows, dim).

    Raises:
        TypeError: If this is not floats, for example texts or quantized codes.
        ValueError: If the shape is wrong.

    Example:
        >>> import numpy as np
        >>> from sbert.inputs.vectors import vectors_of
        >>> vectors_of("vectors", np.ones(3, np.float16))
        tensor([[1., 1., 1.]])
    """
    tensor = tensor_of(matrix(name, vectors))
    if tensor.dtype in (torch.int8, torch.uint8):
        raise TypeError(
            f"{name} must hold floats, not codes of {tensor.dtype}; search codes with semantic_search, or pass"
            " sbert.search.dequantize(codes, precision)"
        )
    return tensor if tensor.dtype in (torch.float32, torch.float64) else tensor.float()
