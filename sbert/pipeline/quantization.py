"""Quantization: vectors in int8 or binary precision."""

from __future__ import annotations

from typing import cast, overload

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from sbert.functional import Vectors
from sbert.inputs.arguments import check_choice, check_positive, known_arguments
from sbert.inputs.vectors import Array, matrix, tensor_of, vectors_of

Codes = npt.NDArray[np.float32 | np.float16 | np.int8 | np.uint8]

PRECISIONS: dict[str, type[np.float32 | np.float16 | np.int8 | np.uint8]] = {
    "float32": np.float32,
    "float16": np.float16,
    "binary": np.int8,
    "ubinary": np.uint8,
    "int8": np.int8,
}

# Precisions of codes by dtype.
_CODES = {torch.float16: ("float16",), torch.uint8: ("ubinary",), torch.int8: ("int8", "binary")}

# Number of steps of int8, and the code of the first.
_STEPS, _FIRST = 255, -128


def check_coding(precision: str, ranges: npt.ArrayLike | None) -> None:
    """Raise a ValueError if the precision is unknown, or ranges are given for another precision than int8."""
    check_choice("precision", precision, tuple(PRECISIONS))
    if (precision == "int8") != (ranges is not None):
        needed = "needs ranges" if ranges is None else "takes no ranges"
        raise ValueError(f"precision={precision!r} {needed}; for int8, pass ranges=calibrate(sample)")


def calibrate(vectors: Vectors) -> npt.NDArray[np.float32]:
    """Minimum and maximum of each dimension in a sample of vectors: the ranges of int8 codes.

    Use a few thousand vectors like those to be quantized. Values outside the ranges get the nearest code.

    Args:
        vectors: Array or tensor.

    Shape:
        vectors: (rows, dim), two rows or more. Output: (2, dim) float32.

    Raises:
        ValueError: If there are fewer than two rows, or a value is NaN or infinite.

    Example:
        >>> import numpy as np
        >>> from sbert.search import calibrate
        >>> calibrate(np.array([[0.0, 1.0], [0.5, -1.0]])).tolist()
        [[0.0, -1.0], [0.5, 1.0]]
    """
    sample = vectors_of("vectors", vectors).detach().cpu().float().numpy()
    if len(sample) < 2:
        raise ValueError(f"the sample has the shape {sample.shape}; pass at least two vectors, better some thousands")
    _check_no_nan(torch.from_numpy(sample))
    return check_ranges(np.stack([sample.min(0), sample.max(0)]), sample.shape[1])


def check_ranges(ranges: npt.ArrayLike | None, dim: int | None = None) -> npt.NDArray[np.float32]:
    """Ranges as float32; a ValueError if they are not valid for vectors of this dim."""
    try:
        result = np.asarray(ranges, np.float32)
    except (TypeError, ValueError) as error:
        raise ValueError(f"ranges are {ranges!r:.60}; pass those that calibrate(vectors) returns") from error
    dim = dim or (result.shape[1] if result.ndim == 2 else 0)
    if result.shape != (2, dim) or not np.isfinite(result).all() or (result[0] > result[1]).any():
        raise ValueError(
            f"ranges of shape {result.shape} do not fit vectors of dim {dim or 'any'}: each dimension needs a finite"
            " minimum and maximum, (2, dim); pass those that calibrate(vectors) returns"
        )
    return result


@overload
def quantize(vectors: Array, precision: str, ranges: npt.ArrayLike | None = None) -> Codes: ...
@overload
def quantize(vectors: Tensor, precision: str, ranges: npt.ArrayLike | None = None) -> Tensor: ...
@known_arguments
def quantize(vectors: Array | Tensor, precision: str, ranges: npt.ArrayLike | None = None) -> Codes | Tensor:
    """Quantize vectors to two bytes (float16), one byte or one bit per dimension.

    A bit is 1 for a positive value; the first dimension is the highest bit of the first byte. ``"ubinary"`` returns
    bytes as uint8, ``"binary"`` the same minus 128, as int8. ``"int8"`` divides the range of each dimension into 255
    steps:

        code = min(floor((x - min) / step), 255) - 128,    step = (max - min) / 255

    Args:
        vectors: Array or tensor of floats.
        precision: ``"float32"``, ``"float16"``, ``"int8"``, ``"binary"`` or ``"ubinary"``.
        ranges: For int8, from ``calibrate`` on a sample: ranges of the quantized vectors themselves would make the
            code of a vector depend on the others.

    Shape:
        vectors: (rows, dim). Output: (rows, dim), or (rows, ceil(dim / 8)) for bits, NumPy for NumPy input.

    Raises:
        ValueError: If the precision is unknown, the ranges are missing or invalid, or a value is NaN or, for float16,
            above 65504 (the message names its row).

    Example:
        >>> import torch
        >>> from sbert.search import quantize
        >>> quantize(torch.tensor([[0.5, -1.0, 2.0, 0.0, 0.0, 0.0, 0.0, 1.0]]), "ubinary")
        tensor([[161]], dtype=torch.uint8)
        >>> quantize(torch.tensor([[0.5, -1.0]]), "int8", ranges=[[0, -1], [1, 1]])
        tensor([[  -1, -128]], dtype=torch.int8)
    """
    check_coding(precision, ranges)
    if precision == "float32":
        return cast("Codes | Tensor", vectors)
    values = vectors_of("vectors", vectors).detach()
    _check_no_nan(values)
    if precision == "float16":
        codes = values.half()
        wrong = (codes.isinf() & values.isfinite()).any(1).nonzero()
        if len(wrong):
            raise ValueError(f"vectors[{int(wrong[0])}] exceeds 65504, the largest float16; pass precision='float32'")
    elif precision == "int8":
        least, step = _scale(ranges, values)
        step = torch.where(step == 0, 1.0, step)
        codes = ((values - least) / step).floor_().clamp_(0, _STEPS).add_(_FIRST).to(torch.int8)
    else:
        packed = np.packbits(values.cpu().numpy() > 0, axis=1)
        packed = (packed ^ 128).view(np.int8) if precision == "binary" else packed  # A byte minus 128.
        codes = torch.from_numpy(packed).to(values.device)
    return codes.numpy() if isinstance(vectors, np.ndarray) else codes


