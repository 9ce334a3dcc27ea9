"""torch's kernel for rows of variable length in training: with a gradient, and with dropout."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from sbert.batch import Ragged, TokenBatch
from sbert.storage.files import is_failure, one_line

# The kernel supports heads whose size is a multiple of this.
_MULTIPLE = 8


def training_call(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    rows: Ragged,
    *,
    dropout: float,
    scale: float | None = None,
    sees: tuple[int, int] = (-1, -1),
) -> Tensor:
    """Attention by the operator behind ``varlen_attn``, which takes dropout as well; torch knows its gradient.

    Its arguments are passed by name, since their number depends on the version of torch.
    """
    dim = query.shape[-1]
    query, key, value = fitted(query, key, value)
    found: tuple[Tensor, ...] = torch.ops.aten._flash_attention_forward(
        query=query,
        key=key,
        value=value,
        cum_seq_q=rows.offsets_int32,
        cum_seq_k=rows.offsets_int32,
        max_q=rows.longest,
        max_k=rows.longest,
        dropout_p=dropout,
        is_causal=sees == (-1, 0),
        return_debug_mask=False,
        scale=dim**-0.5 if scale is None else scale,
        window_size_left=sees[0],
        window_size_right=sees[1],
    )
    return found[0][..., :dim]


@cache
def known_operator() -> bool:
    """Whether the operator takes these arguments; ``varlen_attn`` calls it, and makes a tensor that nothing needs."""
    operator = getattr(torch.ops.aten, "_flash_attention_forward", None)
    found = {argument.name for argument in operator.default._schema.arguments} if operator else set()
    return {"cum_seq_q", "max_q", "dropout_p", "scale", "window_size_left", "window_size_right"} <= found


def fitted(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """As many heads of keys and values as of queries, padded with zeros to a size that the kernel supports."""
    repeats, filler = query.shape[1] // key.shape[1], -query.shape[-1] % _MULTIPLE
    if repeats > 1:
        key, value = (x.repeat_interleave(repeats, dim=1) for x in (key, value))
    if filler:
        query, key, value = (F.pad(x, (0, filler)) for x in (query, key, value))
    return query, key, value


def failure(name: str, works: Callable[[], bool]) -> str | None:
    """Why a kernel of torch cannot be used; None if it can."""
    try:
        if works():
            return None
        reason = "gives other vectors"
    except Exception as error:
        if not is_failure(error):
            raise
        reason = f"fails ({one_line(error)})"
    warnings.warn(f"attention runs slower than it could: torch's {name} {reason}", stacklevel=2)
    return reason


def two_rows(dtype: torch.dtype, device: torch.device, heads: int, dim: int) -> tuple[TokenBatch, Tensor]:
    """Rows and values whose means are known. Shape of the values: (3, heads, dim)."""
    value = torch.tensor([1.0, 3.0, 5.0], dtype=dtype, device=device).view(3, 1, 1).expand(3, heads, dim)
    return TokenBatch.from_rows([[1, 2], [3]]).to(device), value.contiguous()


def are_means(out: Tensor) -> bool:
    """Whether the output has the means of these values."""
    means = torch.tensor([2.0, 2.0, 5.0], device=out.device)
    return bool(out.detach().float().flatten(1).mean(1).sub(means).abs().max() < 0.1)


def differentiates(dtype: torch.dtype, device: torch.device, dim: int) -> bool:
    """Whether the kernel computes the means of two rows and, with dropout, the gradient of the weights that it kept.

    The output is linear in the values: for each head, the sum of values times gradients is that of the output. The
    random state is restored, since a chunk that is computed again must drop the same weights.
    """
    # Autograd as it is outside of the caller's modes and hooks.
    hooks = torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x)
    with torch.inference_mode(False), torch.enable_grad(), torch.random.fork_rng([device]), hooks:
        rows, value = two_rows(dtype, device, 16, dim)
        query, key, value = (x.requires_grad_() for x in (torch.zeros_like(value), torch.zeros_like(value), value))
        if not are_means(training_call(query, key, value, rows, dropout=0.0)):
            return False
        out = training_call(query, key, value, rows, dropout=0.5)
        gradients = torch.autograd.grad(out.float().sum(), (query, key, value))
        by_head = (gradients[2].float() * value.float() - out.float()).mean(2).sum(0)
        finite = all(bool(gradient.isfinite().all()) for gradient in gradients)
        return finite and bool(by_head.abs().max() < 0.1)
