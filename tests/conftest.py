"""Offline, quiet, and the real model for whoever asks."""

from __future__ import annotations

import os

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "true"
# Small batches take as many threads as cores are free, and the number of threads changes the last digits.
os.environ["OMP_NUM_THREADS"] = "1"
# Processes of the tests do not wait for their threads by spinning.
os.environ["OMP_WAIT_POLICY"] = "PASSIVE"

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tqdm import tqdm

if TYPE_CHECKING:
    from torch import Tensor

# No thread of tqdm, which may hold its lock while a test forks: the child would wait for it forever.
tqdm.monitor_interval = 0


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of evaluation data that SBERT_DATA names; tests that want it are skipped without."""
    folder = os.environ.get("SBERT_DATA")
    if not folder or not (Path(folder) / "stsb").is_dir():
        pytest.skip("SBERT_DATA names no folder of evaluation data")
    return Path(folder)


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Callable[..., Tensor]], list[int]]]:
    """Makes the CPU have the kernel, under the signature of some version of torch; a list of its calls."""
    from torch.nn.attention import varlen

    from sbert.backends import attention

    def put(function: Callable[..., Tensor]) -> list[int]:
        calls: list[int] = []

        def counted(*arguments: Any, **options: Any) -> Tensor:
            calls.append(1)
            return function(*arguments, **options)

        counted.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
        monkeypatch.setattr(varlen, "varlen_attn", counted)
        monkeypatch.setattr(attention, "_capable", lambda device: True)
        monkeypatch.setattr(attention, "_known", [])
        attention.kernel_failures.clear()
        return calls

    yield put
    attention.kernel_failures.clear()
