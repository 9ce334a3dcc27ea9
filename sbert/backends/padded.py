"""The contract of a backend, and the reference for all: any transformer on padded batches."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn

from sbert.backends.network import position_limit
from sbert.batch import TokenBatch
from sbert.inputs.arguments import check_choice

Output = TypeVar("Output")
Forward = Callable[[TokenBatch], Tensor]
# Options of ``torch.compile``; None to run without it.
Compiling = dict[str, Any] | None
BACKENDS = ("auto", "plain")
# What every warning about a backend ends with.
REMEDY = "please report it; SBERT_BACKEND=plain runs the Hugging Face module alone"


def choose_backend(name: str) -> str:
    """``"auto"`` or ``"plain"``: that of the environment variable ``SBERT_BACKEND`` where the caller leaves it open.

    Raises:
        ValueError: If the caller or the variable asks for something else.

    Example:
        >>> choose_backend("plain")
        'plain'
    """
    if name in ("onnx", "openvino"):
        raise ValueError(f"backend={name!r} is not here; 'sbert export' writes models for other runtimes")
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


class Padded(Backend):
    """The module itself, on rows padded to the longest of them.

    Args:
        network: A Hugging Face model, with or without a head, or a minimal BERT.
    """

    name: ClassVar[str] = "padded"
    how: ClassVar[str] = "with padding"

    def forward(self, batch: TokenBatch) -> Tensor:
        """Vectors of all tokens from the last layer. Shape: (tokens, dim)."""
        hidden: Tensor = self._network(**self._arguments(batch)).last_hidden_state  # (rows, longest, dim)
        return hidden[: batch.rows, : batch.longest].flatten(0, 1)[batch.slot_of_token]

    def scores(self, batch: TokenBatch) -> Tensor:
        """Scores of a model for sequence classification. Shape: (rows, classes)."""
        logits: Tensor = self._network(**self._arguments(batch)).logits
        return logits[: batch.rows]

    def _arguments(self, batch: TokenBatch) -> dict[str, Any]:
        """Arguments of the network."""
        network = self._network
        padding, vocab = getattr(network.config, "pad_token_id", None) or 0, vocab_size(network)
        padding = padding if vocab is None or padding < vocab else 0  # No token attends to it.
        rows, longest = batch.rows, max(1, batch.longest)  # No model takes rows without tokens.
        if batch.ids.device.type == "mps":
            rows, longest = bucket(rows, longest, position_limit(network))
        ids, mask = batch.padded(fill=padding, rows=rows, longest=longest)
        full = len(batch.ids) == mask.numel()
        mask[:, 0] = True  # Attention over nothing is NaN, which would reach the gradients: so empty rows have padding.
        arguments = {"input_ids": ids, "attention_mask": None if full else mask.long(), **without_cache(network)}
        if batch.types is not None:
            types = replace(batch, values=batch.types, types=None)
            arguments["token_type_ids"] = types.padded(rows=rows, longest=longest)[0]
        return arguments


@dataclass(eq=False)
class Inference:
    """One call of ``encode``, in which weights do not change: what was chosen for its first batch serves all.

    Args:
        dtype: Of the arithmetic; vectors come in the dtype of the weights.
        compiling: Options of ``torch.compile``, if that is wanted.
        copies: Whether copies of the weights may be made and kept for the next call.
        shares_cores: Whether small batches leave cores to other processes, and so have fewer threads than others.
    """

    dtype: torch.dtype
    compiling: Compiling = None
    copies: bool = True
    shares_cores: bool = True
    forwards: dict[nn.Module, Forward] = field(default_factory=dict, init=False)

    def run(self, call: Callable[[TokenBatch], Output], batch: TokenBatch) -> Output:
        """``call(batch)``, in which transformers run for inference."""
        token = inference.set(self)
        try:
            return call(batch)
        finally:
            inference.reset(token)


inference: ContextVar[Inference | None] = ContextVar("sbert_inference", default=None)


def plain(network: Any, batch: TokenBatch) -> Tensor:
    """Vectors of all tokens by the Hugging Face module alone, under autocast if that is the dtype of the call."""
    call = inference.get()
    dtype = network.dtype if call is None else call.dtype
    return in_dtype(dtype, network, Padded(network).forward, batch)


def in_dtype(dtype: torch.dtype, network: Any, forward: Forward, batch: TokenBatch) -> Tensor:
    """``forward(batch)``, under autocast if the dtype of the arithmetic is not that of the weights."""
    weights = network.dtype
    if dtype == weights:
        return forward(batch)
    # torch has one cache of weights that were cast for all threads, whatever streams they compute on.
    with torch.autocast(batch.values.device.type, dtype, cache_enabled=False):
        return forward(batch).to(weights)


def bucket(rows: int, longest: int, limit: int | None) -> tuple[int, int]:
    """Shape of a batch, rounded up for devices that compile for each shape: few shapes, little padding.

    Example:
        >>> bucket(rows=5, longest=33, limit=512)
        (8, 64)
    """
    multiple = -(-longest // 32) * 32
    return 1 << (rows - 1).bit_length(), multiple if limit is None else max(longest, min(multiple, limit))


def vocab_size(network: Any) -> int | None:
    """Number of tokens in the embedding table of a network; None without a table."""
    try:
        table = network.get_input_embeddings()
    except NotImplementedError:
        return None
    return table.num_embeddings if isinstance(table, nn.Embedding) else None


def accepts(network: nn.Module, name: str) -> bool:
    """Whether the forward of a network has an argument of this name."""
    return name in inspect.signature(network.forward).parameters


def without_cache(network: nn.Module) -> dict[str, Any]:
    """Options of a forward that does not return keys and values for a next token."""
    return {"use_cache": False} if accepts(network, "use_cache") else {}
