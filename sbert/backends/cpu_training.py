"""The forward of BERT-family models for training on a CPU: one layer is one autograd function.

Compared with the Hugging Face module it reduces all but the matrix products: one product for query, key and value,
dropout from 16 random bits per element, attention in few calls, and no graph of some hundred small operations.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from sbert.backends.activations import Activation
from sbert.backends.architectures import Backbone, Layer, describe
from sbert.backends.bands import Band, BandAttention, bands, dropout_mask, dropped
from sbert.backends.hooks import ALL, walk, watched
from sbert.backends.linear import product, rounded, uses_onednn
from sbert.backends.packed import positions
from sbert.batch import TokenBatch

# Modules of a layer with a weight and a bias, in the order of the arguments of ``_LayerStep``.
_WEIGHTS = ("query", "key", "value", "out", "attention_norm", "up", "down", "norm")


class CpuTraining:
    """The layers of a model, with a gradient, in the dtype of its weights or of autocast.

    Args:
        network: A Hugging Face model or a minimal BERT, on the CPU.
    """

    name: ClassVar[str] = "cpu_training"
    how: ClassVar[str] = "in training"

    def __init__(self, network: Any) -> None:
        self._network = network

    @staticmethod
    def supports(network: Any, device: torch.device, dtype: torch.dtype) -> str | None:
        """Why a model cannot be trained layer by layer in its present state; None if it can."""
        if device.type != "cpu":
            return "it is for training on a CPU"
        if torch.compiler.is_compiling():
            return "torch.compile makes its own graph"
        if any(getattr(module, "gradient_checkpointing", False) for module in walk(network)):
            return "gradient checkpointing needs the modules"
        if any(module._compiled_call_impl is not None for module in walk(network)):
            return "its layers are compiled"
        if watched(network, ALL):
            return "hooks are to see its modules run"
        backbone = describe(network)
        return backbone if isinstance(backbone, str) else None

    def forward(self, batch: TokenBatch) -> Tensor:
        """Vectors of all tokens from the last layer. Shape: (tokens, dim)."""
        backbone = describe(self._network)
        if isinstance(backbone, str):
            raise ValueError(backbone)
        dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else self._network.dtype
        with torch.autocast("cpu", enabled=False):
            x = _embed(backbone, batch).to(dtype)
            if backbone.widen is not None:
                x = F.linear(x, backbone.widen.weight.to(dtype), backbone.widen.bias.to(dtype))
            tokens = len(x)
            if dtype.itemsize < 4 or tokens > 1024 or uses_onednn(dtype):  # Otherwise MKL multiplies.
                x = F.pad(x, (0, 0, 0, rounded(tokens) - tokens))
            divided = bands(batch, backbone.heads, dtype)
            for layer in backbone.layers:
                x = _run(layer, x, backbone.activation, divided)
        return x[:tokens]


def _embed(backbone: Backbone, batch: TokenBatch) -> Tensor:
    places = positions(batch, backbone.positions.padding_idx)
    x = backbone.words(batch.ids) + backbone.positions(places)  # (tokens, width)
    if backbone.token_types is not None:
        x = x + (backbone.token_types.weight[0] if batch.types is None else backbone.token_types(batch.types))
    x = backbone.norm(x)
    return dropped(x, dropout_mask(x.shape, _probability(backbone.dropout), x))


def _probability(dropout: nn.Dropout | None) -> float:
    return dropout.p if dropout is not None and dropout.training else 0.0


def _run(layer: Layer, x: Tensor, activation: Activation, divided: list[Band]) -> Tensor:
    attention = BandAttention(divided, _probability(layer.dropout))
    modules = [getattr(layer, name) for name in _WEIGHTS]
    weights = [weight for module in modules for weight in (module.weight, module.bias)]
    result: Tensor = _LayerStep.apply(x, attention, layer, activation, *weights)  # type: ignore[no-untyped-call]
    return result


class _LayerStep(torch.autograd.Function):
    """One layer; ``weights`` are the weight and the bias of each of ``_WEIGHTS``."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, attention: BandAttention, layer: Layer, activation: Activation, *weights: Tensor
    ) -> Tensor:
        qw, qb, kw, kb, vw, vb, ow, ob, n1w, n1b, uw, ub, dw, db, n2w, n2b = weights
        w, b = _concatenated([qw, kw, vw], x), _concatenated([qb, kb, vb], x)
        ow, ob, uw, ub, dw, db = (part.to(x.dtype) for part in (ow, ob, uw, ub, dw, db))
        shape = x.shape[1:]
        mixed, saved = attention.forward(product(x, w, b))
        out = product(mixed, ow, ob)
        mask1 = dropout_mask(out.shape, _probability(layer.out_dropout), out)
        h1 = dropped(out, mask1).add_(x)
        y1, mean1, rstd1 = torch.native_layer_norm(h1, shape, n1w, n1b, layer.attention_norm.eps)
        up = product(y1, uw, ub)
        activated = activation.apply(up)
        down = product(activated, dw, db)
        mask2 = dropout_mask(down.shape, _probability(layer.down_dropout), down)
        h2 = dropped(down, mask2).add_(y1)
        y2, mean2, rstd2 = torch.native_layer_norm(h2, shape, n2w, n2b, layer.norm.eps)
        ctx.attention, ctx.activation = attention, activation
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
        g_down = dropped(g_h2, mask2)
        g_up = ctx.activation.backward(product(g_down, dw.t()), up)
        g_y1 = product(g_up, uw.t()).add_(g_h2)
        g_h1, g_n1w, g_n1b = torch.ops.aten.native_layer_norm_backward(g_y1, h1, shape, mean1, rstd1, n1w, n1b, all3)
        g_out = dropped(g_h1, mask1)
        g_qkv = ctx.attention.backward(product(g_out, ow.t()), saved)
        g_x = product(g_qkv, w.t()).add_(g_h1) if ctx.needs_input_grad[0] else None
        g_w, g_b = product(g_qkv.t(), x.t()).chunk(3), g_qkv.sum(0).chunk(3)
        return (
            g_x, None, None, None,
            g_w[0], g_b[0], g_w[1], g_b[1], g_w[2], g_b[2],
            product(g_out.t(), mixed.t()), g_out.sum(0), g_n1w, g_n1b,
            product(g_up.t(), y1.t()), g_up.sum(0), product(g_down.t(), activated.t()), g_down.sum(0), g_n2w, g_n2b,
        )  # fmt: skip


def _concatenated(parts: list[Tensor], like: Tensor) -> Tensor:
    """In the dtype of another tensor."""
    if parts[0].dtype == like.dtype:
        return torch.cat(parts)
    return torch.cat(parts, out=like.new_empty(0))
