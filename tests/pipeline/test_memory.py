"""Memory that is refused at any place: the vectors are the same, or an error names the rows; nothing stays broken."""

from __future__ import annotations

import random
import re
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from sbert import Normalize, Pooling, SentenceEncoder, Transformer
from sbert.backends import network
from sbert.batch import TokenBatch
from sbert.pipeline.compute import encode_windows
from sbert.pipeline.progress import InvalidTextError, Report
from sbert.pipeline.run import Encoding, MemoryLimit, run_batches, run_here
from tests import small
from tests.simulated_cuda.simulator import simulated

TEXTS = [" ".join(small.CORPUS[row % 4].split()[: 1 + row % 9]) + f" {row}" for row in range(40)]
MESSAGES = ("DefaultCPUAllocator: not enough memory", "DefaultCPUAllocator: can't allocate memory", "out of memory")
NAMED = re.compile(r"sentences\[\d+(:\d+)?\]")


class Refusing(TorchDispatchMode):
    """Refuses memory to the operation of a number; counts the operations."""

    def __init__(self, failing: int = -1, error: type[BaseException] = RuntimeError, message: str = "") -> None:
        super().__init__()
        self.count, self.failing, self.error, self.message = 0, failing, error, message

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += function is not torch.ops.aten.detach.default  # A view, which needs no memory.
        if self.count == self.failing:
            raise self.error(self.message)
        return function(*args, **(kwargs or {}))


def encoder(folder: Path, device: str = "cpu") -> SentenceEncoder:
    return SentenceEncoder(Transformer(folder), Pooling("mean"), Normalize(), device=device, dtype="float32")


def check_refused(
    model: SentenceEncoder, expected: np.ndarray, refusing: Callable[[], AbstractContextManager[Any]], **options: Any
) -> bool:
    """Whether there were vectors; if not, the error names rows. The next call is right, and modes are as before."""
    model._memory_limits.clear()
    modes = [module.training for module in model.modules()]
    try:
        with refusing():
            vectors = model.encode(TEXTS[: len(expected)], batch_tokens=60, **options)
    except torch.OutOfMemoryError as error:
        assert NAMED.search(str(error)), error
        vectors = None
    else:
        np.testing.assert_allclose(vectors, expected, atol=1e-6)
    assert [module.training for module in model.modules()] == modes
    np.testing.assert_allclose(model.encode(TEXTS[: len(expected)], batch_tokens=60), expected, atol=1e-6)
    return vectors is not None


@pytest.mark.slow  # An error at each of 50 places: some leave a state behind that others do not.
def test_random_places(folder: Path) -> None:
    model = encoder(folder)
    model[0].train()  # Materializes the module; its mode has to be restored.
    expected = model.encode(TEXTS[:15])
    network._states.clear()
    with Refusing() as counting:
        model.encode(TEXTS[:15], batch_tokens=60)
    generator, survived = random.Random(0), 0
    for place in range(50):
        if place % 2:
            network._states.clear()  # So that copies of the weights are made.
        error = generator.choice([torch.OutOfMemoryError, RuntimeError, MemoryError])
        failing, message = generator.randint(1, counting.count), generator.choice(MESSAGES)
        refusing = partial(Refusing, failing, error, message)
        survived += check_refused(model, expected, refusing)
    assert survived > 40, survived


@pytest.mark.slow  # The same where memory is that of a simulated GPU.
@pytest.mark.simulated_cuda
def test_random_places_on_a_gpu(folder: Path) -> None:
    with simulated() as gpu:
        expected = encoder(folder).encode(TEXTS[:9])
        model = encoder(folder, "cuda")
        model.encode(TEXTS[:9], batch_tokens=60)
        generator, survived = random.Random(1), 0

        @contextmanager
        def refusing() -> Iterator[None]:
            gpu.memory(failing=generator.randint(1, 100))
            try:
                yield
            finally:
                gpu.memory()

        for place in range(50):
            if place % 10 == 0:
                network._states.clear()
            survived += check_refused(model, expected, refusing)
        assert survived > 35, survived


