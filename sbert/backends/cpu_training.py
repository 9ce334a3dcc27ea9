"""The forward of BERT-like layers for training on a CPU.

Compared with the Hugging Face module it reduces all but the matrix products: one product for query, key and value,
dropout from 16 random bits per element, and attention in few calls, forward and backward, on rows of similar length.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from sbert.backends.architectures import Activation, Backbone, describe
from sbert.backends.linear import filler, matrix_product, uses_onednn
from sbert.backends.network import ALL_HOOKS, has_hooks, walk
from sbert.backends.packed import positions
from sbert.backends.padded import Backend
from sbert.batch import Ragged, TokenBatch

# Overhead of a call, as the number of attention scores that take the same time.
_CALL = 200_000
_BITS = 1 << 16


class CpuTraining(Backend):
    """The layers of a model, with a gradient, in the dtype of its weights or of autocast.

    Args:
        network: A Hugging Face model or a minimal BERT, on the CPU.
    """

    name: ClassVar[str] = "cpu_training"
    how: ClassVar[str] = "in training"

    @staticmethod
    def supports(network: Any, device: torch.device, dtype: torch.dtype) -> str | None:
        """Why a model cannot be trained layer by layer in its present state; None if it can."""
        if device.type != "cpu":
            return "it is for training on a CPU"
        if torch.compiler.is_compiling():
            return "torch.compile makes its own graph"
        modules = walk(network)
        if any(getattr(each, "gradient_checkpointing", False) or each._compiled_call_impl for each in modules):
            return "its layers are compiled, or computed again for the gradient"
        if has_hooks(network, ALL_HOOKS):
            return "hooks are registered"
        backbone = describe(network)
        return backbone if isinstance(backbone, str) else backbone.beyond_bert

    def forward(self, batch: TokenBatch) -> Tensor:
        """Vectors of all tokens from the last layer. Shape: (tokens, dim)."""
        backbone = cast("Backbone", describe(self._network))
        dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else self._network.dtype
        with torch.autocast("cpu", enabled=False):
            x = _embed(backbone, batch).to(dtype)
            if backbone.widen is not None:
                x = _linear(x, backbone.widen)
            tokens = len(x)
            if dtype.itemsize < 4 or tokens > 1024 or uses_onednn(dtype):  # Otherwise MKL multiplies.
                x = F.pad(x, (0, 0, 0, filler(tokens)))
            divided = bands(batch, backbone.heads, dtype)
            for layer in backbone.layers:
                x = _layer(x, layer, backbone.activation, divided)
        return x[:tokens]


def _embed(backbone: Backbone, batch: TokenBatch) -> Tensor:
    table, norm = cast("nn.Embedding", backbone.positions), cast("nn.LayerNorm", backbone.norm)
    x = backbone.tokens(batch.ids) + table(positions(batch, table.padding_idx))  # (tokens, width)
    if backbone.token_types is not None:
        x = x + (backbone.token_types.weight[0] if batch.types is None else backbone.token_types(batch.types))
    return _drop(norm(x), backbone.dropout)


def _drop(x: Tensor, dropout: nn.Dropout | None) -> Tensor:
    return drop(x, dropout_mask(x.shape, _probability(dropout), x))


def _probability(dropout: nn.Dropout | None) -> float:
    return dropout.p if dropout is not None and dropout.training else 0.0


def _layer(x: Tensor, layer: Any, activation: Activation, divided: list[Band]) -> Tensor:
    mixed: Tensor = _Attention.apply(_linear(x, *layer.qkv), divided, _probability(layer.dropout))  # type: ignore[no-untyped-call]
    x = _norm(_drop(_linear(mixed, layer.out), layer.out_dropout).add_(x), layer.attention_norm)
    down = _linear(activation.apply(_linear(x, *layer.up)), layer.down)
    return _norm(_drop(down, layer.down_dropout).add_(x), layer.norm)


def _linear(x: Tensor, *layers: nn.Linear) -> Tensor:
    """The outputs of linear layers side by side, in the dtype of x."""
    parts: list[list[Tensor]] = [[each.weight for each in layers], [each.bias for each in layers]]
    weight, bias = (each[0] if len(each) == 1 else torch.cat(each) for each in parts)
    result: Tensor = _Linear.apply(x, weight.to(x.dtype), bias.to(x.dtype))  # type: ignore[no-untyped-call]
    return result


def _norm(x: Tensor, norm: nn.LayerNorm) -> Tensor:
    return torch.layer_norm(x, norm.normalized_shape, norm.weight, norm.bias, norm.eps)


class _Linear(torch.autograd.Function):
    """x W' + b by ``matrix_product``, also backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return matrix_product(x.dtype)(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        (x, weight), product = ctx.saved_tensors, matrix_product(g.dtype)
        g_x = product(g, weight.t(), None) if ctx.needs_input_grad[0] else None
        g_weight = product(g.t(), x.t(), None) if ctx.needs_input_grad[1] else None
        return g_x, g_weight, g.sum(0)


