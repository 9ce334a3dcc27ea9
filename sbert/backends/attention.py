"""Attention over concatenated rows, without padding."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sbert.batch import Ragged, TokenBatch
from sbert.storage.processes import Lock

_HALF = (torch.bfloat16, torch.float16)
# The score of padding is that far below the others; float16 has it, too.
_HIDDEN = 1e4
# Kernels of a GPU support heads whose size is a multiple of the first, and at most the second.
_MULTIPLE, _LARGEST = 8, 256
# Attention scores whose padding takes as long as another call with dropout and its gradient on a CPU.
_SCORES_PER_CALL = 200_000
# Values of 16 random bits.
_OF_BITS = 1 << 16
_lock = Lock()
# For each running call, whether the process used cuDNN's attention before the first of them.
_before: list[bool] = []


def has_kernel(dtype: torch.dtype, device: torch.device, dim: int) -> bool:
    """Whether one kernel handles rows of variable length: in half precision, on a GPU of capability 8.0 or higher.

    It computes the gradient, too, also with dropout. torch may be built without it.

    Args:
        dtype: Of queries, keys and values.
        device: Where they are.
        dim: Of a head.
    """
    if dtype not in _HALF or dim > _LARGEST or device.type != "cuda":
        return False
    return torch.cuda.get_device_capability(device) >= (8, 0) and torch.backends.cuda.is_flash_attention_available()


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
    window: int | None = None,
) -> Tensor:
    """Each token attends to the tokens of its own row.

        out_i = sum_j softmax_j(scale q_i k_j + bias_ij) v_j

    One kernel for all rows where there is one. Elsewhere a GPU pads them, for attention alone; a CPU takes a call for
    each run of rows of equal length, without padding: rows that are sorted by length make few calls. With dropout, for
    which a CPU has no kernel, each call is many operations, so rows of similar length share one. All are exact.

    Args:
        query: Of every token.
        key: Of every token; with fewer heads, each is shared by several of the queries.
        value: Of every token; as many heads as the keys.
        rows: Where the rows begin and end.
        bias: Added to the scores, the same for every row.
        scale: Of the scores; default: 1 / sqrt(dim).
        dropout: Probability with which a weight is dropped.
        causal: Whether a token sees only itself and those before it.
        window: How many tokens to each side a token sees, itself included; None for all.

    Shape:
        query: (tokens, heads, dim). key, value: (tokens, key heads, dim). bias: (heads, longest, longest).
        Output: (tokens, heads, dim).

    Example:
        >>> import torch
        >>> from sbert import TokenBatch
        >>> from sbert.backends import attend
        >>> rows = TokenBatch.from_rows([[1, 2], [3]])
        >>> value = torch.tensor([1.0, 3.0, 5.0]).view(3, 1, 1)
        >>> attend(torch.zeros(3, 1, 1), torch.zeros(3, 1, 1), value, rows).flatten()
        tensor([2., 2., 5.])
    """
    dim = query.shape[-1]
    scale = dim**-0.5 if scale is None else scale
    if query.device.type == "cuda" and dim % _MULTIPLE:
        query, key, value = (F.pad(x, (0, -dim % _MULTIPLE)) for x in (query, key, value))
        options: dict[str, Any] = {"scale": scale, "dropout": dropout, "causal": causal, "window": window}
        return attend(query, key, value, rows, bias=bias, **options)[..., :dim]
    # How far to the left and to the right; what the longest row does not reach is no bound.
    reach = -1 if window is None or window >= rows.longest else window - 1
    sees = (reach, 0 if causal and rows.longest > 1 else reach)
    if bias is None and has_kernel(query.dtype, query.device, query.shape[-1]):
        return attend_by_kernel((query, key, value), rows, dropout, scale, sees)
    if query.device.type == "cuda" and rows.rows > 1 and rows.longest:
        return attend_padded((query, key, value), rows, bias, dropout, scale, sees)
    if dropout and rows.longest:
        if "_bands" not in vars(rows):  # The same for all layers; freed with the batch.
            vars(rows)["_bands"] = _bands(rows, query.shape[1])
        bands: list[Ragged] = vars(rows)["_bands"]
        divided = (x.split_with_sizes([len(band.values) for band in bands]) for x in (query, key, value))
        padded = zip(zip(*divided, strict=True), bands, strict=True)
        return torch.cat([attend_padded(qkv, band, bias, dropout, scale, sees) for qkv, band in padded])
    outputs: list[Tensor] = []
    only_causal = bias is None and sees == (-1, 0)
    sizes = list(map(math.prod, rows.groups))
    queries, keys, values = query.split_with_sizes(sizes), key.split_with_sizes(sizes), value.split_with_sizes(sizes)
    for (count, length), *part in zip(rows.groups, queries, keys, values, strict=True):
        if length == 1 and key.shape == query.shape:  # A token that sees itself alone.
            outputs.append(part[2])
            continue
        q, k, v = (x.view(count, length, *x.shape[1:]).transpose(1, 2) for x in part)  # (count, heads, length, dim)
        mask = None if only_causal else _mask(length, bias, sees, query)
        outputs.append(_attend(q, k, v, mask, 0.0, only_causal, scale).transpose(1, 2).flatten(0, 1))
    if not outputs:
        return torch.empty_like(query)
    return outputs[0] if len(outputs) == 1 else torch.cat(outputs)


def _attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout: float, causal: bool, scale: float) -> Tensor:
    """Attention of rows of one length. Shape: (rows, heads, length, dim); with fewer heads, keys are shared."""
    shared = k.shape[1] != q.shape[1]
    if dropout and q.device.type == "cpu" and not causal and not shared:
        scores = torch.matmul(q * scale, k.transpose(2, 3))
        return torch.matmul(drop((scores if mask is None else scores + mask).softmax(-1), dropout), v)
    return F.scaled_dot_product_attention(q, k, v, mask, dropout, causal, scale=scale, enable_gqa=shared)


def drop(x: Tensor, probability: float) -> Tensor:
    """Dropout on a CPU by 16 random bits per element, to which the probability is rounded.

    On Zen 4, ``F.dropout`` takes several times as long, and a step of MiniLM with 16 rows 1.07 times in float32, 1.12
    times in bfloat16.
    """
    dropped = round(probability * _OF_BITS)
    if dropped in (0, _OF_BITS):
        return x * float(not dropped)
    bits = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(1 << 63), None).view(torch.int16)[: x.numel()]
    least = dropped - _OF_BITS // 2  # The smallest random number that is kept.
    mask = bits.clamp_(least - 1, least).sub_(least - 1)  # 0 or 1: faster than a comparison.
    return x * mask.view(x.shape).to(x.dtype).mul_(_OF_BITS / (_OF_BITS - dropped))


def _mask(length: int, bias: Tensor | None, sees: tuple[int, int], like: Tensor) -> Tensor | None:
    """Additive mask of the scores of a row: the bias, and -inf where a token does not attend."""
    # With three dimensions, torch on a CPU takes no fused kernel.
    bias = None if bias is None else bias[None, :, :length, :length]
    if sees == (-1, -1):
        return bias
    left, right = (length if bound < 0 else bound for bound in sees)
    position = torch.arange(length, device=like.device)
    distance = position[None, :] - position[:, None]  # (length, length)
    zeros = like.new_zeros(length, length) if bias is None else bias
    return zeros.masked_fill((distance > right) | (-distance > left), -torch.inf)


# ------------------------------------------------------------------------------------- one call for rows of few shapes


def padded_shape(rows: Ragged, device: torch.device) -> tuple[int, int]:
    """Rows and tokens per row to which attention pads; on a GPU few, since some kernels are planned for each shape.

    Example:
        >>> import torch
        >>> from sbert import TokenBatch
        >>> from sbert.backends.attention import padded_shape
        >>> rows = TokenBatch.from_rows([[1, 2], [3], [4]])
        >>> padded_shape(rows, torch.device("cuda")), padded_shape(rows, torch.device("cpu"))
        ((4, 16), (3, 2))
    """
    if device.type == "cpu":
        return rows.rows, rows.longest
    return 1 << (rows.rows - 1).bit_length(), round_length(rows.longest)


def _bands(rows: Ragged, heads: int) -> list[Ragged]:
    """The rows, empty ones left out, in parts that are padded together: a run of rows joins where that costs less."""
    bands: list[list[int]] = []  # The lengths of the rows of each.
    for count, length in rows.groups:
        run = [length] * count
        joined = bands[-1] + run if bands else run
        if bands and (_scores(joined) - _scores(bands[-1]) - _scores(run)) * heads < _SCORES_PER_CALL:
            bands[-1] = joined
        else:
            bands.append(run)
    return [TokenBatch.from_rows([range(length) for length in band]) for band in bands]


def _scores(lengths: list[int]) -> int:
    """Number of attention scores of one head for padded rows."""
    return len(lengths) * max(lengths) ** 2


def round_length(longest: int) -> int:
    """The next multiple of 16, to which kernels align their masks."""
    return -(-longest // 16) * 16


def attend_padded(
    qkv: tuple[Tensor, ...], rows: Ragged, bias: Tensor | None, dropout: float, scale: float, sees: tuple[int, int]
) -> Tensor:
    """Attention in one call, with rows padded to one of few shapes, where a mask hides the padding."""
    count, length = padded_shape(rows, qkv[0].device)
    causal = bias is None and sees == (-1, 0)  # Padding stands after all tokens, which do not see it.
    # The same for all layers, whose position bias is one tensor; freed with the batch.
    prepared, kind = vars(rows).setdefault("_padded", {}), (sees, qkv[0].dtype)
    if kind not in prepared or prepared[kind][0] is not bias:
        prepared[kind] = bias, *_slots_and_mask(rows, bias, sees, causal, qkv[0])
    _, slots, mask = prepared[kind]

    def spread(x: Tensor) -> Tensor:
        padded = x.new_zeros(count * length, *x.shape[1:]).index_copy(0, slots, x)
        return padded.view(count, length, *x.shape[1:]).transpose(1, 2)  # (count, heads, length, dim)

    q, k, v = map(spread, qkv)
    out = _attend(q, k, v, mask, dropout, causal, scale)
    return out.transpose(1, 2).flatten(0, 1).index_select(0, slots)


def _slots_and_mask(
    rows: Ragged, bias: Tensor | None, sees: tuple[int, int], causal: bool, like: Tensor
) -> tuple[Tensor, Tensor | None]:
    """The index of each token in the flattened padded rows, and the additive mask of the scores."""
    count, length = padded_shape(rows, like.device)
    slots = rows.row_of_token * length + rows.position_of_token  # (tokens,)
    if causal:
        return slots, None
    # Finite, so that a row without tokens gives numbers and no NaN, which would reach the gradients.
    hidden = like.new_full((count * length,), -_HIDDEN).index_fill_(0, slots, 0.0).view(count, 1, 1, length)
    if bias is not None and (missing := length - bias.shape[-1]) > 0:
        bias = F.pad(bias, (0, missing, 0, missing))
    mask = _mask(length, bias, sees, like)
    return slots, hidden if mask is None else mask + hidden


@contextmanager
def without_cudnn() -> Iterator[None]:
    """Without cuDNN's attention, which torch prefers on H100 and B200: it takes 20 to 440 ms to plan each new shape.

    Threads share this setting of the process: the last one to leave restores it.
    """
    with _lock:
        enabled = torch.backends.cuda.cudnn_sdp_enabled()  # type: ignore[no-untyped-call]
        _before.append(_before[0] if _before else enabled)
        torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        with _lock:
            before = _before.pop()
            if not _before:
                torch.backends.cuda.enable_cudnn_sdp(before)


# ------------------------------------------------------------------------------ torch's kernel for rows of any length


def attend_by_kernel(
    qkv: tuple[Tensor, ...], rows: Ragged, dropout: float, scale: float, sees: tuple[int, int]
) -> Tensor:
    """Attention in one call on a GPU, by the operator behind torch's ``varlen_attn``, which takes dropout as well.

    torch knows its gradient. Its arguments are passed by name, since their number depends on the version of torch.
    """
    query, key, value = qkv
    outputs: tuple[Tensor, ...] = torch.ops.aten._flash_attention_forward(
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
        scale=scale,
        window_size_left=sees[0],
        window_size_right=sees[1],
    )
    return outputs[0]
