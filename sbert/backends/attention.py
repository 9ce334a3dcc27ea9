"""Attention over concatenated rows, without padding."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sbert.backends.varlen_training import (
    are_means,
    differentiates,
    failure,
    fitted,
    known_operator,
    training_call,
    two_rows,
)
from sbert.batch import Ragged

_HALF = (torch.bfloat16, torch.float16)
# In half precision, CPUs process keys in blocks; an incomplete block costs as much as two, so masked keys complete it.
_BLOCK, _FILLER = 16, 11
# Greatest size of a head that the kernel for variable lengths supports.
_LARGEST = 256
# Errors of that kernel, by dtype, device and head size: torch may be built without it, as on Windows.
_Kind = tuple[torch.dtype, torch.device, int]
_Failures = dict[_Kind, str | None]
kernel_failures: _Failures = {}
# The same in training, with gradient and dropout.
training_failures: _Failures = {}
# Overhead of a call, as the number of attention scores that take the same time.
_CALL, _CALL_ACCELERATOR = 200_000, 20_000_000


def one_kernel(dtype: torch.dtype, device: torch.device, dim: int) -> bool:
    """Whether one kernel handles rows of variable length: in half precision, on a GPU of capability 8.0 or higher.

    Args:
        dtype: Of queries, keys and values.
        device: Where they are.
        dim: Of a head.
    """
    return _usable(kernel_failures, "varlen_attn", _computes, (dtype, device, dim))


def one_training_kernel(dtype: torch.dtype, device: torch.device, dim: int) -> bool:
    """Whether one kernel, and one for the gradient, handle rows of variable length in training, also with dropout.

    Args:
        dtype: Of queries, keys and values.
        device: Where they are.
        dim: Of a head.
    """
    # What torch compiles before it was tried here does without the kernel.
    tried = (dtype, device, dim) in training_failures or not torch.compiler.is_compiling()
    name = "_flash_attention_forward"
    return tried and _usable(training_failures, name, differentiates, (dtype, device, dim))


def _usable(failures: _Failures, name: str, works: Callable[..., bool], kind: _Kind) -> bool:
    """Whether a kernel of torch supports a dtype, device and head size, and works; it is tried at its first use."""
    dtype, device, dim = kind
    if dtype not in _HALF or dim > _LARGEST or not _capable(device):
        return False
    if kind not in failures and not torch.compiler.is_compiling():
        failures[kind] = failure(name, lambda: works(*kind))
    return failures.get(kind) is None


def _capable(device: torch.device) -> bool:
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)


def _computes(dtype: torch.dtype, device: torch.device, dim: int) -> bool:
    """Whether the kernel computes the means of two rows."""
    rows, value = two_rows(dtype, device, 1, dim)
    return are_means(_one_call(torch.zeros_like(value), torch.zeros_like(value), value, rows, None, {}, (-1, -1)))


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    rows: Ragged,
    *,
    bias: Tensor | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
    causal: bool = False,
    window: tuple[int, int] = (-1, -1),
) -> Tensor:
    """Each token attends to the tokens of its own row.

        out_i = sum_j softmax_j(scale q_i k_j + bias_ij) v_j

    One kernel for all rows where there is one, or else a call for each run of rows of equal length: rows that are
    sorted by length make few calls. Either is exact, with no arithmetic for padding.

    Args:
        query: Of every token.
        key: Of every token; with fewer heads, each is shared by several of the queries'.
        value: Of every token; as many heads as the keys.
        rows: Where the rows begin and end.
        bias: Added to the scores, the same for every row.
        scale: Of the scores; 1 / sqrt(dim) where it is not given.
        dropout: Probability with which a weight is dropped.
        causal: Whether a token sees only itself and those before it.
        window: How many tokens to the left and to the right a token sees; -1 for all.

    Shape:
        query: (tokens, heads, dim). key, value: (tokens, key heads, dim). bias: (heads, longest, longest).
        Output: (tokens, heads, dim).

    Example:
        >>> from sbert import TokenBatch
        >>> rows = TokenBatch.from_rows([[1, 2], [3]])
        >>> value = torch.tensor([1.0, 3.0, 5.0]).view(3, 1, 1)
        >>> attend(torch.zeros(3, 1, 1), torch.zeros(3, 1, 1), value, rows).flatten()
        tensor([2., 2., 5.])
    """
    left, right = (window[0], 0) if causal else window
    # What the longest row does not reach is no bound.
    sees = (left if 0 <= left < rows.longest - 1 else -1, right if 0 <= right < rows.longest - 1 else -1)
    trained = dropout > 0 or (torch.is_grad_enabled() and any(x.requires_grad for x in (query, key, value)))
    if trained:
        query, key, value = _as_autocast(query, key, value)
    kind = query.dtype, query.device, query.shape[-1]
    if bias is None and trained and one_training_kernel(*kind):
        return training_call(query, key, value, rows, dropout=dropout, scale=scale, sees=sees)
    if bias is None and not trained and one_kernel(*kind):
        options = _options(sees)
        if options is not None:
            return _one_call(query, key, value, rows, scale, options, sees)
    if dropout and _pads(rows, query.shape[1]):
        return _padded(query, key, value, rows, bias, sees, scale, dropout)
    pieces, start = [], 0
    for count, length in rows.groups:
        end = start + count * length
        if length == 1 and not dropout and key.shape == query.shape:  # A token that sees itself alone.
            pieces.append(value[start:end])
            start = end
            continue
        q, k, v = (x[start:end].view(count, length, *x.shape[1:]).transpose(1, 2) for x in (query, key, value))
        # (count, heads, length, dim)
        only_causal = bias is None and sees == (-1, 0)
        mask = None if only_causal else _mask(length, bias, sees, query)
        filler = -length % _BLOCK
        if query.device.type == "cpu" and query.dtype in _HALF and 0 < filler <= _FILLER and not causal:
            k, v = F.pad(k, (0, 0, 0, filler)), F.pad(v, (0, 0, 0, filler))
            seen = query.new_zeros(length, length) if mask is None else mask
            mask = F.pad(seen, (0, filler), value=-torch.inf)
        out = _sdpa(q, k, v, mask, dropout, is_causal=only_causal, scale=scale)
        pieces.append(out.transpose(1, 2).flatten(0, 1))
        start = end
    if not pieces:
        return torch.empty_like(query)
    return pieces[0] if len(pieces) == 1 else torch.cat(pieces)


def one_row(mixed: Tensor, heads: int) -> Tensor:
    """Attention of the only row of a batch on a CPU: ``attend`` in few operations.

    Args:
        mixed: Query, key and value of each token, side by side.
        heads: Number of heads.

    Shape:
        mixed: (tokens, 3 * dim). Output: (tokens, dim).
    """
    tokens = len(mixed)
    query, key, value = mixed.view(1, tokens, 3, heads, -1).permute(2, 0, 3, 1, 4).unbind(0)  # (1, heads, tokens, …)
    return F.scaled_dot_product_attention(query, key, value).transpose(1, 2).reshape(tokens, -1)


def _as_autocast(*tensors: Tensor) -> tuple[Tensor, ...]:
    """In the dtype of autocast on an accelerator: some models normalize queries and keys in float32."""
    kind = tensors[0].device.type
    if kind != "cuda" or not torch.is_autocast_enabled(kind):
        return tensors
    return tuple(x.to(torch.get_autocast_dtype(kind)) for x in tensors)


def _sdpa(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout: float, **options: Any) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, mask, dropout, enable_gqa=k.shape[1] != q.shape[1], **options)


_known: list[frozenset[str]] = []  # Not functools.cache, which torch.compile cannot trace.


def _takes() -> frozenset[str]:
    """Arguments of torch's kernel for variable lengths: that of 2.10 has neither scale nor window."""
    from torch.nn.attention import varlen

    if not _known:
        _known.append(frozenset(signature(varlen.varlen_attn).parameters))
    return _known[0]