class _Attention(torch.autograd.Function):
    """Attention by bands, which keeps less than autograd would."""

    @staticmethod
    def forward(ctx: Any, qkv: Tensor, divided: list[Band], dropout: float) -> Tensor:
        mixed, saved = attend_bands(divided, qkv, dropout)
        ctx.bands = divided
        ctx.save_for_backward(*saved)
        return mixed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        return attend_bands_backward(ctx.bands, g, ctx.saved_tensors), None, None


# ---------------------------------------------------------------------------------------- attention


@dataclass(frozen=True)
class Band:
    """Consecutive rows whose attention is computed in one call, padded to the longest of them.

    One index selection brings tokens to the order (rows, heads, longest), another one back.

    Args:
        tokens: Slice of the tokens of these rows.
        shape: Number of rows times heads, and of tokens of the longest row.
        orders: For one part and for three concatenated parts: the indices to the padded order and back.
        empty: Slots of padding; None without padding.
        hidden: Additive mask of the scores: 0 at tokens, -inf at padding; None without padding.
    """

    tokens: slice
    shape: tuple[int, int]
    orders: dict[int, tuple[Tensor, Tensor]]
    empty: Tensor | None
    hidden: Tensor | None

    def spread(self, x: Tensor, parts: int) -> Tensor:
        """Bring (tokens, parts * dim) to (parts, rows * heads, longest, dim / heads)."""
        there, back = self.orders[parts]
        flat = x[self.tokens].reshape(len(back), -1)
        return flat.index_select(0, there).view(parts, *self.shape, -1)

    def collect(self, x: Tensor) -> Tensor:
        """Inverse of ``spread``."""
        back = self.orders[len(x)][1]
        return x.view(-1, x.shape[-1]).index_select(0, back).view(self.tokens.stop - self.tokens.start, -1)


def bands(batch: TokenBatch, heads: int, dtype: torch.dtype) -> list[Band]:
    """Divide a batch into bands: a row joins the previous band if that costs less than a separate call."""
    divided: list[list[tuple[int, int]]] = []  # For each band, its runs of rows of equal length.
    for run in batch.groups:
        joined = [*divided[-1], run] if divided else [run]
        if divided and (_scores(joined) - _scores(divided[-1]) - _scores([run])) * heads < _CALL:
            divided[-1] = joined
        else:
            divided.append([run])
    result, start = [], 0
    for runs in divided:
        counts, distinct = torch.tensor(runs).T
        lengths = distinct.repeat_interleave(counts)
        result.append(_band(start, lengths, heads, dtype))
        start = result[-1].tokens.stop
    return result


