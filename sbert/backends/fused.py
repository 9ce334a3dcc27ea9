"""The forward for inference from copies of the weights: no padding, few calls, weights in a fast layout."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sbert.backends.architectures import Backbone, Layer, OfLength, describe
from sbert.backends.attention import attend, round_length
from sbert.backends.backend import Backend, Compiling
from sbert.backends.linear import Product, choose_weight_layout, linear
from sbert.backends.network import has_hooks
from sbert.backends.packed import positions
from sbert.batch import TokenBatch
from sbert.functional import accumulation_dtype

Norm = Callable[[Tensor], Tensor]


def _norm(module: Any, dtype: torch.dtype, offset: float = 0.0) -> Norm:
    """A norm from copies of its weights, with sums in float32 for every dtype."""
    if not isinstance(module, nn.LayerNorm):
        weight, eps = module.weight.detach(), module.eps if hasattr(module, "eps") else module.variance_epsilon
        if weight.device.type == "cpu":  # torch.rms_norm takes three times as long there.
            return partial(_rms_norm, weight=weight.to(accumulation_dtype(dtype)) + offset, eps=eps)
        weight = (weight.float() + offset).to(dtype)
        return partial(torch.rms_norm, normalized_shape=weight.shape, weight=weight, eps=eps)
    weight = module.weight.detach().to(dtype)
    bias = None if module.bias is None else module.bias.detach().to(dtype)
    return partial(torch.layer_norm, normalized_shape=weight.shape, weight=weight, bias=bias, eps=module.eps)


def _rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    squares: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=weight.dtype).square_()
    return (x * squares.div_(x.shape[-1]).add_(eps).rsqrt_()).mul_(weight).to(x.dtype)


def _make_addition(layer: nn.Linear, norm: Norm | None, dtype: torch.dtype, reordered: bool) -> Product:
    """The function that adds the output of a linear layer, normalized if there is a norm, to its second argument."""
    product = linear([layer], dtype, reordered, combine=None if norm else "add")
    return product if norm is None else lambda x, residual: norm(product(x)).add_(residual)


class _Layer:
    """One layer: query, key and value in one product; activations and residuals fused with the product before them."""

    def __init__(self, layer: Layer, backbone: Backbone, dtype: torch.dtype, reordered: bool) -> None:
        kind, self.heads, self.key_heads = backbone.architecture, backbone.heads, backbone.key_heads
        self.norm_first, self.rotary = kind.norm_first, layer.rotary
        self.options: dict[str, Any] = {"causal": layer.causal, "window": layer.window, "scale": layer.scale}
        # Three products of the weights themselves take less memory than one of a copy, which has to be made anyway to
        # reorder or to cast them.
        copied = reordered or layer.out.weight.dtype != dtype
        parts = [layer.qkv] if copied else [[part] for part in layer.qkv]
        self.qkv, *self.key_value = [linear(part, dtype, reordered) for part in parts]
        # With a gate, two products: activation and multiplication are part of them.
        size, (gate, *_, up) = layer.down.in_features, layer.up * 2
        self.up = linear([gate], dtype, reordered, backbone.activation, rows=slice(size))
        self.gated = linear([up], dtype, reordered, None, "mul", slice(-size, None)) if layer.is_gated else None
        norms = (layer.attention_norm, layer.query_norm, layer.key_norm, layer.out_norm, layer.down_norm)
        copies = [norm and _norm(norm, dtype, kind.norm_offset) for norm in norms]
        self.attention_norm, self.query_norm, self.key_norm, *after = copies
        self.out, self.down = (
            _make_addition(output, norm, dtype, reordered)
            for output, norm in zip((layer.out, layer.down), after, strict=True)
        )
        self.norm = _norm(layer.norm, dtype, kind.norm_offset)
        differs = self.rotary is not None or self.key_heads != self.heads
        self.is_plain = not (differs or layer.query_norm or any(self.options.values()))

    def attention(self, x: Tensor, batch: TokenBatch, bias: Tensor | None, rotation: Tensor | None) -> Tensor:
        """What attention mixes, before its last product. Shape: (tokens, heads * head dim)."""
        if self.norm_first and self.attention_norm is not None:
            x = self.attention_norm(x)
        tokens, mixed = len(x), self.qkv(x)
        if batch.rows == 1 and bias is None and self.is_plain and x.device.type == "cpu" and not self.key_value:
            # The same as below, in few operations.
            query, key, value = mixed.view(1, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
            return F.scaled_dot_product_attention(query, key, value).transpose(1, 2).reshape(tokens, -1)
        heads = [self.heads, self.key_heads, self.key_heads]
        if self.key_value:
            parts = [mixed, *(product(x) for product in self.key_value)]
            query, key, value = (part.view(tokens, count, -1) for part, count in zip(parts, heads, strict=True))
        else:  # (tokens, heads, head dim)
            query, key, value = mixed.view(tokens, sum(heads), -1).split_with_sizes(heads, dim=1)
        if self.query_norm is not None and self.key_norm is not None:
            query, key = self.query_norm(query), self.key_norm(key)
        if rotation is not None:
            query, key = _rotate(query, rotation), _rotate(key, rotation)
        return attend(query, key, value, batch, bias=bias, **self.options).flatten(1)


def _rotate(x: Tensor, rotation: Tensor) -> Tensor:
    """Queries or keys at their positions. Shape: (tokens, heads, head dim), (2, tokens, 1, head dim)."""
    half, cosines, sines = x.shape[-1] // 2, rotation[0], rotation[1]
    rotated = x * cosines
    rotated[..., :half].addcmul_(x[..., half:], sines[..., :half], value=-1)
    rotated[..., half:].addcmul_(x[..., :half], sines[..., half:])
    return rotated


def _rest(layer: _Layer, mixed: Tensor, x: Tensor) -> Tensor:
    """The part of a layer after attention."""
    x = layer.out(mixed, x)
    if not layer.norm_first and layer.attention_norm is not None:
        x = layer.attention_norm(x)
    inputs = layer.norm(x) if layer.norm_first else x
    inner = layer.up(inputs)
    if layer.gated is not None:
        inner = layer.gated(inputs, inner)
    x = layer.down(inner, x)
    return x if layer.norm_first else layer.norm(x)


def _of_longest(function: OfLength, dtype: torch.dtype) -> OfLength:
    """The function, whose values are computed for the longest row so far, rounded up as attention pads."""
    values = torch.zeros(0, 0, 0)

    def of_length(longest: int) -> Tensor:
        nonlocal values
        if values.shape[1] < longest:
            values = function(round_length(longest)).to(dtype)
        return values

    return of_length


class Fused(Backend):
    """A transformer, computed layer by layer from copies of its weights; sums in norms and attention are float32.

    Args:
        network: A Hugging Face model or a minimal BERT, which is not modified.
        dtype: Of the computation.
        compiling: Options of ``torch.compile``; None to run without it.

    Shape:
        Input: TokenBatch of (tokens,) ids. Output: (tokens, dim) of the dtype of the weights.
    """

    name: ClassVar[str] = "fused"
    how: ClassVar[str] = "in the fused forward"

    def __init__(self, network: Any, dtype: torch.dtype, compiling: Compiling = None) -> None:
        backbone = cast("Backbone", describe(network))
        # Why the weights have their layout, in words.
        layout: tuple[float, str] = (0, "F.linear") if compiling is None else (0, "torch.compile")
        on_cpu = compiling is None and network.device.type == "cpu"
        self._reordered_below, self.why = choose_weight_layout(dtype) if on_cpu else layout
        self.dtype: torch.dtype = dtype
        self._weights: torch.dtype = network.dtype
        self._tokens, offset = backbone.tokens.weight.detach(), backbone.architecture.norm_offset
        # Embeddings of some models are scaled; a copy of them all would take much memory.
        self._scale = getattr(backbone.tokens, "embed_scale", None)
        table, types, accumulation = backbone.positions, backbone.token_types, accumulation_dtype(dtype)
        self._padding = None if table is None else table.padding_idx
        summed = self._tokens.new_zeros(1, 1) if table is None else table.weight.detach()  # (positions, dim)
        summed, self._count = summed.to(accumulation), len(summed)
        if types is not None:
            summed = (summed + types.weight.detach()[:, None]).flatten(0, 1)
        self._positions = summed  # (types * positions, dim): the sum of each type with each position
        self._norm = None if backbone.norm is None else _norm(backbone.norm, accumulation)
        projection = backbone.embedding_projection
        self._projection = None if projection is None else linear([projection], dtype, self._reordered_below > 0)
        # With reordered weights for few tokens, without for many; or one of both for all.
        layouts = {self._reordered_below > 0, self._reordered_below == math.inf}
        self._layers = {kind: [_Layer(layer, backbone, dtype, kind) for layer in backbone.layers] for kind in layouts}
        self._final_norm = None if backbone.final_norm is None else _norm(backbone.final_norm, dtype, offset)
        self._bias = None if backbone.position_bias is None else _of_longest(backbone.position_bias, dtype)
        self._rotary = {kind: _of_longest(function, dtype) for kind, function in backbone.rotary.items()}
        self._is_absolute = table is not None
        self._rest = _rest if compiling is None else torch.compile(_rest, **compiling)

    @staticmethod
    def supports(network: Any, device: torch.device, dtype: torch.dtype) -> str | None:
        """Why a model cannot be run layer by layer, from copies; None if it can."""
        if device.type == "mps":
            return "MPS compiles for each shape, so batches are padded to few shapes"
        if has_hooks(network):
            return "forward hooks are registered"
        if dtype == torch.float16 and getattr(network, "_keep_in_fp32_modules", None):
            return "parts of it leave the range of float16"
        backbone = describe(network)
        return backbone if isinstance(backbone, str) else None

    def forward(self, batch: TokenBatch) -> Tensor:
        """Vectors of all tokens from the last layer, whatever autocast the caller has entered. Shape: (tokens, dim)."""
        if torch.is_autocast_enabled(batch.values.device.type):
            with torch.autocast(batch.values.device.type, enabled=False):
                return self.forward(batch)
        tokens = len(batch.values)
        reordered = tokens < self._reordered_below
        batch = round_up(batch) if reordered else batch
        x = self._embed(batch)
        bias = None if self._bias is None else self._bias(batch.longest)
        rotary: dict[str | None, Tensor] = {}  # Cosines and sines for each token: (2, tokens, 1, head dim).
        for kind, of_length in self._rotary.items():
            rotary[kind] = of_length(batch.longest)[:, batch.position_of_token, None]
        for layer in self._layers[reordered]:
            x = self._rest(layer, layer.attention(x, batch, bias, rotary.get(layer.rotary)), x)
        if self._final_norm is not None:
            x = self._final_norm(x)
        return x[:tokens].to(self._weights)

    def _embed(self, batch: TokenBatch) -> Tensor:
        """Vectors before the first layer. Shape: (tokens, dim)."""
        x = F.embedding(batch.values, self._tokens)  # (tokens, width)
        if self._scale is not None:
            x = x * self._scale.to(x.dtype)
        if batch.rows == 1 and batch.types is None and self._padding is None and self._is_absolute:
            x = x + self._positions[: len(x)]
        else:
            position = positions(batch, self._padding) if self._is_absolute else torch.zeros_like(batch.ids)
            if batch.types is not None:
                position = position + self._count * batch.types
            x = x + F.embedding(position, self._positions)
        if self._norm is not None:
            x = self._norm(x)
        x = x.to(self.dtype)
        return x if self._projection is None else self._projection(x)


def round_up(batch: TokenBatch) -> TokenBatch:
    """The batch with appended rows of one token, up to one of at most 16 numbers of tokens per power of two.

    oneDNN compiles for each number of tokens, which takes as long as a small batch and memory that is not released.
    """
    tokens = len(batch.values)
    count = -tokens % (1 << max(0, tokens.bit_length() - 5))
    if not count:
        return batch
    offsets = torch.cat([batch.offsets, torch.arange(tokens + 1, tokens + count + 1)])
    types = None if batch.types is None else F.pad(batch.types, (0, count))
    result = TokenBatch(F.pad(batch.values, (0, count)), offsets, batch.longest, types=types)
    result.__dict__["groups"] = [*batch.groups, (count, 1)]
    return result
