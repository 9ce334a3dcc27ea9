"""The contract of a pooling: its formula, its gradient, empty rows, prompts that are left out, and half precision.

A new pooling is one row of ``FORMULAS``.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from sbert import Pooling, TokenEmbeddings
from sbert.modules.pooling import POOLINGS

LENGTHS = [3, 1, 7, 4]
# The vector of one text from its tokens' vectors, (tokens, dim), and their weights, (tokens, 1): 1, 2, …
FORMULAS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mean": lambda row, _: row.sum(0) / len(row),
    "max": lambda row, _: torch.stack([column.max() for column in row.unbind(1)]),
    "cls": lambda row, _: row[0],
    "lasttoken": lambda row, _: row[-1],
    "mean_sqrt_len": lambda row, _: row.sum(0) / math.sqrt(len(row)),
    "weightedmean": lambda row, weights: (row * weights).sum(0) / weights.sum(),
    "splade": lambda row, _: (1 + row.clamp(min=0)).log().max(0).values,
    "splade_log1p": lambda row, _: (1 + (1 + row.clamp(min=0)).log()).log().max(0).values,
}
every_mode = pytest.mark.parametrize("mode", FORMULAS)


def tokens(lengths: list[int] = LENGTHS, dtype: torch.dtype = torch.float64) -> TokenEmbeddings:
    torch.manual_seed(0)
    offsets = torch.tensor([0, *np.cumsum(lengths)])
    return TokenEmbeddings(torch.randn(int(offsets[-1]), 5, dtype=dtype, requires_grad=True), offsets)


def by_formula(mode: str, row: Tensor, first: int = 0) -> Tensor:
    return FORMULAS[mode](row, torch.arange(first + 1, first + len(row) + 1, dtype=row.dtype)[:, None])


def test_each_pooling_has_its_row() -> None:
    assert set(FORMULAS) == set(POOLINGS)


@every_mode
def test_it_is_its_formula_and_so_is_its_gradient(mode: str) -> None:
    batch = tokens()
    expected = torch.stack([by_formula(mode, row) for row in batch.values.split(LENGTHS)])
    torch.testing.assert_close(Pooling(mode)(batch), expected, rtol=0, atol=1e-12)
    assert torch.autograd.gradcheck(lambda x: Pooling(mode)(TokenEmbeddings(x, batch.offsets)), batch.values)


@every_mode
@pytest.mark.parametrize("lengths", [[0], [0, 2], [2, 0], [0, 0, 3, 0]])
def test_empty_rows_give_zeros(mode: str, lengths: list[int]) -> None:
    for length, vector in zip(lengths, Pooling(mode)(tokens(lengths)), strict=True):
        assert torch.isfinite(vector).all()
        assert (vector == 0).all() == (length == 0)


@every_mode
def test_a_prompt_is_left_out(mode: str) -> None:
    """The weights of weightedmean keep counting from the text's first token."""
    full, prompts = tokens(), torch.tensor([1, 1, 2, 3])
    batch = TokenEmbeddings(full.values, full.offsets, prompt_tokens=prompts)
    pooled = Pooling(mode, include_prompt=False)(batch)
    for row, prompt, vector in zip(full.values.split(LENGTHS), prompts.tolist(), pooled, strict=True):
        if prompt < len(row):
            torch.testing.assert_close(vector, by_formula(mode, row[prompt:], prompt))
        else:
            assert (vector == 0).all()
    torch.testing.assert_close(Pooling(mode)(batch), Pooling(mode)(full))


@every_mode
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_summed_in_float32(mode: str, dtype: torch.dtype) -> None:
    pooled = Pooling(mode)(TokenEmbeddings(torch.ones(5000, 1, dtype=dtype), torch.tensor([0, 5000])))
    assert pooled.dtype == torch.float32
    torch.testing.assert_close(pooled, by_formula(mode, torch.ones(5000, 1))[None])


def test_modes_are_concatenated_in_order() -> None:
    batch = tokens()
    expected = torch.cat([Pooling("max")(batch), Pooling("cls")(batch)], 1)
    torch.testing.assert_close(Pooling(["max", "cls"])(batch), expected)
    for mode in ("median", [], ["mean", "median"]):
        with pytest.raises(ValueError, match="unknown; pass one or more of cls, max"):
            Pooling(mode)
    for arguments in ((768,), (768, "mean")):
        with pytest.raises(TypeError, match=r"Pooling\(768\) takes its dimension from the vectors; pass the mode"):
            Pooling(*arguments)