def _band(start: int, lengths: Tensor, heads: int, dtype: torch.dtype) -> Band:
    offsets = F.pad(lengths.cumsum(0), (1, 0))
    rows = Ragged(torch.arange(int(offsets[-1])), offsets)
    token, seen = rows.padded()  # (rows, longest)
    shape, head = (rows.rows * heads, rows.longest), torch.arange(heads)
    slot = (rows.row_of_token[:, None] * heads + head) * rows.longest + rows.position_of_token[:, None]
    orders: dict[int, tuple[Tensor, Tensor]] = {}
    for parts in (1, 3):
        part = torch.arange(parts)[:, None]
        there = (token[:, None] * parts + part[..., None, None]) * heads + head[
            :, None
        ]  # (parts, rows, heads, longest)
        back = slot[:, None] + part * math.prod(shape)  # (tokens, parts, heads)
        orders[parts] = there.flatten(), back.flatten()
    empty = hidden = None
    if not seen.all():
        unseen = ~seen.repeat_interleave(heads, 0)  # (rows * heads, longest)
        empty = unseen.flatten().nonzero()[:, 0]
        hidden = torch.zeros(shape, dtype=dtype).masked_fill_(unseen, -torch.inf)[:, None]
    return Band(slice(start, start + len(slot)), shape, orders, empty, hidden)


def _scores(runs: list[tuple[int, int]]) -> int:
    """Number of scores per head for padded rows."""
    counts, lengths = zip(*runs, strict=True)
    return int(sum(counts) * max(lengths) ** 2)


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
    keep = bits.clamp_(least - 1, least).sub_(least - 1).view(shape)  # 0 or 1; a comparison takes four times as long.
    return keep.to(like.dtype).mul_(_BITS / (_BITS - threshold))


def drop(x: Tensor, mask: Tensor | None) -> Tensor:
    """Apply a dropout mask."""
    return x if mask is None else x * mask


def attend_bands(bands: list[Band], qkv: Tensor, dropout: float) -> tuple[Tensor, list[Tensor | None]]:
    """Attention by bands: from (tokens, 3 * dim) to (tokens, dim), and what the backward needs."""
    mixed: list[Tensor] = []
    saved: list[Tensor | None] = []
    for band in bands:
        parts = band.spread(qkv, 3)
        q, k, v = parts
        weights = _product(q, k.transpose(1, 2), q.shape[-1] ** -0.5, band.hidden).softmax(-1)
        mask = dropout_mask(weights.shape, dropout, weights)  # (rows * heads, longest, longest)
        mixed.append(band.collect(torch.bmm(drop(weights, mask), v)[None]))
        saved += [parts, weights, mask]
    return _join(mixed, len(qkv)), saved


def attend_bands_backward(bands: list[Band], gradient: Tensor, saved: list[Any]) -> Tensor:
    """The gradient of the input, (tokens, 3 * dim), from that of the output, (tokens, dim)."""
    result = []
    for i, band in enumerate(bands):
        (q, k, v), weights, mask = saved[3 * i : 3 * i + 3]
        (g,) = band.spread(gradient, 1)
        if band.empty is not None:
            g.view(-1, g.shape[-1]).index_fill_(0, band.empty, 0)
        parts = g.new_empty(3, *g.shape)
        torch.bmm(drop(weights, mask).transpose(1, 2), g, out=parts[2])
        g_weights = drop(torch.bmm(g, v.transpose(1, 2)), mask)
        g_scores = torch._softmax_backward_data(g_weights, weights, -1, weights.dtype)
        _product(g_scores, k, q.shape[-1] ** -0.5, out=parts[0])
        _product(g_scores.transpose(1, 2), q, q.shape[-1] ** -0.5, out=parts[1])
        result.append(band.collect(parts))
    return _join(result, len(gradient))


def _product(a: Tensor, b: Tensor, scale: float, plus: Tensor | None = None, out: Tensor | None = None) -> Tensor:
    """``plus + scale * a @ b`` for a batch of matrices."""
    added = a.new_empty(()) if plus is None else plus
    return torch.baddbmm(added, a, b, beta=0 if plus is None else 1, alpha=scale, out=out)


def _join(parts: list[Tensor], tokens: int) -> Tensor:
    """Concatenate the outputs of bands, with zeros for the remaining tokens."""
    filler = tokens - sum(map(len, parts))
    if not filler and len(parts) == 1:
        return parts[0]
    return torch.cat([*parts, parts[0].new_zeros(filler, parts[0].shape[1])])
