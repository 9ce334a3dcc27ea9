"""Attention over rows that lie end to end, without padding."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

if TYPE_CHECKING:
    from sbert.batch import Ragged

_HALF = (torch.bfloat16, torch.float16)
# In half precision a CPU takes keys in blocks, and a broken block as long as two: a few hidden keys fill it up.
_BLOCK, _FILLER = 16, 11
# What a call costs beside its arithmetic, in scores of the same time.
_CALL, _CALL_ACCELERATOR = 200_000, 20_000_000


def one_kernel(dtype: torch.dtype, device: torch.device) -> bool:
    """Whether one kernel takes rows of any length at once: in half precision, on a GPU of capability 8.0 or more."""
    return device.type == "cuda" and dtype in _HALF and torch.cuda.get_device_capability(device) >= (8, 0)


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
    if one_kernel(query.dtype, query.device) and bias is None and dropout == 0 and query.shape[-1] <= 256:
        from torch.nn.attention.varlen import varlen_attn

        offsets = rows.offsets.to(torch.int32)
        window, repeats = (window[0], 0) if causal else window, query.shape[1] // key.shape[1]
        if repeats > 1:
            key, value = (x.repeat_interleave(repeats, dim=1) for x in (key, value))
        return varlen_attn(  # type: ignore[return-value]
            query, key, value, offsets, offsets, rows.longest, rows.longest, scale=scale, window_size=window
        )
    if dropout and _pads(rows, query.shape[1]):
        return _padded(query, key, value, rows, bias=bias, scale=scale, dropout=dropout, causal=causal, window=window)
    pieces, start = [], 0
    for count, length in rows.groups:
        end = start + count * length
        q, k, v = (x[start:end].view(count, length, *x.shape[1:]).transpose(1, 2) for x in (query, key, value))
        # (count, heads, length, dim)
        mask = _mask(length, bias, causal, window, query)
        filler = -length % _BLOCK
        if query.device.type == "cpu" and query.dtype in _HALF and 0 < filler <= _FILLER and not causal:
            k, v = F.pad(k, (0, 0, 0, filler)), F.pad(v, (0, 0, 0, filler))
            seen = query.new_zeros(length, length) if mask is None else mask
            mask = F.pad(seen, (0, filler), value=-torch.inf)
        out = F.scaled_dot_product_attention(
            q, k, v, mask, dropout, is_causal=causal and mask is None, scale=scale, enable_gqa=k.shape[1] != q.shape[1]
        )
        pieces.append(out.transpose(1, 2).flatten(0, 1))
        start = end
    if not pieces:
        return torch.empty_like(query)
    return pieces[0] if len(pieces) == 1 else torch.cat(pieces)


def _pads(rows: Ragged, heads: int) -> bool:
    """Whether one call for all rows, padded, is cheaper than one for each length.

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
    *,
    bias: Tensor | None,
    scale: float | None,
    dropout: float,
    causal: bool,
    window: tuple[int, int],
) -> Tensor:
    """Attention in one call, of rows that are filled up to the longest; padding is not seen."""
    shape = rows.rows, rows.longest
    slots, filler = rows.grid

    def spread(x: Tensor) -> Tensor:  # (tokens, heads, dim) to (rows, heads, longest, dim)
        flat = x.new_zeros(shape[0] * shape[1], *x.shape[1:]).index_copy(0, slots, x)
        return flat.view(*shape, *x.shape[1:]).transpose(1, 2)

    mask = filler.to(query.dtype)[:, None, None]  # (rows, 1, 1, longest)
    own = _mask(rows.longest, bias, causal, (window[0], 0) if causal else window, query)
    if own is not None:
        mask = mask + own
    out = F.scaled_dot_product_attention(
        spread(query), spread(key), spread(value), mask, dropout, scale=scale, enable_gqa=key.shape[1] != query.shape[1]
    )
    return out.transpose(1, 2).flatten(0, 1).index_select(0, slots)


def _mask(length: int, bias: Tensor | None, causal: bool, window: tuple[int, int], like: Tensor) -> Tensor | None:
    """What is added to the scores of a row: the bias, and minus infinity where a token does not see."""
    left, right = window
    hides = (0 <= left < length - 1) or (0 <= right < length - 1)
    if bias is not None:
        bias = bias[:, :length, :length]
    if not hides and (bias is None or not causal):
        return bias
    place = torch.arange(length, device=like.device)
    ahead = place[None, :] - place[:, None]  # (length, length)
    hidden = (ahead > (0 if causal else right if right >= 0 else length)) | (-ahead > (left if left >= 0 else length))
    zeros = torch.zeros(length, length, dtype=like.dtype, device=like.device) if bias is None else bias
    return zeros.masked_fill(hidden, -torch.inf)
