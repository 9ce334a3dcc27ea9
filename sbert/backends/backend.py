"""The contract of a backend, and the settings of one call of ``encode``."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn

from sbert.batch import TokenBatch
from sbert.inputs.arguments import check_choice
from sbert.inputs.devices import explain_device_error
from sbert.storage.processes import in_child

AnyOutput = TypeVar("AnyOutput")
RunBatch = Callable[[TokenBatch], Tensor]
# Options of ``torch.compile``; None to run without it.
Compiling = dict[str, Any] | None
BACKENDS = ("auto", "plain")
# What every warning about a backend ends with.
PLAIN_REMEDY = "please report it; SBERT_BACKEND=plain runs the Hugging Face module alone"


def choose_backend(name: str) -> str:
    """``"auto"`` or ``"plain"``: that of the environment variable ``SBERT_BACKEND`` where the caller leaves it open.

    Raises:
        ValueError: If the caller or the variable asks for something else.

    Example:
        >>> from sbert.backends import choose_backend
        >>> choose_backend("plain")
        'plain'
    """
    if name not in ("torch", BACKENDS[1]):  # sentence-transformers calls its default "torch".
        check_choice("backend", name, BACKENDS)
    variable = os.environ.get("SBERT_BACKEND", BACKENDS[0])
    check_choice("SBERT_BACKEND", variable, BACKENDS)
    return name if name == BACKENDS[1] else variable


class Backend:
    """A way to run a transformer, made for one network.

    ``how`` says it in words, as in "without padding its vectors differ".
    """

    name: ClassVar[str]
    how: ClassVar[str]

    def __init__(self, network: Any) -> None:
        self._network = network

    @staticmethod
    def supports(network: Any, device: torch.device, dtype: torch.dtype) -> str | None:
        """None, or the reason in words why it cannot run a network, as far as that can be seen without trying."""
        return None

    def forward(self, batch: TokenBatch) -> Tensor:
        """Vectors of all tokens from the last layer. Shape: (tokens, dim)."""
        raise NotImplementedError


@dataclass(frozen=True)
class CallSettings:
    """How transformers run in one call of ``encode``.

    Args:
        dtype: Of the arithmetic; vectors have the dtype of the weights.
        compiling: Options of ``torch.compile``, if that is wanted.
        copies: Whether copies of the weights may be made and kept for the next call.

    Example:
        >>> import torch
        >>> from sbert.backends import CallSettings
        >>> CallSettings(torch.bfloat16)
        CallSettings(dtype=torch.bfloat16, compiling=None, copies=True)
    """

    dtype: torch.dtype
    compiling: Compiling = None
    copies: bool = True


@dataclass(eq=False)
class InferenceCall:
    """One call of ``encode``, in which weights do not change: what was chosen for its first batch serves all of them.

    Args:
        settings: How transformers run.
        forwards: What was chosen for each of them.
        parts: The modules below the encoder, with snapshots that are current.
    """

    settings: CallSettings
    forwards: dict[nn.Module, RunBatch] = field(default_factory=dict)
    parts: dict[nn.Module, Any] = field(default_factory=dict)

    def run(self, modules: Callable[[TokenBatch], AnyOutput], batch: TokenBatch) -> AnyOutput:
        """``modules(batch)``, in which transformers run for inference and with these settings."""
        token = inference_call.set(self)
        running.add(self)
        try:
            return modules(batch)
        except torch.AcceleratorError as error:
            explain_device_error(error)
            raise
        finally:
            inference_call.reset(token)
            running.discard(self)


inference_call: ContextVar[InferenceCall | None] = ContextVar("sbert_inference_call", default=None)
# Those of all threads of this process.
running: set[InferenceCall] = set()
in_child(running.clear)