@overload
def dequantize(
    codes: Array, precision: str, ranges: npt.ArrayLike | None = None, dim: int | None = None
) -> npt.NDArray[np.float32]: ...
@overload
def dequantize(
    codes: Tensor, precision: str, ranges: npt.ArrayLike | None = None, dim: int | None = None
) -> Tensor: ...
@known_arguments
def dequantize(
    codes: Array | Tensor, precision: str, ranges: npt.ArrayLike | None = None, dim: int | None = None
) -> npt.NDArray[np.float32] | Tensor:
    """Approximate vectors from codes: the middle of the step for int8, and 1 or -1 for a bit.

    Args:
        codes: Output of ``quantize``.
        precision: Precision of the codes.
        ranges: Ranges with which int8 codes were computed. Default: the codes themselves are the values.
        dim: Dimension of the vectors. Default for bits: eight times the number of bytes.

    Shape:
        codes: (rows, dim) or, for bits, (rows, ceil(dim / 8)). Output: (rows, dim) float32, NumPy for NumPy input.

    Raises:
        ValueError: If the precision is unknown or does not match the codes, or the ranges or the dim are invalid.

    Example:
        >>> import torch
        >>> from sbert.search import dequantize
        >>> dequantize(torch.tensor([[-1, -128]], dtype=torch.int8), "int8", ranges=[[0, -1], [1, 1]]).round(decimals=2)
        tensor([[ 0.5000, -1.0000]])
        >>> dequantize(torch.tensor([[161]], dtype=torch.uint8), "ubinary", dim=3)
        tensor([[ 1., -1.,  1.]])
    """
    values = tensor_of(matrix("codes", codes))
    check_choice("precision", precision, tuple(PRECISIONS))
    possible = _CODES.get(values.dtype, ("float32",))
    if precision not in (*possible, "float32"):
        raise ValueError(
            f"codes of {values.dtype} are not {precision!r}; pass precision={' or '.join(map(repr, possible))}"
        )
    if precision == "int8" and ranges is not None:
        least, step = _scale(ranges, values)
        vectors = (values.float() - (_FIRST - 0.5)) * step + least
    elif precision in ("float32", "float16", "int8"):
        vectors = values.float()
    else:
        vectors = _unpack(values.int() + 128 if precision == "binary" else values.int(), check_positive("dim", dim))
    return vectors.numpy() if isinstance(codes, np.ndarray) else vectors


def _unpack(bytes_: Tensor, dim: int | None) -> Tensor:
    """1 and -1 for the bits of bytes, by a table with eight values per byte."""
    if dim is not None and dim > 8 * bytes_.shape[1]:
        raise ValueError(f"dim={dim} exceeds the {8 * bytes_.shape[1]} bits of each row; pass the dim of the vectors")
    numbers = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).astype(np.float32) * 2 - 1
    return F.embedding(bytes_, torch.from_numpy(numbers).to(bytes_.device)).flatten(1)[:, :dim].contiguous()


def _check_no_nan(vectors: Tensor) -> None:
    wrong = vectors.isnan().any(1).nonzero()
    if len(wrong):
        raise ValueError(f"vectors[{int(wrong[0])}] has a NaN; remove or correct that row")


def _scale(ranges: npt.ArrayLike | None, vectors: Tensor) -> tuple[Tensor, Tensor]:
    """Minimum and step of each dimension; the step is 0 for a constant one. Shape: (dim,) each."""
    least, greatest = torch.from_numpy(check_ranges(ranges, vectors.shape[1])).to(vectors.device)
    return least, (greatest - least) / _STEPS
