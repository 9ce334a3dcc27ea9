"""The forward of BERT-family models for inference: no padding, few calls, weights in a fast layout."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sbert.backends.architectures import POSITION_BIAS, Backbone, Layer, describe
from sbert.backends.attention import attend, one_row
from sbert.backends.hooks import watched
from sbert.backends.linear import Linear, packing, rounded
from sbert.backends.packed import positions
from sbert.backends.triton import launches, supported
from sbert.batch import TokenBatch
from sbert.functional import accumulation_dtype


class _Norm:
    """Layer norm with sums in float32 for every dtype."""

    def __init__(self, norm: nn.LayerNorm, dtype: torch.dtype, adds: bool = False) -> None:
        self.shape, self.eps, self.adds = norm.normalized_shape, norm.eps, adds
        self.weight, self.bias = norm.weight.detach().to(dtype), norm.bias.detach().to(dtype)

    def __call__(self, x: Tensor) -> Tensor:
        return torch.layer_norm(x, self.shape, self.weight, self.bias, self.eps)

    def of_sum(self, linear: Linear, x: Tensor, residual: Tensor) -> Tensor:
        """The norm of linear(x) + residual; ``adds`` says that one kernel does all that follows the product."""
        if not self.adds:
            return self(linear(x, residual=residual))
        return launches.add_norm(linear.product(x), linear.bias, residual, self.weight, self.bias, self.eps)


class _Layer:
    """One layer: query, key and value in one product; activations and residuals fused with the product before them."""

    def __init__(
        self, layer: Layer, backbone: Backbone, dtype: torch.dtype, reordered: bool, parts: frozenset[str]
    ) -> None:
        self.heads, self.activation, self.short = backbone.heads, backbone.activation, "short_attention" in parts
        self.qkv = Linear([layer.query, layer.key, layer.value], dtype, reordered)
        self.out, self.down = (Linear([x], dtype, reordered) for x in (layer.out, layer.down))
        self.up = Linear([layer.up], dtype, reordered, epilogue="activation" in parts)
        norms = (layer.attention_norm, layer.norm)
        self.attention_norm, self.norm = (_Norm(norm, dtype, "add_norm" in parts) for norm in norms)

    def attention(self, x: Tensor, batch: TokenBatch, bias: Tensor | None) -> Tensor:
        mixed = self.qkv(x)
        if batch.rows == 1 and bias is None and mixed.device.type == "cpu":
            return one_row(mixed, self.heads)
        query, key, value = mixed.view(len(x), 3, self.heads, -1).unbind(1)  # (tokens, heads, dim / heads)
        if self.short and batch.longest <= launches.SHORT:
            return launches.short_attention(query, key, value, batch, bias)
        return attend(query, key, value, batch, bias=bias).flatten(1)  # (tokens, dim)


def _rest(layer: _Layer, mixed: Tensor, x: Tensor) -> Tensor:
    """The part of a layer after attention."""
    x = layer.attention_norm.of_sum(layer.out, mixed, x)
    return layer.norm.of_sum(layer.down, layer.up(x, activation=layer.activation), x)


class Fused:
    """A BERT-family model, computed from copies of its weights; sums in norms and attention are float32.

    Args:
        network: A Hugging Face model or a minimal BERT, which is not modified.
        dtype: Of the computation.
        compiling: Options of ``torch.compile``; None to run without it.
        parts: Names of the parts of ``sbert.backends.triton`` to use, of those that are supported; None for all.
        reordered: Whether weights on a CPU are in the layout of oneDNN. Default: if that is faster here.

    Shape:
        Input: TokenBatch of (tokens,) ids. Output: (tokens, dim) of ``dtype``.
    """

    name: ClassVar[str] = "fused"
    how: ClassVar[str] = "in the fused forward"

    def __init__(
        self,
        network: Any,
        dtype: torch.dtype,
        compiling: dict[str, Any] | None = None,
        parts: frozenset[str] | None = None,
        reordered: bool | None = None,
    ) -> None:
        backbone = _described(network)
        if isinstance(backbone, str):
            raise ValueError(backbone)
        # Why the weights have their layout, in words.
        self.why: str = "F.linear" if compiling is None else "torch.compile"
        self._reordered = False
        if compiling is None and network.device.type == "cpu":
            chosen = (
                packing(dtype, torch.get_num_threads()) if reordered is None else (reordered, "as it was asked for")
            )
            self._reordered, self.why = chosen
        self.dtype: torch.dtype = dtype
        known = frozenset() if compiling is not None else supported(network.device, dtype, backbone)
        # Names of the parts in use.
        self.parts: frozenset[str] = known if parts is None else known & parts
        self._words, self._padding = backbone.words.weight.detach(), backbone.positions.padding_idx
        accumulation = accumulation_dtype(dtype)
        places = backbone.positions.weight.detach().to(accumulation)
        self._places = len(places)
        if backbone.token_types is not None:
            types = backbone.token_types.weight.detach()
            places = (places + types[:, None]).flatten(0, 1)
        self._positions = places  # (types * positions, dim): the sum of each type with each position
        self.vocab_size: int = len(self._words)
        self.longest: int = self._places - (0 if self._padding is None else self._padding + 1)
        self._norm = _Norm(backbone.norm, accumulation)
        self._widen = None if backbone.widen is None else Linear([backbone.widen], dtype, self._reordered)
        self._layers = [_Layer(layer, backbone, dtype, self._reordered, self.parts) for layer in backbone.layers]
        self._make_bias, self._bias = backbone.position_bias, torch.zeros(0, 0, 0)
        if network.device.type != "cpu":  # Once for all streams of the callers.
            self._position_bias(self.longest)
        self._rest = _rest if compiling is None else torch.compile(_rest, **compiling)

    @staticmethod
    def supports(network: Any, device: torch.device, dtype: torch.dtype) -> str | None:
        """Why a model cannot be run layer by layer, from copies; None if it can."""
        if device.type == "mps":
            return "MPS compiles for each shape, so batches are padded to few shapes"
        if watched(network):
            return "hooks are to see its modules run"
        backbone = _described(network)
        return backbone if isinstance(backbone, str) else None

    def forward(self, batch: TokenBatch) -> Tensor:
        """Vectors of all tokens from the last layer. Shape: (tokens, dim)."""
        tokens = len(batch.ids)
        if tokens == 0:
            return torch.zeros(0, *self._layers[-1].norm.shape, dtype=self.dtype, device=batch.ids.device)
        batch = _rounded(batch) if self._reordered else batch
        x = self._embed(batch)
        bias = self._position_bias(batch.longest)
        for layer in self._layers:
            x = self._rest(layer, layer.attention(x, batch, bias), x)
        return x if len(x) == tokens else x[:tokens]

    def _embed(self, batch: TokenBatch) -> Tensor:
        norm = self._norm
        if "embed_norm" in self.parts:
            tables = (self._words, self._positions, self._places, self._padding)
            x = launches.embed_norm(batch, *tables, norm.weight, norm.bias, norm.eps, self.dtype)
            return x if self._widen is None else self._widen(x)
        words = F.embedding(batch.ids, self._words)  # (tokens, width)
        if batch.rows == 1 and batch.types is None and self._padding is None:
            x = words + self._positions[: len(words)]
        else:
            places = positions(batch, self._padding)
            if batch.types is not None:
                places = places + self._places * batch.types
            x = words + F.embedding(places, self._positions)
        x = norm(x).to(self.dtype)
        return x if self._widen is None else self._widen(x)

    def _position_bias(self, longest: int) -> Tensor | None:
        """(heads, at least longest, at least longest), computed for the longest row so far."""
        known = self._bias
        if self._make_bias is None:
            return None
        if known.shape[1] < longest:
            known = self._bias = self._make_bias(longest).to(self.dtype)
        return known


def _described(network: Any) -> Backbone | str:
    return describe(network, known={POSITION_BIAS})


def _rounded(batch: TokenBatch) -> TokenBatch:
    """The batch with appended rows of one token, so that few different numbers of tokens occur."""
    tokens = len(batch.ids)
    filler = rounded(tokens) - tokens
    ids = F.pad(batch.ids, (0, filler))
    ends = torch.arange(tokens + 1, tokens + filler + 1)
    types = None if batch.types is None else F.pad(batch.types, (0, filler))
    result = TokenBatch(ids, torch.cat([batch.offsets, ends]), batch.longest, types=types)
    result.__dict__["groups"] = [*batch.groups, (filler, 1)] if filler else batch.groups
    return result
