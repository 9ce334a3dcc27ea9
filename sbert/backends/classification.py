"""Models for sequence classification: their head over the backbone, which runs by the fastest backend."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from sbert.backends.network import has_hooks, state_of
from sbert.backends.padded import Padded
from sbert.backends.parity import copy_without_hooks, probe, tolerance
from sbert.backends.state import ModelState, forward
from sbert.batch import TokenBatch
from sbert.storage.files import is_failure


def scores(model: Any, batch: TokenBatch, plain: bool = False) -> Tensor:
    """The scores of a model for sequence classification, whose backbone runs by the backend that is the fastest here.

    Args:
        model: A Hugging Face model with a head; of one that reads more than the first token, the module itself runs.
        batch: At least one row.
        plain: Whether the module itself runs, with padding.

    Shape:
        Output: (rows, classes).
    """
    all_have_tokens = sum(rows for rows, _ in batch.groups) == batch.rows  # Known on the host, without a wait.
    if plain or not all_have_tokens or has_hooks(model, own=True) or not _reads_first_tokens(model):
        return Padded(model).scores(batch)
    return _of_first(model, forward(model.base_model, batch)[batch.offsets[:-1]])


def _reads_first_tokens(model: Any) -> bool:
    """Whether the head gives the same scores if it is shown the first token of each row alone."""
    known = state_of(model, ModelState)
    if known.reads_first is None:
        copied, batch = copy_without_hooks(model), probe(model.base_model, model.device)
        try:
            with torch.no_grad(), torch.autocast(batch.ids.device.type, enabled=False):
                expected = Padded(copied).scores(batch)
                first = Padded(copied.base_model).forward(batch)[batch.offsets[:-1]]
                error = (_of_first(copied, first) - expected).norm()
            known.reads_first = bool(error <= tolerance(expected.dtype, model.device) * expected.norm())
        except Exception as failure:
            if not is_failure(failure):
                raise
            known.reads_first = False
    return known.reads_first


def _of_first(model: Any, first: Tensor) -> Tensor:
    """The scores by the vectors of the first tokens. Shape: (rows, dim) to (rows, classes)."""
    # Already imported by the model.
    from transformers.modeling_outputs import BaseModelOutputWithPooling

    states, pooler = first[:, None], getattr(model.base_model, "pooler", None)
    pooled = None if pooler is None else pooler(states)
    output = BaseModelOutputWithPooling(last_hidden_state=states, pooler_output=pooled)
    head, given = copy.copy(model), nn.Module()  # The same modules, but in the place of the backbone its output.
    vars(given)["forward"] = lambda *_, **__: output
    vars(head)["_modules"] = {**model._modules, model.base_model_prefix: given}
    logits: Tensor = head(input_ids=torch.zeros(len(first), 1, dtype=torch.int64, device=first.device)).logits
    return logits
