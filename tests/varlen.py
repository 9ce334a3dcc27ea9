"""Stand-ins for torch's kernel for rows of variable length, under the signatures of torch 2.10 to 2.13.

They compute the attention on the CPU, and refuse what the kernel refuses.
"""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import Tensor


@torch.library.custom_op("sbert_tests::varlen", mutates_args=())
def kernel(q: Tensor, k: Tensor, v: Tensor, offsets: Tensor, scale: float, left: int, right: int) -> Tensor:
    """Attention as flash attention computes it, on what it takes: other sizes of heads and dtypes it refuses."""
    assert q.dtype in (torch.bfloat16, torch.float16)
    assert q.dtype == k.dtype == v.dtype
    assert q.shape[-1] % 8 == 0, "head_size must be a multiple of 8"
    assert q.shape[-1] <= 256
    assert offsets.dtype == torch.int32
    out = torch.empty_like(q)
    ends = offsets.tolist()
    for start, end in itertools.pairwise(ends):
        a, b, c = (x[start:end].transpose(0, 1).float() for x in (q, k, v))
        place = torch.arange(end - start)
        ahead = place[None] - place[:, None]
        hidden = ((ahead > right) & (right >= 0)) | ((-ahead > left) & (left >= 0))
        scores = (a @ b.transpose(1, 2) * scale).masked_fill(hidden, -torch.inf)
        out[start:end] = (scores.softmax(-1) @ c).transpose(0, 1).to(q.dtype)
    return out


def of_2_10(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seq_q: Tensor,
    cu_seq_k: Tensor,
    max_q: int,
    max_k: int,
    is_causal: bool = False,
    return_aux: Any = None,
) -> Tensor:
    right = 0 if is_causal else -1
    found: Tensor = kernel(query, key, value, cu_seq_q, query.shape[-1] ** -0.5, -1, right)
    return found


def of_2_11(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seq_q: Tensor,
    cu_seq_k: Tensor,
    max_q: int,
    max_k: int,
    *,
    return_aux: Any = None,
    scale: float | None = None,
    window_size: tuple[int, int] = (-1, -1),
) -> Tensor:
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    found: Tensor = kernel(query, key, value, cu_seq_q, scale, *window_size)
    return found


def of_2_13(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seq_q: Tensor,
    cu_seq_k: Tensor | None,
    max_q: int,
    max_k: int,
    *,
    return_aux: Any = None,
    scale: float | None = None,
    window_size: tuple[int, int] = (-1, -1),
    enable_gqa: bool = False,
    seqused_k: Tensor | None = None,
    block_table: Tensor | None = None,
    num_splits: int | None = None,
) -> Tensor:
    if query.shape[1] != key.shape[1] and not enable_gqa:
        raise ValueError("Expect query and key/value to have the same number of heads")
    assert cu_seq_k is not None
    return of_2_11(query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, scale=scale, window_size=window_size)


def of_2_12(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seq_q: Tensor,
    cu_seq_k: Tensor | None,
    max_q: int,
    max_k: int,
    *,
    return_aux: Any = None,
    scale: float | None = None,
    window_size: tuple[int, int] = (-1, -1),
    enable_gqa: bool = False,
    seqused_k: Tensor | None = None,
    block_table: Tensor | None = None,
    num_splits: int | None = None,
) -> Tensor:
    """As torch 2.13 has it."""
    return of_2_13(
        query, key, value, cu_seq_q, cu_seq_k, max_q, max_k,
        return_aux=return_aux, scale=scale, window_size=window_size, enable_gqa=enable_gqa,
    )  # fmt: skip


VERSIONS = [of_2_10, of_2_11, of_2_12, of_2_13]
