"""The kernels, in Triton's language. Only a launch imports this file, since Triton need not be installed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import triton
import triton.language as tl

_jit: Callable[[Callable[..., Any]], Any] = triton.jit


@_jit
def _normalized(x, inside, column, weight, bias, width, eps):  # type: ignore[no-untyped-def]
    """Layer norm of one row of ``width`` numbers; sums are float32."""
    mean = tl.sum(x, 0) / width
    centered = tl.where(inside, x - mean, 0.0)
    variance = tl.sum(centered * centered, 0) / width
    scale = tl.load(weight + column, inside, 0.0).to(tl.float32)
    shift = tl.load(bias + column, inside, 0.0).to(tl.float32)
    return centered * (1.0 / tl.sqrt(variance + eps)) * scale + shift


@_jit
def add_norm(x, x_bias, residual, weight, bias, out, width, eps, block: tl.constexpr):  # type: ignore[no-untyped-def]
    """Layer norm of x + x_bias + residual, each (tokens, width). One program per token."""
    column = tl.arange(0, block)
    inside = column < width
    place = tl.program_id(0).to(tl.int64) * width + column
    total = tl.load(x + place, inside, 0.0).to(tl.float32) + tl.load(x_bias + column, inside, 0.0).to(tl.float32)
    total += tl.load(residual + place, inside, 0.0).to(tl.float32)
    normalized = _normalized(total, inside, column, weight, bias, width, eps)
    tl.store(out + place, normalized.to(out.dtype.element_ty), inside)


@_jit
def embed_norm(  # type: ignore[no-untyped-def]
    ids,
    types,
    offsets,
    words,
    positions,
    weight,
    bias,
    out,
    vocab,
    places,
    width,
    padding,
    eps,
    typed: tl.constexpr,
    counted: tl.constexpr,
    length: tl.constexpr,
    block: tl.constexpr,
):
    """Layer norm of the sum of the embeddings of a token, its position and its type. One program per token of a row.

    With ``counted``, positions are counted as in RoBERTa: from ``padding + 1`` on, and without padding tokens. What
    is in no table gives NaN.
    """
    start, end = tl.load(offsets + tl.program_id(0)), tl.load(offsets + tl.program_id(0) + 1)
    token = start + tl.program_id(1)
    if token < end:
        word = tl.load(ids + token)
        place = token - start
        if counted:
            others = start + tl.arange(0, length)
            before = tl.sum((tl.load(ids + others, others < token, padding) != padding).to(tl.int64), 0)
            place = tl.where(word == padding, 0, before + 1) + padding
        known = (word >= 0) & (word < vocab) & (place < places)
        if typed:
            place += places * tl.load(types + token)
        column = tl.arange(0, block)
        inside, read = column < width, column < tl.where(known, width, 0)
        x = tl.load(words + word * width + column, read, 0.0).to(tl.float32)
        x += tl.load(positions + place * width + column, read, 0.0).to(tl.float32)
        x += tl.where(known, 0.0, float("nan"))
        normalized = _normalized(x, inside, column, weight, bias, width, eps)
        tl.store(out + token * width + column, normalized.to(out.dtype.element_ty), inside)


@_jit
def short_attention(  # type: ignore[no-untyped-def]
    query,
    key,
    value,
    bias,
    out,
    offsets,
    stride,
    heads,
    dim,
    bias_stride,
    scale,
    biased: tl.constexpr,
    group: tl.constexpr,
    length: tl.constexpr,
    block: tl.constexpr,
):
    """Attention of rows of at most ``length`` tokens. One program per row and ``group`` of heads; softmax is float32.

    Queries, keys and values: (tokens, heads, dim), ``stride`` numbers from one token to the next. Bias: (heads,
    bias_stride, bias_stride), added to the scores.
    """
    start, end = tl.load(offsets + tl.program_id(0)), tl.load(offsets + tl.program_id(0) + 1)
    token, lane = tl.arange(0, length), tl.arange(0, block)
    exists = token < end - start
    inside = exists[:, None] & (lane < dim)[None, :]
    first = tl.program_id(1) * group
    if start < end:
        for head in range(first, tl.minimum(first + group, heads)):
            place = (start + token)[:, None] * stride + head * dim + lane[None, :]
            q, k = tl.load(query + place, inside, 0.0), tl.load(key + place, inside, 0.0)
            v = tl.load(value + place, inside, 0.0)  # (length, block)
            scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale  # (length, length)
            if biased:
                seen = exists[:, None] & exists[None, :]
                pair = (head * bias_stride + token[:, None]) * bias_stride + token[None, :]
                scores += tl.load(bias + pair, seen, 0.0).to(tl.float32)
            scores = tl.where(exists[None, :], scores, float("-inf"))
            weights = tl.exp(scores - tl.max(scores, 1)[:, None])
            mixed = tl.dot(weights.to(v.dtype), v, input_precision="ieee") / tl.sum(weights, 1)[:, None]
            to = (start + token)[:, None] * heads * dim + head * dim + lane[None, :]
            tl.store(out + to, mixed.to(out.dtype.element_ty), inside)


@_jit
def mean_rows(x, offsets, out, width, chunk: tl.constexpr, block: tl.constexpr):  # type: ignore[no-untyped-def]
    """Mean of the tokens of each row, zeros for an empty one. One program per row and ``block`` columns."""
    row = tl.program_id(0).to(tl.int64)
    start, end = tl.load(offsets + row), tl.load(offsets + row + 1)
    column = tl.program_id(1) * block + tl.arange(0, block)
    total = tl.zeros((block,), tl.float32)
    for first in range(start, end, chunk):
        token = first + tl.arange(0, chunk)
        inside = (token < end)[:, None] & (column < width)[None, :]
        total += tl.sum(tl.load(x + token[:, None] * width + column[None, :], inside, 0.0).to(tl.float32), 0)
    total /= tl.maximum(end - start, 1).to(tl.float32)
    tl.store(out + row * width + column, total, column < width)
