"""The reference for all backends: any transformer, on padded batches."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from sbert.backends.attention import padded_shape
from sbert.backends.backend import Backend, RunBatch
from sbert.backends.network import position_limit, vocab_size, without_cache
from sbert.batch import HIDDEN, TokenBatch


class Padded(Backend):
    """The module itself, on rows padded to the longest of them.

    Args:
        network: A Hugging Face model, with or without a head, or a minimal BERT.
    """

    name: ClassVar[str] = "padded"
    how: ClassVar[str] = "with padding"

    def forward(self, batch: TokenBatch) -> Tensor:
        """Vectors of all tokens from the last layer. Shape: (tokens, dim)."""
        hidden: Tensor = self._network(
            **padded_arguments(self._network, batch)
        ).last_hidden_state  # (rows, longest, dim)
        return hidden[: batch.rows, : batch.longest].flatten(0, 1)[batch.slot_of_token]

    def scores(self, batch: TokenBatch) -> Tensor:
        """Scores of a model for sequence classification. Shape: (rows, classes)."""
        logits: Tensor = self._network(**padded_arguments(self._network, batch)).logits
        return logits[: batch.rows]


def padded_arguments(network: Any, batch: TokenBatch) -> dict[str, Any]:
    """Arguments of a network for a batch with padding."""
    padding, vocab = getattr(network.config, "pad_token_id", None) or 0, vocab_size(network)
    padding = padding if vocab is None or padding < vocab else 0  # No token attends to it.
    rows, longest = batch.rows, max(1, batch.longest)  # No model takes rows without tokens.
    if batch.ids.device.type == "mps":
        rows, most = padded_shape(batch, batch.ids.device)  # MPS compiles for each shape.
        longest = max(longest, min(most, position_limit(network) or most))
    ids, mask = batch.padded(fill=padding, rows=rows, longest=longest)
    full = len(batch.ids) == mask.numel() and batch.marks is None
    if batch.marks is not None:
        marks = replace(batch, values=batch.marks, marks=None)
        mask &= marks.padded(rows=rows, longest=longest)[0] != HIDDEN
    mask[:, 0] = True  # Attention over nothing is NaN, which would reach the gradients: so empty rows have padding.
    arguments = {"input_ids": ids, "attention_mask": None if full else mask.long(), **without_cache(network)}
    if batch.types is not None:
        types = replace(batch, values=batch.types, types=None)
        arguments["token_type_ids"] = types.padded(rows=rows, longest=longest)[0]
    return arguments


def in_dtype(dtype: torch.dtype, network: Any, forward: RunBatch, batch: TokenBatch) -> Tensor:
    """``forward(batch)``, under autocast if the dtype of the arithmetic is not that of the weights."""
    weights = network.dtype
    if dtype == weights:
        return forward(batch)
    # torch has one cache of weights that were cast for all threads, whatever streams they compute on.
    with torch.autocast(batch.values.device.type, dtype, cache_enabled=False):
        return forward(batch).to(weights)
