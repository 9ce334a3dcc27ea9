"""The forward of BERT-family models for training on a CPU: one layer is one autograd function.

Compared with the Hugging Face module it reduces all but the matrix products: one product for query, key and value,
dropout from 16 random bits per element, attention in few calls, and no graph of some hundred small operations.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from sbert.backends.activations import Activation
from sbert.backends.architectures import Backbone, Layer, describe
from sbert.backends.hooks import ALL, watched
from sbert.backends.packed import positions
from sbert.batch import TokenBatch

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
    cut: list[list[tuple[int, int]]] = []  # For each band, its runs of rows of equal length.
    for run in batch.groups:
        joined = [*cut[-1], run] if cut else [run]
        if cut and (_scores(joined) - _scores(cut[-1]) - _scores([run])) * heads < _CALL:
            cut[-1] = joined
        else:
            cut.append([run])
    made, start = [], 0
    for runs in cut:
        lengths = torch.tensor([length for count, length in runs for _ in range(count)])
        rows, longest = len(lengths), int(lengths.max())
        end = start + int(lengths.sum())
        seen = torch.arange(longest) < lengths[:, None]  # (rows, longest)
        row, column = seen.nonzero().unbind(1)
        token = torch.zeros(rows, longest, dtype=torch.int64)
        token[row, column] = torch.arange(end - start)
        place = (row[:, None] * heads + torch.arange(heads)) * longest + column[:, None]
        empty = hidden = None
        if end - start < rows * longest:
            unseen = ~seen[:, None].expand(rows, heads, longest)
            empty = unseen.flatten().nonzero()[:, 0]
            hidden = torch.zeros(rows * heads, 1, longest, dtype=dtype)
            hidden.masked_fill_(unseen.reshape(hidden.shape), -torch.inf)
        made.append(Band(slice(start, end), (rows, heads, longest), token, place, empty, hidden))
        start = end
    return made


def _scores(runs: list[tuple[int, int]]) -> int:
    """Number of scores per head for padded rows."""
    return sum(count for count, _ in runs) * max(length for _, length in runs) ** 2


def _drop(shape: torch.Size, probability: float, like: Tensor) -> Tensor | None:
    """Dropout mask: 0 with a probability of 16 bits, else the factor that preserves the mean."""
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


def _dropped(x: Tensor, mask: Tensor | None) -> Tensor:
    return x if mask is None else x * mask


def _product(a: Tensor, b: Tensor, scale: float, plus: Tensor | None = None, out: Tensor | None = None) -> Tensor:
    """``plus + scale * a @ b`` for a batch of matrices."""
    added = a.new_empty(()) if plus is None else plus
    return torch.baddbmm(added, a, b, beta=0 if plus is None else 1, alpha=scale, out=out)


class _Attention:
    """Attention by bands, forward and backward."""

    def __init__(self, bands: list[Band], dropout: float) -> None:
        self.bands, self.dropout = bands, dropout

    def forward(self, qkv: Tensor) -> tuple[Tensor, list[Tensor | None]]:
        mixed, saved = [], []
        for band in self.bands:
            parts = band.spread(qkv, 3)
            q, k, v = parts
            weights = _product(q, k.transpose(1, 2), q.shape[-1] ** -0.5, band.hidden).softmax(-1)
            mask = _drop(weights.shape, self.dropout, weights)  # (rows * heads, longest, longest)
            mixed.append(band.collect(torch.bmm(_dropped(weights, mask), v)[None]))
            saved += [parts, weights, mask]
        return _joined(mixed, len(qkv)), saved

    def backward(self, gradient: Tensor, saved: list[Any]) -> Tensor:
        result = []
        for i, band in enumerate(self.bands):
            (q, k, v), weights, mask = saved[3 * i : 3 * i + 3]
            (g,) = band.spread(gradient, 1)
            if band.empty is not None:
                g.view(-1, g.shape[-1]).index_fill_(0, band.empty, 0)
            parts = g.new_empty(3, *g.shape)
            torch.bmm(_dropped(weights, mask).transpose(1, 2), g, out=parts[2])
            g_weights = _dropped(torch.bmm(g, v.transpose(1, 2)), mask)
            g_scores = torch._softmax_backward_data(g_weights, weights, -1, weights.dtype)
            _product(g_scores, k, q.shape[-1] ** -0.5, out=parts[0])
            _product(g_scores.transpose(1, 2), q, q.shape[-1] ** -0.5, out=parts[1])
            result.append(band.collect(parts))
        return _joined(result, len(gradient))


def _joined(pieces: list[Tensor], tokens: int) -> Tensor:
    """Concatenate the outputs of bands, with zeros for the remaining tokens."""
    filler = tokens - sum(map(len, pieces))
    if filler:
        pieces = [*pieces, pieces[0].new_zeros(filler, pieces[0].shape[1])]
    return pieces[0] if len(pieces) == 1 else torch.cat(pieces)


def _stacked(parts: list[Tensor], like: Tensor) -> Tensor:
    """Concatenate in the dtype of another tensor."""
    if parts[0].dtype == like.dtype:
        return torch.cat(parts)
    return torch.cat(parts, out=like.new_empty(0))


class _Weights(NamedTuple):
    """The weights of a layer, in the order of the arguments of the autograd function."""

    query: Tensor
    query_bias: Tensor
    key: Tensor
    key_bias: Tensor
    value: Tensor
    value_bias: Tensor
    out: Tensor
    out_bias: Tensor
    attention_norm: Tensor
    attention_norm_bias: Tensor
    up: Tensor
    up_bias: Tensor
    down: Tensor
    down_bias: Tensor
    norm: Tensor
    norm_bias: Tensor

    @classmethod
    def of(cls, layer: Layer) -> _Weights:
        modules = (getattr(layer, name) for name in cls._fields if not name.endswith("_bias"))
        return cls(*(weight for module in modules for weight in (module.weight, module.bias)))


class _Options(NamedTuple):
    """Settings of a layer; ``out_dropout`` and ``down_dropout`` are probabilities."""

    activation: Activation
    out_dropout: float
    down_dropout: float
    attention_norm_eps: float
    norm_eps: float


class _LayerStep(torch.autograd.Function):
    """One layer; ``weights`` are the fields of ``_Weights``."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, attention: _Attention, options: _Options, *weights: Tensor) -> Tensor:
        given = _Weights(*weights)
        w = _stacked([given.query, given.key, given.value], x)
        b = _stacked([given.query_bias, given.key_bias, given.value_bias], x)
        ow, uw, dw = (part.to(x.dtype) for part in (given.out, given.up, given.down))
        ob, ub, db = (part.to(x.dtype) for part in (given.out_bias, given.up_bias, given.down_bias))
        n1w, n1b, n2w, n2b = given.attention_norm, given.attention_norm_bias, given.norm, given.norm_bias
        shape = x.shape[1:]
        mixed, saved = attention.forward(torch.addmm(b, x, w.t()))
        out = torch.addmm(ob, mixed, ow.t())
        mask1 = _drop(out.shape, options.out_dropout, out)
        h1 = _dropped(out, mask1).add_(x)
        y1, mean1, rstd1 = torch.native_layer_norm(h1, shape, n1w, n1b, options.attention_norm_eps)
        up = torch.addmm(ub, y1, uw.t())
        activated = options.activation.apply(up)
        down = torch.addmm(db, activated, dw.t())
        mask2 = _drop(down.shape, options.down_dropout, down)
        h2 = _dropped(down, mask2).add_(y1)
        y2, mean2, rstd2 = torch.native_layer_norm(h2, shape, n2w, n2b, options.norm_eps)
        ctx.attention, ctx.activation = attention, options.activation
        ctx.save_for_backward(
            x, mixed, mask1, h1, mean1, rstd1, y1, up, activated, mask2, h2, mean2, rstd2,
            w, ow, uw, dw, n1w, n1b, n2w, n2b, *saved,
        )  # fmt: skip
        return y2

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, mixed, mask1, h1, mean1, rstd1, y1, up, activated, mask2, h2, mean2, rstd2, *rest = ctx.saved_tensors
        w, ow, uw, dw, n1w, n1b, n2w, n2b, *saved = rest
        shape, all3 = x.shape[1:], [True, True, True]
        g_h2, g_n2w, g_n2b = torch.ops.aten.native_layer_norm_backward(g, h2, shape, mean2, rstd2, n2w, n2b, all3)
        g_down = _dropped(g_h2, mask2)
        g_up = ctx.activation.backward(g_down @ dw, up)
        g_y1 = torch.addmm(g_h2, g_up, uw)
        g_h1, g_n1w, g_n1b = torch.ops.aten.native_layer_norm_backward(g_y1, h1, shape, mean1, rstd1, n1w, n1b, all3)
        g_out = _dropped(g_h1, mask1)
        g_qkv = ctx.attention.backward(g_out @ ow, saved)
        g_x = torch.addmm(g_h1, g_qkv, w) if ctx.needs_input_grad[0] else None
        g_w, g_b = (g_qkv.t() @ x).chunk(3), g_qkv.sum(0).chunk(3)
        return (
            g_x, None, None,
            g_w[0], g_b[0], g_w[1], g_b[1], g_w[2], g_b[2],
            g_out.t() @ mixed, g_out.sum(0), g_n1w, g_n1b,
            g_up.t() @ y1, g_up.sum(0), g_down.t() @ activated, g_down.sum(0), g_n2w, g_n2b,
        )  # fmt: skip


