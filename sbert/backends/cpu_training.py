"""The forward of BERT's layers for training on a CPU with AVX-512: few operations beside the matrix products.

Query, key and value are one product, dropout takes 16 random bits per element, and under autocast all layers compute in
half precision. A step of MiniLM with 16 rows takes 0.8 of the time of ``Packed`` in bfloat16 and 0.93 in float32 on
Zen 4; on Zen 3, which has AVX2 alone, a similar forward took longer than ``Packed``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from sbert.backends.architectures import ACTIVATIONS, ARCHITECTURES, describe
from sbert.backends.attention import attend, drop
from sbert.backends.backend import Backend
from sbert.backends.fused import round_up
from sbert.backends.linear import matrix_product
from sbert.backends.network import has_hooks, snapshot
from sbert.backends.packed import positions
from sbert.batch import TokenBatch


class CpuTraining(Backend):
    """The layers of a BERT-like model, with a gradient, in the dtype of its weights or of autocast.

    Args:
        network: A Hugging Face model or a minimal BERT, on a CPU.
    """

    name: ClassVar[str] = "cpu_training"
    how: ClassVar[str] = "in training"

    @staticmethod
    def supports(network: Any, device: torch.device, dtype: torch.dtype) -> str | None:
        """Why a model cannot be trained layer by layer in its present state; None if it can."""
        if not (network.training or torch.is_grad_enabled()):
            return "nothing is trained"
        if device.type != "cpu" or torch.backends.cpu.get_cpu_capability() != "AVX512":
            return "it is for training on a CPU with AVX-512"
        if torch.compiler.is_compiling():
            return "torch.compile makes its own graph"
        modules: list[Any] = list(snapshot(network).parts)
        if any(getattr(part, "gradient_checkpointing", False) or part._compiled_call_impl for part in modules):
            return "its layers are compiled, or computed again for the gradient"
        if has_hooks(network) or any(part._backward_hooks or part._backward_pre_hooks for part in [network, *modules]):
            return "hooks are registered"
        backbone = describe(network)
        if isinstance(backbone, str):
            return backbone
        return None if backbone.architecture is ARCHITECTURES["bert"] else "its layers are not those of BERT"

    def forward(self, batch: TokenBatch) -> Tensor:
        """Vectors of all tokens from the last layer. Shape: (tokens, dim)."""
        network: Any = self._network
        tokens, batch = len(batch.values), round_up(batch)
        dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else network.dtype
        parts, widen = network.embeddings, getattr(network, "embeddings_project", None)  # The latter in small ELECTRA.
        table, types = parts.position_embeddings, parts.token_type_embeddings
        heads, activate = network.config.num_attention_heads, ACTIVATIONS[network.config.hidden_act].apply
        with torch.autocast("cpu", enabled=False):
            x = parts.word_embeddings(batch.ids) + table(positions(batch, table.padding_idx))  # (tokens, width)
            x = x + (types.weight[0] if batch.types is None else types(batch.types))
            x = _drop(parts.LayerNorm(x), parts.dropout).to(dtype)
            if widen is not None:
                x = _linear(x, widen)
            for layer in network.encoder.layer:
                x = _layer(x, layer, batch, heads, activate)
        return x[:tokens]


def _layer(x: Tensor, layer: Any, batch: TokenBatch, heads: int, activate: Callable[[Tensor], Tensor]) -> Tensor:
    """Shape: (tokens, dim) to (tokens, dim)."""
    inner, out = layer.attention.self, layer.attention.output
    query, key, value = _linear(x, inner.query, inner.key, inner.value).view(len(x), 3, heads, -1).unbind(1)
    dropout = inner.dropout.p if inner.dropout.training else 0.0
    mixed = attend(query, key, value, batch, dropout=dropout).flatten(1)
    x = _add(_linear(mixed, out.dense), x, out)
    return _add(_linear(activate(_linear(x, layer.intermediate.dense)), layer.output.dense), x, layer.output)


def _linear(x: Tensor, *layers: nn.Linear) -> Tensor:
    """The outputs of linear layers side by side, in the dtype of x."""
    parts: list[list[Tensor]] = [[layer.weight for layer in layers], [layer.bias for layer in layers]]
    weight, bias = (tensors[0] if len(tensors) == 1 else torch.cat(tensors) for tensors in parts)
    result: Tensor = _Linear.apply(x, weight.to(x.dtype), bias.to(x.dtype))  # type: ignore[no-untyped-call]
    return result


class _Linear(torch.autograd.Function):
    """x W' + b by the product that is the fastest here, forward and backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.product = matrix_product(x.dtype)
        return ctx.product(x, weight, bias)  # type: ignore[no-any-return]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        g_x = ctx.product(g, weight.t(), None) if ctx.needs_input_grad[0] else None
        g_weight = ctx.product(g.t(), x.t(), None) if ctx.needs_input_grad[1] else None
        return g_x, g_weight, g.sum(0)


def _add(x: Tensor, residual: Tensor, output: Any) -> Tensor:
    """The output of a linear layer after dropout, with its residual, normalized."""
    x, norm = _drop(x, output.dropout) + residual, output.LayerNorm
    return torch.layer_norm(x, norm.normalized_shape, norm.weight.to(x.dtype), norm.bias.to(x.dtype), norm.eps)


def _drop(x: Tensor, dropout: nn.Dropout) -> Tensor:
    return drop(x, dropout.p) if dropout.training else x