class Narrow(nn.Module):
    """Has memory for a number of rows, and records what it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.rows, self.seen = 10**6, []

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        self.seen.append(len(vectors))
        if len(vectors) > self.rows:
            raise torch.OutOfMemoryError("full")
        return vectors


@pytest.fixture
def narrow(folder: Path) -> SentenceEncoder:
    return SentenceEncoder(Transformer(folder), Pooling("mean"), Narrow(), device="cpu", dtype="float32")


def test_what_does_not_fit_is_remembered(narrow: SentenceEncoder) -> None:
    texts = [f"{row % 10} {row // 10}" for row in range(90)]  # Of four tokens.
    expected, memory = narrow.encode(texts), narrow[2]
    memory.rows, memory.seen = 10, []
    np.testing.assert_allclose(narrow.encode(texts, batch_size=32), expected, atol=1e-6)
    refused = [rows for rows in memory.seen if rows > 10]
    assert refused == [32, 16], "one batch is halved, and no later one is tried at its size"
    memory.seen = []
    np.testing.assert_allclose(narrow.encode(texts, batch_size=32), expected, atol=1e-6)
    assert max(memory.seen) <= 10, "the next call knows"
    memory.rows = 10**6
    for _ in range(40):
        narrow.encode(texts, batch_size=32)
    assert memory.seen[-3:] == [32, 32, 26], "memory that is free again is used again"


def test_a_size_that_did_not_fit_is_seldom_tried_again() -> None:
    limit, tried = MemoryLimit(), []
    for batch in range(2000):
        if limit.tokens >= 64:  # What never fits.
            tried.append(batch)
            limit.lower(64)
        else:
            limit.confirm(32)
    assert 2 <= len(tried) < 40


def test_one_text_too_large_is_named(narrow: SentenceEncoder) -> None:
    narrow[2].rows = 0
    for texts, name in (
        (["red", "red", "one two three"], r"sentences\[2\], 5 tokens"),
        (["red"], r"sentences\[0\]"),
        ("red", r"sentences\[0\], 3 tokens"),
    ):
        with pytest.raises(torch.OutOfMemoryError, match=name + ".*even alone; split it, set a lower max_seq_length"):
            narrow.encode(texts)
    narrow[2].rows = 10**6
    assert narrow.encode("red").shape == (16,)


def test_nothing_of_a_batch_that_failed_is_kept(narrow: SentenceEncoder) -> None:
    """Not the traceback with its frames, which hold the batch."""
    batches: list[weakref.ref[TokenBatch]] = []
    alive: list[int] = []

    def watched(batch: TokenBatch) -> torch.Tensor:
        alive.append(sum(reference() is not None for reference in batches))
        batches.append(weakref.ref(batch))
        if batch.rows > 1:
            raise torch.OutOfMemoryError("full")
        return torch.zeros(batch.rows, 2)

    tokens = narrow.tokens(TEXTS[:8])
    rows = list(run_batches(Encoding(narrow), watched, tokens, [np.arange(8)], np.arange(8)))
    assert len(rows) == 8
    assert max(alive) == 0


def test_a_row_that_is_not_finite_is_that_of_the_whole_input(folder: Path) -> None:
    model = encoder(folder)
    with torch.no_grad():
        model[0].network.get_input_embeddings().weight[model.tokenizer.convert_tokens_to_ids("fox")] = torch.nan
    windows = TEXTS[4:5] * 3, ["one", "one", "fox"]
    with pytest.raises(ValueError, match=r"the vector of sentences\[5\] is not finite") as error:
        list(encode_windows(Encoding(model), windows, Report(Encoding(model)), run_here, ahead=0))
    assert isinstance(error.value, InvalidTextError)
    assert error.value.args[1] == 5
