"""Vectors in fewer bits."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

PRECISIONS = {"float32": np.float32, "binary": np.int8, "ubinary": np.uint8}


def check_precision(precision: str) -> str:
    """Return ``precision`` if there is one of that name, else raise a ValueError that lists those there are."""
    if precision not in PRECISIONS:
        raise ValueError(f"precision={precision!r} is unknown; pass one of {', '.join(PRECISIONS)}")
    return precision


def quantize(vectors: Tensor, precision: str) -> Tensor:
    """Vectors in the given precision: float32 as they are, or one bit a number, eight to a byte.

    A bit is 1 where the number is positive, the first number in the byte's highest bit. ``"ubinary"`` gives
    the bytes as uint8, ``"binary"`` the same less 128, as int8.

    Args:
        vectors: float32.
        precision: ``"float32"``, ``"binary"`` or ``"ubinary"``.

    Shape:
        vectors: (rows, dim). Output: (rows, dim), or (rows, ceil(dim / 8)) for bits.

    Raises:
        ValueError: If the precision is unknown.

    Example:
        >>> quantize(torch.tensor([[0.5, -1.0, 2.0, 0.0, 0.0, 0.0, 0.0, 1.0]]), "ubinary")
        tensor([[161]], dtype=torch.uint8)
    """
    if check_precision(precision) == "float32":
        return vectors
    packed = np.packbits(vectors.cpu().numpy() > 0, axis=1)
    if precision == "binary":
        packed = (packed.astype(np.int16) - 128).astype(np.int8)
    return torch.from_numpy(packed).to(vectors.device)
