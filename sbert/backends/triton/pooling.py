"""Means of rows by one kernel instead of eight."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from sbert.backends.triton import launches, refusal, remedy
from sbert.backends.varlen_training import are_means, two_rows
from sbert.batch import Ragged
from sbert.functional import is_traced
from sbert.storage.files import is_failure, one_line

# Why the kernel cannot be used, by dtype and device; it is tried at its first use.
_failures: dict[tuple[torch.dtype, torch.device], str | None] = {}


def means(rows: Ragged) -> Tensor | None:
    """Mean of the values of each row, in float32, zeros for an empty one; None if the kernel cannot be used.

    Shape:
        Values: (tokens, dim). Output: (rows, dim).
    """
    values = rows.values
    if not values.is_cuda:
        return None
    trained = torch.is_grad_enabled() and values.requires_grad
    if trained or is_traced() or not values.is_contiguous():
        return None
    if values.dim() != 2 or refusal(values.device, values.dtype) is not None:
        return None
    kind = values.dtype, values.device
    if kind not in _failures:
        if torch.cuda.is_current_stream_capturing():  # The trial waits for its result.
            return None
        _failures[kind] = _failure(*kind)
    return launches.mean_rows(rows) if _failures[kind] is None else None


def _failure(dtype: torch.dtype, device: torch.device) -> str | None:
    """Why the kernel does not compute the means of two rows; None if it does."""
    try:
        batch, value = two_rows(dtype, device, 1, 8)
        found = launches.mean_rows(Ragged(value[:, 0].contiguous(), batch.offsets, batch.longest))
        if are_means(found.repeat_interleave(torch.tensor([2, 1], device=device), dim=0)):
            return None
        reason = "gives other vectors"
    except Exception as error:
        if not is_failure(error):
            raise
        reason = f"fails ({one_line(error)})"
    warnings.warn(f"mean pooling runs slower than it could: its kernel {reason}; {remedy(reason)}", stacklevel=2)
    return reason
