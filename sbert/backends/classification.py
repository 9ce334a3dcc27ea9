"""Models for sequence classification: their head over the backbone, which runs by the fastest backend."""

from __future__ import annotations

import copy
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from sbert.backends.hooks import watched
from sbert.backends.inference import forward
from sbert.backends.padded import Padded
from sbert.backends.parity import probe, tolerance, twin
from sbert.batch import TokenBatch
from sbert.storage.files import is_failure

# For each model: whether its head gives the same scores if it is shown the first token of each row alone.
_reads_first: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()


def scores(model: Any, batch: TokenBatch) -> Tensor:
    """The scores of a model for sequence classification, whose backbone runs by the backend that is the fastest here.

    Args:
        model: A Hugging Face model with a head; of one that reads more than the first token, the module itself runs.
        batch: At least one row.

    Shape:
        Output: (rows, classes).
    """
    all_have_tokens = sum(rows for rows, _ in batch.groups) == batch.rows  # Known on the host, without a wait.
    if not all_have_tokens or watched(model, own=True) or not _reads_first_tokens(model):
        return Padded(model).scores(batch)
    return _of_first(model, forward(model.base_model, batch)[batch.offsets[:-1]])


def _reads_first_tokens(model: Any) -> bool:
    if model not in _reads_first:
        copied, batch = twin(model), probe(model.base_model, model.device)
        try:
            with torch.no_grad(), torch.autocast(batch.ids.device.type, enabled=False):
                expected = Padded(copied).scores(batch)
                found = _of_first(copied, Padded(copied.base_model).forward(batch)[batch.offsets[:-1]])
                difference = (found - expected).norm() / expected.norm().clamp(min=1e-12)
        except Exception as error:
            if not is_failure(error):
                raise
            _reads_first[model] = False
        else:
            _reads_first[model] = bool(difference <= tolerance(expected.dtype, model.device))
    return _reads_first[model]


class _Given(nn.Module):
    """In the place of a backbone: the output that it has given."""

    def __init__(self, output: Any) -> None:
        super().__init__()
        self._output = output

    def forward(self, *_: Any, **__: Any) -> Any:
        return self._output


def _of_first(model: Any, first: Tensor) -> Tensor:
    """The scores by the vectors of the first tokens. Shape: (rows, dim) to (rows, classes)."""
    # Already imported by the model.
    from transformers.modeling_outputs import BaseModelOutputWithPooling

    states, pooler = first[:, None], getattr(model.base_model, "pooler", None)
    pooled = None if pooler is None else pooler(states)
    output = BaseModelOutputWithPooling(last_hidden_state=states, pooler_output=pooled)
    head = copy.copy(model)  # The same modules, except the backbone.
    vars(head)["_modules"] = {**model._modules, model.base_model_prefix: _Given(output)}
    logits: Tensor = head(input_ids=torch.zeros(len(first), 1, dtype=torch.int64, device=first.device)).logits
    return logits
