"""What the tests of backends share."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from torch import Tensor
from torch.nn.attention import varlen

from sbert.backends import attention


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Callable[..., Tensor]], list[int]]]:
    """Makes the CPU have the kernel, under the signature of some version of torch; a list of its calls."""

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
