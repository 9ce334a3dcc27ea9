"""Models for sequence classification: their head over the backbone, which runs by the fastest backend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from sbert.backends.architectures import classification_head
from sbert.backends.hooks import watched
from sbert.backends.inference import forward
from sbert.backends.padded import Padded
from sbert.backends.parity import probe, tolerance, twin
from sbert.batch import TokenBatch

# For each model: whether its head, run alone, gives the same scores.
_heads: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()


def scores(model: Any, batch: TokenBatch) -> Tensor:
    """The scores of a model for sequence classification, whose backbone runs by the backend that is the fastest here.

    Args:
        model: A Hugging Face model with a head; of one that reads more than the first token, the module itself runs.
        batch: At least one row.

    Shape:
        Output: (rows, classes).
    """
    all_have_tokens = sum(rows for rows, _ in batch.groups) == batch.rows  # Known on the host, without a wait.
    head = _head(model) if all_have_tokens and not watched(model, own=True) else None
    if head is None:
        return Padded(model).scores(batch)
    first = forward(model.base_model, batch)[batch.offsets[:-1]]  # (rows, dim)
    return head(model, first[:, None])


def _head(model: Any) -> Callable[[Any, Tensor], Tensor] | None:
    """The head that reads first tokens, once it is known to give the scores of the module."""
    head = classification_head(model)
    if head is not None and model not in _heads:
        copied, batch = twin(model), probe(model.base_model, model.device)
        with torch.no_grad(), torch.autocast(batch.ids.device.type, enabled=False):
            expected = Padded(copied).scores(batch)
            first = Padded(copied.base_model).forward(batch)[batch.offsets[:-1]]
            difference = (head(copied, first[:, None]) - expected).norm() / expected.norm().clamp(min=1e-12)
        _heads[model] = bool(difference <= tolerance(expected.dtype, model.device))
    return head if head is not None and _heads[model] else None
