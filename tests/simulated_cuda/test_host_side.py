"""The host's part of the pipeline: what is copied to a device and how, and what the host does per text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from sbert import SentenceEncoder, TokenBatch
from tests.simulated_cuda.simulator import simulated

pytestmark = pytest.mark.simulated_cuda
IDS = [[101, 7, 8, 102], [101, 102], [101, 9, 102], [], [5]]


def batch(prompt_tokens: int | None = None, typed: bool = False) -> TokenBatch:
    made = TokenBatch.from_rows(IDS, prompt_tokens)
    types = torch.arange(len(made.ids)) % 2 if typed else None
    return TokenBatch(made.ids, made.offsets, made.longest, made.prompt_tokens, types)


BATCHES: dict[str, Callable[[], TokenBatch]] = {
    "ids": batch,
    "prompts": lambda: batch(prompt_tokens=2),
    "pairs": lambda: batch(typed=True),
    "all": lambda: batch(prompt_tokens=1, typed=True),
    "one token": lambda: TokenBatch.from_rows([[3]]),
    "no tokens": lambda: TokenBatch.from_rows([[]]),
    "no rows": lambda: TokenBatch.from_rows([]),
}
COMPUTED = ("offsets_int32", "position_of_token")


@pytest.mark.parametrize("name", BATCHES)
@pytest.mark.parametrize("device", ["cuda:0", "cuda:1", "xpu:1", "mps"])
def test_a_batch_arrives_as_it_was(name: str, device: str) -> None:
    given = BATCHES[name]()
    with simulated(kind=torch.device(device).type):
        moved = given.to(device)
        for field in fields(given):
            expected, value = getattr(given, field.name), getattr(moved, field.name)
            if not isinstance(expected, Tensor):
                assert value == expected
                continue
            assert value.device == torch.device(device if ":" in device else f"{device}:0")
            assert value.dtype == expected.dtype
            assert torch.equal(value.cpu(), expected)
        for computed in COMPUTED:
            value = getattr(moved, computed)
            assert value.is_contiguous()
            assert torch.equal(value.cpu(), getattr(given, computed))
        assert (moved.groups, moved.text_size) == (given.groups, given.text_size)


@pytest.mark.parametrize("name", ["ids", "all"])
def test_a_batch_is_one_copy_from_one_piece_of_pinned_memory(name: str) -> None:
    """Nothing waits, and no kernel computes what the host knows."""
    with simulated() as gpu:
        gpu.forget()
        moved = BATCHES[name]().to("cuda:1")
        counts = gpu.counts()
        assert counts["copies to the device"] == counts["pinned allocations"] == 1
        assert "synchronizations" not in counts
        gpu.forget()
        values = [getattr(moved, computed) for computed in COMPUTED]
        assert gpu.count("kernels") == 0
        assert all(value.data_ptr() % 16 == 0 for value in [*values, moved.ids, moved.offsets])
        embedded = moved.embeddings(torch.zeros(len(moved.ids), 3, device="cuda:1"))
        assert embedded.position_of_token is moved.position_of_token


def test_positions_are_computed_on_the_cpu_only_if_asked_for() -> None:
    moved = batch().to("cpu")
    assert not set(COMPUTED) & vars(moved).keys()
    assert moved.position_of_token.tolist() == [0, 1, 2, 3, 0, 1, 0, 1, 2, 0]
    assert moved.offsets_int32.tolist() == [0, 4, 6, 9, 9, 10]


class Reader(nn.Module):
    """Gives each text the sum of its tokens."""

    max_seq_length = None
    special_tokens = (1, 1)

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1), requires_grad=False)

    def tokenize(self, texts: list[str]) -> list[list[int]]:
        return [[1, *text.encode(), 2] for text in texts]

    def forward(self, given: TokenBatch) -> Tensor:
        sums = torch.zeros(given.rows, device=given.ids.device).index_add(0, given.row_of_token, given.ids.float())
        return sums[:, None] * self.weight


@pytest.mark.parametrize("batch_tokens", [30, 1000, None])
def test_one_copy_for_each_batch_of_encode(batch_tokens: int | None) -> None:
    texts = [f"text {'x' * (number % 7)} {number}" for number in range(300)]
    seen: list[Any] = []
    expected = SentenceEncoder(Reader(), device="cpu").encode(texts)
    with simulated() as gpu:
        model = SentenceEncoder(Reader(), device="cuda:1")
        model[0].register_forward_hook(lambda module, arguments, output: seen.append(output))
        gpu.forget()
        vectors = model.encode(texts, batch_tokens=batch_tokens)
        counts = gpu.counts()
    assert counts["copies to the device"] == len(seen)
    assert counts["pinned allocations"] == len(seen) + counts["copies to the host"]
    assert counts["copies to the host"] < max(2, len(seen))
    np.testing.assert_array_equal(vectors, expected)
