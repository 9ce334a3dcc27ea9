"""The kernels as functions of tensors on a GPU: what they compute, and with how many programs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sbert.batch import Ragged, TokenBatch

# The longest row of ``short_attention``, and the smallest side of a product.
SHORT, _SMALLEST = 64, 16


def launch(name: str, grid: tuple[int, ...], warps: int, device: torch.device, *given: Any, **constants: Any) -> None:
    """Launch a kernel on a device. It is compiled at its first launch for these dtypes and constants."""
    from sbert.backends.triton import kernels

    with torch.cuda.device(device):  # Triton launches on the current device.
        getattr(kernels, name)[grid](*given, **constants, num_warps=warps)


def _block(size: int, smallest: int = 1) -> int:
    """The next power of two, which sizes of tiles have to be."""
    return int(max(smallest, 1 << (size - 1).bit_length()))


def _row(width: int) -> tuple[int, int]:
    """Block and number of warps for one row per program."""
    block = _block(width)
    return block, min(max(block // 256, 1), 8)


def add_norm(x: Tensor, x_bias: Tensor, residual: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """Layer norm of x + x_bias + residual.

    Shape:
        x, residual: (tokens, dim), contiguous. x_bias, weight, bias: (dim,). Output: (tokens, dim).
    """
    (tokens, width), out = x.shape, torch.empty_like(x)
    block, warps = _row(width)
    launch("add_norm", (tokens,), warps, x.device, x, x_bias, residual, weight, bias, out, width, eps, block=block)
    return out


def embed_norm(
    batch: TokenBatch,
    words: Tensor,
    positions: Tensor,
    places: int,
    padding: int | None,
    weight: Tensor,
    bias: Tensor,
    eps: float,
    dtype: torch.dtype,
) -> Tensor:
    """Layer norm of the sum of the embeddings of each token, its position and its type; NaN for unknown ids.

    Args:
        batch: At least one token.
        words: Embeddings of the tokens.
        positions: The sum of each type with each position.
        places: Number of positions.
        padding: The token that is not counted by positions, which begin behind it; None to count all tokens from 0.
        weight: Of the norm.
        bias: Of the norm.
        eps: Of the norm.
        dtype: Of the output.

    Shape:
        words: (vocab, dim). positions: (types * places, dim). weight, bias: (dim,). Output: (tokens, dim).
    """
    ids, (vocab, width) = batch.ids, words.shape
    out = torch.empty(len(ids), width, dtype=dtype, device=ids.device)
    block, warps = _row(width)
    launch(
        "embed_norm",
        (batch.rows, batch.longest),
        warps,
        ids.device,
        *(ids, ids if batch.types is None else batch.types, batch.offsets, words, positions, weight, bias, out),
        *(vocab, places, width, padding or 0, eps),
        typed=batch.types is not None,
        counted=padding is not None,
        length=1 if padding is None else _block(batch.longest),
        block=block,
    )
    return out


def short_attention(query: Tensor, key: Tensor, value: Tensor, rows: Ragged, bias: Tensor | None = None) -> Tensor:
    """Attention within rows of at most 64 tokens, each row and head in one tile.

    Args:
        query: Of every token.
        key: Of every token, with the strides of the queries, as the value.
        value: Of every token.
        rows: Where the rows begin and end.
        bias: Added to the scores, the same for every row.

    Shape:
        query, key, value: (tokens, heads, dim). bias: (heads, at least longest, as many).
        Output: (tokens, heads * dim).
    """
    tokens, heads, dim = query.shape
    out = query.new_empty(tokens, heads * dim)
    length = _block(rows.longest, _SMALLEST)
    group = SHORT // length  # A program has about one full tile.
    launch(
        "short_attention",
        (rows.rows, -(-heads // group)),
        length // _SMALLEST,
        query.device,
        *(query, key, value, query if bias is None else bias, out, rows.offsets),
        *(query.stride(0), heads, dim, 0 if bias is None else bias.shape[1], dim**-0.5),
        biased=bias is not None,
        group=group,
        length=length,
        block=_block(dim, _SMALLEST),
    )
    return out


def mean_rows(rows: Ragged) -> Tensor:
    """Mean of the values of each row, in float32; zeros for an empty row.

    Shape:
        Values: (tokens, dim), contiguous. Output: (rows, dim).
    """
    width = rows.values.shape[1]
    out = torch.empty(rows.rows, width, device=rows.values.device)
    block = min(_block(width), 128)
    grid = (rows.rows, -(-width // block))
    launch("mean_rows", grid, 4, out.device, rows.values, rows.offsets, out, width, chunk=16, block=block)
    return out
