"""The contract of a backend: a way to run a transformer."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from sbert.batch import TokenBatch

# Options of ``torch.compile``; None to run without it.
Compiling = dict[str, Any] | None


class Backend(Protocol):
    """A way to run a transformer, made for one network.

    ``how`` says it in words, as in "without padding its vectors differ".
    """

    name: ClassVar[str]
    how: ClassVar[str]

    def __init__(self, network: Any) -> None: ...

    @staticmethod
    def supports(network: Any, device: torch.device, dtype: torch.dtype) -> str | None:
        """None, or the reason in words why it cannot run a network, as far as that can be seen without trying."""
        ...

    def forward(self, batch: TokenBatch) -> Tensor:
        """Vectors of all tokens from the last layer. Shape: (tokens, dim)."""
        ...
