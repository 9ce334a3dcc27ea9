"""Attention of many rows is that of each row alone, however rows share a call."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from sbert import TokenBatch
from sbert.backends.attention import attend


@pytest.mark.parametrize(("dtype", "most"), [(torch.float32, 2e-6), (torch.bfloat16, 0.02)])
@pytest.mark.parametrize("lengths", [[7] * 9, [2] * 33, [3, 3, 5, 5, 5, 16, 16, 16, 17, 17, 1, 1], [40, 12, 12]])
def test_rows_see_themselves_alone(lengths: list[int], dtype: torch.dtype, most: float) -> None:
    rows = TokenBatch.from_rows([[1] * length for length in lengths])
    tensors = torch.randn(3, sum(lengths), 4, 8, generator=torch.Generator().manual_seed(0)).to(dtype)
    result = attend(*tensors, rows).float()
    each = zip(*(part.float().split(lengths) for part in tensors), strict=True)
    expected = [F.scaled_dot_product_attention(*(x.transpose(0, 1) for x in row)).transpose(0, 1) for row in each]
    assert (result - torch.cat(expected)).abs().max() <= most
