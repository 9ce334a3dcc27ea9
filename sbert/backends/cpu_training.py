"""The forward of BERT-like layers for training on a CPU: one layer is one autograd function.

Compared with the Hugging Face module it reduces all but the matrix products: one product for query, key and value,
dropout from 16 random bits per element, attention in few calls, forward and backward, on rows of similar length, and no
graph of some hundred small operations.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter, methodcaller
from typing import Any, ClassVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from sbert.backends.architectures import Activation, Backbone, describe
from sbert.backends.linear import Product, filler, matrix_product, uses_onednn
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
                x = F.linear(x, backbone.widen.weight.to(dtype), backbone.widen.bias.to(dtype))
            tokens = len(x)
            if dtype.itemsize < 4 or tokens > 1024 or uses_onednn(dtype):  # Otherwise MKL multiplies.
                x = F.pad(x, (0, 0, 0, filler(tokens)))
            divided, product = bands(batch, backbone.heads, dtype), matrix_product(dtype)
            for layer in backbone.layers:
                modules = (*layer.qkv, layer.out, layer.attention_norm, *layer.up, layer.down, layer.norm)
                weights = chain.from_iterable(map(attrgetter("weight", "bias"), modules))
                x = _LayerStep.apply(x, divided, layer, backbone.activation, product, *weights)  # type: ignore[no-untyped-call]
        return x[:tokens]


def _embed(backbone: Backbone, batch: TokenBatch) -> Tensor:
    table, norm = cast("nn.Embedding", backbone.positions), cast("nn.LayerNorm", backbone.norm)
    x = backbone.tokens(batch.ids) + table(positions(batch, table.padding_idx))  # (tokens, width)
    if backbone.token_types is not None:
        x = x + (backbone.token_types.weight[0] if batch.types is None else backbone.token_types(batch.types))
    x = norm(x)
    return drop(x, dropout_mask(x.shape, _probability(backbone.dropout), x))


def _probability(dropout: nn.Dropout | None) -> float:
    return dropout.p if dropout is not None and dropout.training else 0.0


class _LayerStep(torch.autograd.Function):
    """One layer; ``weights`` are the weight and the bias of each module, in the order of the computation."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, divided: list[Band], layer: Any, activation: Activation, product: Product, *weights: Tensor
    ) -> Tensor:
        qw, qb, kw, kb, vw, vb, ow, ob, n1w, n1b, uw, ub, dw, db, n2w, n2b = weights
        w, b = torch.cat([qw, kw, vw]).to(x.dtype), torch.cat([qb, kb, vb]).to(x.dtype)
        ow, ob, uw, ub, dw, db = map(methodcaller("to", x.dtype), (ow, ob, uw, ub, dw, db))
        shape = x.shape[1:]
        mixed, saved = attend_bands(divided, product(x, w, b), _probability(layer.dropout))
        out = product(mixed, ow, ob)
        mask1 = dropout_mask(out.shape, _probability(layer.out_dropout), out)
        h1 = drop(out, mask1).add_(x)
        y1, mean1, rstd1 = torch.native_layer_norm(h1, shape, n1w, n1b, layer.attention_norm.eps)
        up = product(y1, uw, ub)
        activated = activation.apply(up)
        down = product(activated, dw, db)
        mask2 = dropout_mask(down.shape, _probability(layer.down_dropout), down)
        h2 = drop(down, mask2).add_(y1)
        y2, mean2, rstd2 = torch.native_layer_norm(h2, shape, n2w, n2b, layer.norm.eps)
        ctx.bands, ctx.activation, ctx.product = divided, activation, product
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
        shape, all3, product = x.shape[1:], [True, True, True], ctx.product
        g_h2, g_n2w, g_n2b = torch.ops.aten.native_layer_norm_backward(g, h2, shape, mean2, rstd2, n2w, n2b, all3)
        g_down = drop(g_h2, mask2)
        g_up = ctx.activation.backward(product(g_down, dw.t(), None), up)
        g_y1 = product(g_up, uw.t(), None).add_(g_h2)
        g_h1, g_n1w, g_n1b = torch.ops.aten.native_layer_norm_backward(g_y1, h1, shape, mean1, rstd1, n1w, n1b, all3)
        g_out = drop(g_h1, mask1)
        g_qkv = attend_bands_backward(ctx.bands, product(g_out, ow.t(), None), saved)
        g_x = product(g_qkv, w.t(), None).add_(g_h1) if ctx.needs_input_grad[0] else None
        g_w, g_b = product(g_qkv.t(), x.t(), None).chunk(3), g_qkv.sum(0).chunk(3)
        return (
            g_x, None, None, None, None,
            g_w[0], g_b[0], g_w[1], g_b[1], g_w[2], g_b[2],
            product(g_out.t(), mixed.t(), None), g_out.sum(0), g_n1w, g_n1b,
            product(g_up.t(), y1.t(), None), g_up.sum(0),
            product(g_down.t(), activated.t(), None), g_down.sum(0), g_n2w, g_n2b,
        )  # fmt: skip


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
