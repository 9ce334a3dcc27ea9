"""Attention for training on a CPU: forward and backward in few calls, on rows of similar length."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sbert.batch import Ragged, TokenBatch

# Overhead of a call, as the number of attention scores that take the same time.
_CALL = 200_000
_BITS = 1 << 16


@dataclass(frozen=True)
class Band:
    """Consecutive rows whose attention is computed in one call, padded to the longest of them.

    One index selection brings tokens to the order (rows, heads, longest), another one back.

    Args:
        tokens: Slice of the tokens of these rows.
        shape: Number of rows, of heads, and of tokens of the longest row.
        token: Index of the token in each slot, within the band; 0 at padding.
        place: Slots of the heads of each token. Shape: (tokens, heads).
        empty: Slots of padding; None without padding.
        hidden: Additive mask of the scores: 0 at tokens, -inf at padding; None without padding.
    """

    tokens: slice
    shape: tuple[int, int, int]
    token: Tensor
    place: Tensor
    empty: Tensor | None
    hidden: Tensor | None

    @cached_property
    def _orders(self) -> dict[int, tuple[Tensor, Tensor]]:
        """For one part and for three concatenated parts: the indices to the padded order and back."""
        rows, heads, longest = self.shape
        head = torch.arange(heads)[:, None]
        orders = {}
        for parts in (1, 3):
            part = torch.arange(parts).view(-1, 1, 1, 1)
            there = (self.token[:, None] * parts + part) * heads + head  # (parts, rows, heads, longest)
            back = self.place[:, None] + torch.arange(parts)[:, None] * (rows * heads * longest)
            orders[parts] = there.flatten(), back.flatten()
        return orders

    def spread(self, x: Tensor, parts: int) -> Tensor:
        """Bring (tokens, parts * dim) to (parts, rows * heads, longest, dim / heads)."""
        rows, heads, longest = self.shape
        pieces = x[self.tokens].reshape(-1, x.shape[1] // (parts * heads))
        return pieces.index_select(0, self._orders[parts][0]).view(parts, rows * heads, longest, -1)

    def collect(self, x: Tensor) -> Tensor:
        """Inverse of ``spread``."""
        return x.view(-1, x.shape[-1]).index_select(0, self._orders[len(x)][1]).view(len(self.place), -1)


def bands(batch: TokenBatch, heads: int, dtype: torch.dtype) -> list[Band]:
    """Divide a batch into bands: a row joins the previous band if that costs less than a separate call."""
    divided: list[list[tuple[int, int]]] = []  # For each band, its runs of rows of equal length.
    for run in batch.groups:
        joined = [*divided[-1], run] if divided else [run]
        if divided and (_scores(joined) - _scores(divided[-1]) - _scores([run])) * heads < _CALL:
            divided[-1] = joined
        else:
            divided.append([run])
    made, start = [], 0
    for runs in divided:
        lengths = torch.tensor([length for count, length in runs for _ in range(count)])
        made.append(_band(start, lengths, heads, dtype))
        start = made[-1].tokens.stop
    return made


def _band(start: int, lengths: Tensor, heads: int, dtype: torch.dtype) -> Band:
    offsets = F.pad(lengths.cumsum(0), (1, 0))
    ragged = Ragged(torch.arange(int(offsets[-1])), offsets)
    token, seen = ragged.padded()  # (rows, longest)
    rows, longest = token.shape
    first = (ragged.row_of_token[:, None] * heads + torch.arange(heads)) * longest  # (tokens, heads)
    place = first + ragged.position_of_token[:, None]
    empty = hidden = None
    if not seen.all():
        unseen = ~seen[:, None].expand(rows, heads, longest)
        empty = unseen.flatten().nonzero()[:, 0]
        hidden = torch.zeros(rows * heads, 1, longest, dtype=dtype)
        hidden.masked_fill_(unseen.reshape(hidden.shape), -torch.inf)
    return Band(slice(start, start + len(place)), (rows, heads, longest), token, place, empty, hidden)


def _scores(runs: list[tuple[int, int]]) -> int:
    """Number of scores per head for padded rows."""
    return sum(count for count, _ in runs) * max(length for _, length in runs) ** 2


def dropout_mask(shape: torch.Size, probability: float, like: Tensor) -> Tensor | None:
    """A dropout mask with elements 0 and 1 / (1 - probability), from 16 random bits per element; None without dropout.

    ``bernoulli_`` takes several times as long.
    """
    threshold = round(probability * _BITS)
    if threshold == 0:
        return None
    if threshold == _BITS:
        return like.new_zeros(shape)
    numbers = math.prod(shape)
    bits = torch.empty(-(-numbers // 4), dtype=torch.int64).random_(-(2**63), None).view(torch.int16)[:numbers]
    least = threshold - _BITS // 2  # Smallest random number that is kept.
    kept = bits.clamp_(least - 1, least).sub_(least - 1).view(shape)  # 0 or 1; a comparison takes four times as long.
    return kept.to(like.dtype).mul_(_BITS / (_BITS - threshold))


def dropped(x: Tensor, mask: Tensor | None) -> Tensor:
    """Apply a dropout mask."""
    return x if mask is None else x * mask


class BandAttention:
    """Attention by bands, forward and backward.

    Args:
        bands: Those of the batch.
        dropout: Probability with which a weight is dropped.
    """

    def __init__(self, bands: list[Band], dropout: float) -> None:
        self._bands, self._dropout = bands, dropout

    def forward(self, qkv: Tensor) -> tuple[Tensor, list[Tensor | None]]:
        """From (tokens, 3 * dim) to (tokens, dim), and what the backward needs."""
        mixed: list[Tensor] = []
        saved: list[Tensor | None] = []
        for band in self._bands:
            parts = band.spread(qkv, 3)
            q, k, v = parts
            weights = _product(q, k.transpose(1, 2), q.shape[-1] ** -0.5, band.hidden).softmax(-1)
            mask = dropout_mask(weights.shape, self._dropout, weights)  # (rows * heads, longest, longest)
            mixed.append(band.collect(torch.bmm(dropped(weights, mask), v)[None]))
            saved += [parts, weights, mask]
        return _joined(mixed, len(qkv)), saved

    def backward(self, gradient: Tensor, saved: list[Any]) -> Tensor:
        """The gradient of the input, (tokens, 3 * dim), from that of the output, (tokens, dim)."""
        result = []
        for i, band in enumerate(self._bands):
            (q, k, v), weights, mask = saved[3 * i : 3 * i + 3]
            (g,) = band.spread(gradient, 1)
            if band.empty is not None:
                g.view(-1, g.shape[-1]).index_fill_(0, band.empty, 0)
            parts = g.new_empty(3, *g.shape)
            torch.bmm(dropped(weights, mask).transpose(1, 2), g, out=parts[2])
            g_weights = dropped(torch.bmm(g, v.transpose(1, 2)), mask)
            g_scores = torch._softmax_backward_data(g_weights, weights, -1, weights.dtype)
            _product(g_scores, k, q.shape[-1] ** -0.5, out=parts[0])
            _product(g_scores.transpose(1, 2), q, q.shape[-1] ** -0.5, out=parts[1])
            result.append(band.collect(parts))
        return _joined(result, len(gradient))


def _product(a: Tensor, b: Tensor, scale: float, plus: Tensor | None = None, out: Tensor | None = None) -> Tensor:
    """``plus + scale * a @ b`` for a batch of matrices."""
    added = a.new_empty(()) if plus is None else plus
    return torch.baddbmm(added, a, b, beta=0 if plus is None else 1, alpha=scale, out=out)


def _joined(pieces: list[Tensor], tokens: int) -> Tensor:
    """Concatenate the outputs of bands, with zeros for the remaining tokens."""
    filler = tokens - sum(map(len, pieces))
    if filler:
        pieces = [*pieces, pieces[0].new_zeros(filler, pieces[0].shape[1])]
    return pieces[0] if len(pieces) == 1 else torch.cat(pieces)
