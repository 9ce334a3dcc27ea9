"""The forward of BERT-like layers for training on a CPU.

Compared with the Hugging Face module it reduces all but the matrix products: one product for query, key and value,
dropout from 16 random bits per element, and attention in few calls, forward and backward, on rows of similar length.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import repeat
from typing import Any, ClassVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from sbert.backends.architectures import Activation, Backbone, describe
from sbert.backends.backend import Backend
from sbert.backends.linear import Product, filler, matrix_product, uses_onednn
from sbert.backends.network import ALL_HOOKS, has_hooks, walk
from sbert.backends.packed import positions
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
            x, product = _embed(backbone, batch).to(dtype), matrix_product(dtype)
            if backbone.widen is not None:
                x = _linear(x, product, backbone.widen)
            tokens = len(x)
            if dtype.itemsize < 4 or tokens > 1024 or uses_onednn(dtype):  # Otherwise MKL multiplies.
                x = F.pad(x, (0, 0, 0, filler(tokens)))
            divided = bands(batch, backbone.heads, dtype)
            for layer in backbone.layers:
                x = _layer(x, layer, backbone.activation, product, divided)
        return x[:tokens]


def _embed(backbone: Backbone, batch: TokenBatch) -> Tensor:
    table, norm = cast("nn.Embedding", backbone.positions), cast("nn.LayerNorm", backbone.norm)
    x = backbone.tokens(batch.ids) + table(positions(batch, table.padding_idx))  # (tokens, width)
    if backbone.token_types is not None:
        x = x + (backbone.token_types.weight[0] if batch.types is None else backbone.token_types(batch.types))
    return _drop(norm(x), backbone.dropout)


def _drop(x: Tensor, dropout: nn.Dropout | None) -> Tensor:
    mask = dropout_mask(x.shape, dropout.p, x) if dropout is not None and dropout.training else None
    return x if mask is None else x * mask


def _layer(x: Tensor, layer: Any, activation: Activation, product: Product, divided: list[Band]) -> Tensor:
    sizes = [band.tokens for band in divided]
    parts = _linear(x, product, *layer.qkv).split([*sizes, len(x) - sum(sizes)])  # type: ignore[no-untyped-call]
    mixed = torch.cat([*map(Band.attend, divided, parts, repeat(layer.dropout)), x[sum(sizes) :].detach()])
    x = _norm(_drop(_linear(mixed, product, layer.out), layer.out_dropout).add_(x), layer.attention_norm)
    down = _linear(activation.apply(_linear(x, product, *layer.up)), product, layer.down)
    return _norm(_drop(down, layer.down_dropout).add_(x), layer.norm)


def _linear(x: Tensor, product: Product, *layers: nn.Linear) -> Tensor:
    """The outputs of linear layers side by side, in the dtype of x."""
    parts: list[list[Tensor]] = [[each.weight for each in layers], [each.bias for each in layers]]
    weight, bias = (each[0] if len(each) == 1 else torch.cat(each) for each in parts)
    result: Tensor = _Linear.apply(x, weight.to(x.dtype), bias.to(x.dtype), product)  # type: ignore[no-untyped-call]
    return result


def _norm(x: Tensor, norm: nn.LayerNorm) -> Tensor:
    return torch.layer_norm(x, norm.normalized_shape, norm.weight, norm.bias, norm.eps)


class _Linear(torch.autograd.Function):
    """x W' + b by the same product forward and backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, product: Product) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.product = product
        return product(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        (x, weight), product = ctx.saved_tensors, ctx.product
        g_x = product(g, weight.t(), None) if ctx.needs_input_grad[0] else None
        g_weight = product(g.t(), x.t(), None) if ctx.needs_input_grad[1] else None
        return g_x, g_weight, g.sum(0), None


class _Reorder(torch.autograd.Function):
    """Rows of a matrix by their index; the inverse is known, and much faster than the sum that autograd would use."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, there: Tensor, back: Tensor, unused: Tensor | None) -> Tensor:
        ctx.save_for_backward(back, unused)
        return x.index_select(0, there)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        back, unused = ctx.saved_tensors
        g_x = g.index_select(0, back)
        return g_x if unused is None else g_x.index_fill_(0, unused, 0), None, None, None


# ---------------------------------------------------------------------------------------- attention


@dataclass(frozen=True)
class Band:
    """Consecutive rows whose attention is computed in one call, padded to the longest of them.

    One index selection brings tokens to the order (rows, heads, longest), another one back.

    Args:
        tokens: Number of tokens.
        shape: Number of rows times heads, and of tokens of the longest row.
        orders: For one part and for three concatenated parts: the indices to the padded order and back.
        empty: Slots of padding; None without padding.
        hidden: Additive mask of the scores: 0 at tokens, -inf at padding; None without padding.
    """

    tokens: int
    shape: tuple[int, int]
    orders: dict[int, tuple[Tensor, Tensor]]
    empty: Tensor | None
    hidden: Tensor | None

    def attend(self, qkv: Tensor, dropout: nn.Dropout | None) -> Tensor:
        """Shape: (tokens, 3 * dim) to (tokens, dim)."""
        there, back = self.orders[3]
        spread: Tensor = _Reorder.apply(qkv.reshape(len(back), -1), there, back, None)  # type: ignore[no-untyped-call]
        q, k, v = spread.view(3, *self.shape, -1)  # (rows * heads, longest, dim / heads)
        q, keys = q * q.shape[-1] ** -0.5, k.transpose(1, 2)  # Scores have more elements.
        scores = torch.bmm(q, keys) if self.hidden is None else torch.baddbmm(self.hidden, q, keys)
        mixed = torch.bmm(_drop(scores.softmax(-1), dropout), v)
        there, back = self.orders[1]
        return _Reorder.apply(mixed.flatten(0, 1), back, there, self.empty).view(self.tokens, -1)  # type: ignore[no-any-return, no-untyped-call]


def bands(batch: TokenBatch, heads: int, dtype: torch.dtype) -> list[Band]:
    """Divide a batch into bands: a row joins the previous band if that costs less than a separate call."""
    divided: list[list[tuple[int, int]]] = []  # For each band, its runs of rows of equal length.
    for run in batch.groups:
        joined = [*divided[-1], run] if divided else [run]
        if divided and (_scores(joined) - _scores(divided[-1]) - _scores([run])) * heads < _CALL:
            divided[-1] = joined
        else:
            divided.append([run])
    result = []
    for runs in divided:
        counts, distinct = torch.tensor(runs).T
        result.append(_band(distinct.repeat_interleave(counts), heads, dtype))
    return result


def _band(lengths: Tensor, heads: int, dtype: torch.dtype) -> Band:
    offsets = F.pad(lengths.cumsum(0), (1, 0))
    rows = Ragged(torch.arange(int(offsets[-1])), offsets)
    token, seen = rows.padded()  # (rows, longest)
    shape, head = (rows.rows * heads, rows.longest), torch.arange(heads)[:, None]
    slot = (rows.row_of_token * heads + head) * rows.longest + rows.position_of_token  # (heads, tokens)
    orders: dict[int, tuple[Tensor, Tensor]] = {}
    for parts in (1, 3):
        part = torch.arange(parts)[:, None]
        there = (token[:, None] * parts + part[..., None, None]) * heads + head  # (parts, rows, heads, longest)
        back = slot.T[:, None] + part * math.prod(shape)  # (tokens, parts, heads)
        orders[parts] = there.flatten(), back.flatten()
    empty = hidden = None
    if not seen.all():
        unseen = ~seen.repeat_interleave(heads, 0)  # (rows * heads, longest)
        empty = unseen.flatten().nonzero()[:, 0]
        hidden = torch.zeros(shape, dtype=dtype).masked_fill_(unseen, -torch.inf)[:, None]
    return Band(len(rows.values), shape, orders, empty, hidden)


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
