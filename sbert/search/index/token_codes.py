"""Vectors of tokens in two bits per dimension."""

from __future__ import annotations

import numpy as np

from sbert.functional import Float32

# Where values of a normal distribution are divided into four levels, and the levels, with the least squared error.
_LIMIT, _LEVELS = 0.9816, np.array([0.4528, 1.51], np.float32)


def pack_tokens(vectors: Float32) -> bytes:
    """The codes of the tokens of a text, one after another: of each dimension its sign, and whether it is large.

    Shape:
        vectors: (tokens, dim), of any length, which is not stored.

    References:
        Max, 1960, Quantizing for minimum distortion, table I. https://doi.org/10.1109/TIT.1960.1057548

    Example:
        >>> import numpy as np
        >>> from sbert.search.index.token_codes import pack_tokens, unpack_tokens
        >>> unpack_tokens(pack_tokens(np.array([[0.9, -0.3, 0.3, 0.1]])), 4).round(2)
        array([[ 0.89, -0.27,  0.27,  0.27]], dtype=float32)
    """
    large = np.abs(vectors) * np.sqrt(vectors.shape[1]) > _LIMIT * np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.packbits(np.concatenate([vectors > 0, large], 1), 1).tobytes()


def unpack_tokens(codes: bytes, dim: int) -> Float32:
    """The vectors that codes stand for, of length 1. Shape: (tokens, dim)."""
    bits = np.unpackbits(np.frombuffer(codes, np.uint8).reshape(-1, -(-2 * dim // 8)), 1)[:, : 2 * dim]
    vectors = np.where(bits[:, :dim], 1, np.float32(-1)) * _LEVELS[bits[:, dim:]]
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)  # type: ignore[no-any-return]
