"""Vectors in fewer bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

PRECISIONS = {"float32": np.float32, "binary": np.int8, "ubinary": np.uint8, "int8": np.int8}

# What codes of a dtype may be.
_CODES = {torch.uint8: ("ubinary",), torch.int8: ("int8", "binary")}

# The values of int8: so many steps, the first of which has this code.
_STEPS, _FIRST = 255, -128


def check_precision(precision: str) -> str:
    """Return ``precision`` if there is one of that name, else raise a ValueError that lists those there are."""
    if precision not in PRECISIONS:
        raise ValueError(f"precision={precision!r} is unknown; pass one of {', '.join(PRECISIONS)}")
    return precision


def check_coding(precision: str, ranges: Any) -> None:
    """Raise a ValueError unless there is such a precision, and ranges for int8 alone."""
    if (check_precision(precision) == "int8") != (ranges is not None):
        needed = "needs ranges" if ranges is None else "takes no ranges"
        raise ValueError(f"precision={precision!r} {needed}; for int8, pass ranges=calibrate(some vectors)")


def calibrate(vectors: Any) -> np.ndarray:
    """The least and the greatest of each number of a sample of vectors: the ranges of int8 codes.

    Take a few thousand vectors of the kind that will be coded. What lies outside the ranges gets the nearest code.

    Args:
        vectors: Array or tensor.

    Shape:
        vectors: (rows, dim), two rows or more. Output: (2, dim) float32.

    Raises:
        ValueError: If there are fewer than two rows, or a number is NaN or infinite.

    Example:
        >>> calibrate(np.array([[0.0, 1.0], [0.5, -1.0]])).tolist()
        [[0.0, -1.0], [0.5, 1.0]]
    """
    sample = torch.as_tensor(vectors).detach().cpu().float().numpy()
    if sample.ndim != 2 or len(sample) < 2:
        raise ValueError(f"the sample has the shape {sample.shape}; pass two vectors or more, better some thousands")
    return check_ranges(np.stack([sample.min(0), sample.max(0)]), sample.shape[1])


def check_ranges(ranges: Any, dim: int) -> np.ndarray:
    """The ranges as float32, if they are such; else a ValueError."""
    found = np.asarray(ranges, np.float32)
    if found.shape != (2, dim) or not np.isfinite(found).all() or (found[0] > found[1]).any():
        raise ValueError(
            f"ranges of shape {found.shape} do not fit vectors of dim {dim}: each number needs a finite least and a"
            " greatest value, (2, dim); take those that calibrate(vectors) returns"
        )
    return found


def quantize(vectors: Tensor, precision: str, ranges: Any = None) -> Tensor:
    """Vectors in the given precision: float32 as they are, one byte a number, or one bit a number, eight to a byte.

    A bit is 1 where the number is positive, the first number in the byte's highest bit. ``"ubinary"`` gives
    the bytes as uint8, ``"binary"`` the same less 128, as int8. ``"int8"`` cuts the range of each number into 255
    steps:

        code = min(floor((x - least) / step), 255) - 128,    step = (greatest - least) / 255

    Args:
        vectors: float32.
        precision: ``"float32"``, ``"int8"``, ``"binary"`` or ``"ubinary"``.
        ranges: Of int8, from ``calibrate``: never of the vectors that are coded alone, or a vector's code would depend
            on its neighbours.

    Shape:
        vectors: (rows, dim). Output: (rows, dim), or (rows, ceil(dim / 8)) for bits.

    Raises:
        ValueError: If the precision is unknown, or the ranges do not fit or are missing.

    Example:
        >>> quantize(torch.tensor([[0.5, -1.0, 2.0, 0.0, 0.0, 0.0, 0.0, 1.0]]), "ubinary")
        tensor([[161]], dtype=torch.uint8)
        >>> quantize(torch.tensor([[0.5, -1.0]]), "int8", ranges=[[0, -1], [1, 1]])
        tensor([[  -1, -128]], dtype=torch.int8)
    """
    check_coding(precision, ranges)
    if precision == "float32":
        return vectors
    if precision == "int8":
        least, step = _scale(ranges, vectors)
        step = torch.where(step == 0, 1.0, step)
        return ((vectors - least) / step).floor_().clamp_(0, _STEPS).add_(_FIRST).to(torch.int8)
    packed = np.packbits(vectors.cpu().numpy() > 0, axis=1)
    if precision == "binary":
        packed = (packed.astype(np.int16) - 128).astype(np.int8)
    return torch.from_numpy(packed).to(vectors.device)


def dequantize(codes: Tensor, precision: str, ranges: Any = None, dim: int | None = None) -> Tensor:
    """The vectors that codes stand for: the middle of an int8's step, and 1 or -1 for a bit.

    Args:
        codes: As ``quantize`` makes them.
        precision: Of the codes.
        ranges: Those with which codes of int8 were made; without, the codes are taken for the numbers.
        dim: Of the vectors, where it is not eight times the bytes.

    Shape:
        codes: (rows, dim) or, for bits, (rows, ceil(dim / 8)). Output: (rows, dim) float32.

    Raises:
        ValueError: If the precision is unknown or another than that of the codes, or the ranges do not fit.

    Example:
        >>> dequantize(torch.tensor([[-1, -128]], dtype=torch.int8), "int8", ranges=[[0, -1], [1, 1]]).round(decimals=2)
        tensor([[ 0.5000, -1.0000]])
        >>> dequantize(torch.tensor([[161]], dtype=torch.uint8), "ubinary", dim=3)
        tensor([[ 1., -1.,  1.]])
    """
    if check_precision(precision) == "float32":
        return codes.float()
    possible = _CODES.get(codes.dtype, (precision,))
    if precision not in possible:
        raise ValueError(
            f"codes of {codes.dtype} are not {precision!r}; pass precision={' or '.join(map(repr, possible))}"
        )
    if precision == "int8" and ranges is None:
        return codes.float()
    if precision == "int8":
        least, step = _scale(ranges, codes)
        return (codes.float() - (_FIRST - 0.5)) * step + least
    # Each byte's eight numbers are looked up.
    numbers = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).astype(np.float32) * 2 - 1
    bytes_ = codes.int() + 128 if precision == "binary" else codes.int()
    return F.embedding(bytes_, torch.from_numpy(numbers).to(codes.device)).flatten(1)[:, :dim].contiguous()


def _scale(ranges: Any, vectors: Tensor) -> tuple[Tensor, Tensor]:
    """The least number and the width of a step, 0 for a number that is always the same; each (dim,)."""
    least, greatest = torch.from_numpy(check_ranges(ranges, vectors.shape[1])).to(vectors.device)
    return least, (greatest - least) / _STEPS
