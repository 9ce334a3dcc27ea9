"""The forward of BERT-family models for inference: no padding, few calls, weights in a fast layout."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sbert.backends.activations import Activation
from sbert.backends.architectures import Backbone, Layer
from sbert.backends.attention import attend
from sbert.backends.linear import Linear
from sbert.backends.packed import positions
from sbert.batch import TokenBatch
from sbert.functional import accumulation_dtype


class _Norm:
    """Layer norm with sums in float32 for every dtype."""

    def __init__(self, norm: nn.LayerNorm, dtype: torch.dtype) -> None:
        self.shape, self.eps = norm.normalized_shape, norm.eps
        self.weight, self.bias = norm.weight.detach().to(dtype), norm.bias.detach().to(dtype)

    def __call__(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.shape, self.weight, self.bias, self.eps)


class _Layer:
    """One layer: query, key and value in one product; activations and residuals fused with the product before them."""

    def __init__(self, layer: Layer, heads: int, activation: Activation, dtype: torch.dtype, packed: bool) -> None:
        self.heads, self.activation = heads, activation
        self.qkv = Linear([layer.query, layer.key, layer.value], dtype, packed)
        self.out, self.up, self.down = (Linear([x], dtype, packed) for x in (layer.out, layer.up, layer.down))
        self.attention_norm, self.norm = _Norm(layer.attention_norm, dtype), _Norm(layer.norm, dtype)

    def attention(self, x: Tensor, batch: TokenBatch, bias: Tensor | None) -> Tensor:
        query, key, value = self.qkv(x).view(len(x), 3, self.heads, -1).unbind(1)  # (tokens, heads, dim / heads)
        return attend(query, key, value, batch, bias=bias).flatten(1)  # (tokens, dim)


def _rest(layer: _Layer, mixed: Tensor, x: Tensor) -> Tensor:
    """The part of a layer after attention."""
    x = layer.attention_norm(layer.out(mixed, residual=x))
    return layer.norm(layer.down(layer.up(x, activation=layer.activation), residual=x))


class FusedEncoder:
    """Token embeddings of a backbone, computed from copies of its weights.

    Args:
        backbone: The layers, which are not modified.
        dtype: Dtype of the computation; sums in norms and attention are float32.
        packed: Whether linear layers use the layout of oneDNN.
        compiling: Options of ``torch.compile``; None to run without it.

    Shape:
        Input: TokenBatch of (tokens,) ids. Output: (tokens, dim) of ``dtype``.
    """

    def __init__(
        self, backbone: Backbone, dtype: torch.dtype, packed: bool, compiling: dict[str, Any] | None = None
    ) -> None:
        self.backbone, self.dtype, self._packed = backbone, dtype, packed
        self._words, self._padding = backbone.words.weight.detach(), backbone.padding
        accumulation = accumulation_dtype(dtype)
        places = backbone.positions.weight.detach().to(accumulation)
        self._places = len(places)
        if backbone.token_types is not None:
            types = backbone.token_types.weight.detach()
            places = (places + types[:, None]).flatten(0, 1)
        self._positions = places  # (types * positions, dim): the sum of each type with each position
        self.vocab_size = len(self._words)
        self.longest = self._places - (0 if self._padding is None else self._padding + 1)
        self._norm = _Norm(backbone.norm, accumulation)
        self._widen = None if backbone.widen is None else Linear([backbone.widen], dtype, packed)
        self._layers = [_Layer(x, backbone.heads, backbone.activation, dtype, packed) for x in backbone.layers]
        self._bias: Tensor | None = None
        self._rest = _rest if compiling is None else torch.compile(_rest, **compiling)

    def __call__(self, batch: TokenBatch) -> Tensor:
        if len(batch.ids) == 0:
            return torch.zeros(0, *self._layers[-1].norm.shape, dtype=self.dtype, device=batch.ids.device)
        tokens = len(batch.ids)
        batch = _rounded(batch) if self._packed else batch
        x = self._embed(batch)
        bias = self._position_bias(batch.longest)
        for layer in self._layers:
            x = self._rest(layer, layer.attention(x, batch, bias), x)
        return x[:tokens]

    def _embed(self, batch: TokenBatch) -> Tensor:
        places = positions(batch, self._padding)
        if batch.types is not None:
            places = places + self._places * batch.types
        x = F.embedding(batch.ids, self._words) + F.embedding(places, self._positions)  # (tokens, width)
        x = self._norm(x).to(self.dtype)
        return x if self._widen is None else self._widen(x)

    def _position_bias(self, longest: int) -> Tensor | None:
        """(heads, at least longest, at least longest), computed for the longest row so far."""
        make, known = self.backbone.position_bias, self._bias
        if make is None:
            return None
        if known is None or known.shape[1] < longest:
            known = self._bias = make(longest).to(self.dtype)
        return known


def _rounded(batch: TokenBatch) -> TokenBatch:
    """The batch with appended rows of one token, so that few different numbers of tokens occur.

    oneDNN compiles for each number, which takes as long as a small batch and memory that is not released.
    """
    tokens = len(batch.ids)
    step = 1 << max(0, tokens.bit_length() - 5)  # At most one token in 16 is filler.
    filler = -tokens % step
    ids = F.pad(batch.ids, (0, filler))
    ends = torch.arange(tokens + 1, tokens + filler + 1)
    types = None if batch.types is None else F.pad(batch.types, (0, filler))
    rounded = TokenBatch(ids, torch.cat([batch.offsets, ends]), batch.longest, types=types)
    rounded.__dict__["groups"] = [*batch.groups, (filler, 1)] if filler else batch.groups
    return rounded