def _options(sees: tuple[int, int]) -> dict[str, Any] | None:
    """Arguments that tell the kernel what a token attends to; None if it has none for that."""
    if sees == (-1, -1):
        return {}
    if "window_size" in _takes():
        return {"window_size": sees}
    return {"is_causal": True} if sees == (-1, 0) and "is_causal" in _takes() else None


def _one_call(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    rows: Ragged,
    scale: float | None,
    options: dict[str, Any],
    sees: tuple[int, int],
) -> Tensor:
    """Attention by the kernel for variable lengths; heads are padded with zeros to a size that it supports."""
    if query.is_cuda and not torch.compiler.is_compiling() and known_operator():
        return training_call(query, key, value, rows, dropout=0.0, scale=scale, sees=sees)
    from torch.nn.attention import varlen

    dim = query.shape[-1]
    query, key, value = fitted(query, key, value)
    scale = dim**-0.5 if scale is None else scale
    default = query.shape[-1] ** -0.5
    if scale != default and "scale" in _takes():
        options = {**options, "scale": scale}
    elif scale != default:
        query = query * (scale / default)
    offsets = rows.offsets_int32
    out: Any = varlen.varlen_attn(query, key, value, offsets, offsets, rows.longest, rows.longest, **options)
    mixed: Tensor = out[..., :dim]
    return mixed


def _pads(rows: Ragged, heads: int) -> bool:
    """Whether one call on padded rows is cheaper than one call per length.

    With dropout, a call is made of many small steps; without, padding costs more than calls.
    """
    call = _CALL if rows.offsets.device.type == "cpu" else _CALL_ACCELERATOR
    grouped = sum(count * length**2 for count, length in rows.groups) * heads + len(rows.groups) * call
    return rows.rows * rows.longest**2 * heads + call < grouped


def _padded(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    rows: Ragged,
    bias: Tensor | None,
    sees: tuple[int, int],
    scale: float | None,
    dropout: float,
) -> Tensor:
    """Attention in one call, on rows padded to the longest; no token attends to padding."""
    slots, filler = rows.grid

    def spread(x: Tensor) -> Tensor:  # (tokens, heads, dim) to (rows, heads, longest, dim)
        flat = x.new_zeros(filler.numel(), *x.shape[1:]).index_copy(0, slots, x)
        return flat.view(*filler.shape, *x.shape[1:]).transpose(1, 2)

    mask = filler.to(query.dtype)[:, None, None]  # (rows, 1, 1, longest)
    own = _mask(rows.longest, bias, sees, query)
    if own is not None:
        mask = mask + own
    out = _sdpa(spread(query), spread(key), spread(value), mask, dropout, scale=scale)
    return out.transpose(1, 2).flatten(0, 1).index_select(0, slots)


def _mask(length: int, bias: Tensor | None, sees: tuple[int, int], like: Tensor) -> Tensor | None:
    """Additive mask of the scores of a row: the bias, and -inf where a token does not attend."""
    # With three dimensions, torch on a CPU takes no fused kernel.
    bias = None if bias is None else bias[None, :, :length, :length]
    if sees == (-1, -1):
        return bias
    left, right = (length if bound < 0 else bound for bound in sees)
    place = torch.arange(length, device=like.device)
    ahead = place[None, :] - place[:, None]  # (length, length)
    zeros = like.new_zeros(length, length) if bias is None else bias
    return zeros.masked_fill((ahead > right) | (-ahead > left), -torch.inf)