def _probability(dropout: nn.Dropout | None) -> float:
    return dropout.p if dropout is not None and dropout.training else 0.0


def trainable(model: Any) -> Backbone | None:
    """The layers of a transformer if this forward supports it in its present state, else None.

    It supports neither hooks, which need the modules to run, nor gradient checkpointing.
    """
    if any(getattr(module, "gradient_checkpointing", False) for module in model.modules()):
        return None
    backbone = describe(model)
    if isinstance(backbone, str) or backbone.position_bias is not None:
        return None
    if watched(model, ALL):
        return None
    return backbone


def hidden_states(backbone: Backbone, batch: TokenBatch, dtype: torch.dtype) -> Tensor:
    """Vectors of all tokens from the last layer, with a gradient.

    Args:
        backbone: The layers, without a position bias.
        batch: A batch on the CPU.
        dtype: Dtype of the computation.

    Shape:
        Output: (tokens, dim) of ``dtype``.
    """
    x = backbone.words(batch.ids) + backbone.positions(positions(batch, backbone.padding))  # (tokens, width)
    if backbone.token_types is not None:
        x = x + (backbone.token_types.weight[0] if batch.types is None else backbone.token_types(batch.types))
    x = backbone.norm(x)
    mask = _drop(x.shape, _probability(backbone.dropout), x)
    x = _dropped(x, mask).to(dtype)
    if backbone.widen is not None:
        x = F.linear(x, backbone.widen.weight.to(dtype), backbone.widen.bias.to(dtype))
    tokens = len(x)
    if dtype.itemsize < 4 or tokens > 1024:
        # At most 16 numbers of tokens per power of 2: oneDNN compiles for each, and memory of equal sizes is reused.
        x = F.pad(x, (0, 0, 0, -tokens % (1 << max(0, tokens.bit_length() - 5))))
    cut = bands(batch, backbone.heads, dtype)
    for layer in backbone.layers:
        x = _run(layer, x, backbone, cut)
    return x[:tokens]


def _run(layer: Layer, x: Tensor, backbone: Backbone, cut: list[Band]) -> Tensor:
    attention = _Attention(cut, _probability(layer.dropout))
    options = _Options(
        backbone.activation,
        _probability(layer.out_dropout),
        _probability(layer.down_dropout),
        layer.attention_norm.eps,
        layer.norm.eps,
    )
    result: Tensor = _LayerStep.apply(x, attention, options, *_Weights.of(layer))  # type: ignore[no-untyped-call]
    return result
