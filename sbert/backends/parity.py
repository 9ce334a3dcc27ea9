"""Whether two ways to run a transformer give the same vectors: tried out once, on three short rows."""

from __future__ import annotations

import copy
from collections import OrderedDict
from typing import Any

import torch
from torch import Tensor

from sbert.backends import huggingface
from sbert.backends.hooks import ALL
from sbert.backends.packed import Probe
from sbert.batch import TokenBatch

# The largest difference of a row's vectors, relative to their norm. Devices other than CPUs may be told to multiply
# float32 in TF32.
_HALF, _TF32 = 0.1, 1e-2
_CPU = {torch.float32: 1e-4, torch.float64: 1e-8}


def tolerance(dtype: torch.dtype, device: torch.device) -> float:
    """The largest gap by which two ways to compute in a dtype may differ on a device."""
    exact = _CPU.get(dtype, _HALF)
    return exact if device.type == "cpu" else max(exact, _TF32)


def probe(network: Any, device: torch.device) -> Probe:
    """Rows of different lengths, most of whose tokens stand behind others that they must not attend to."""
    longest, vocab = min(40, huggingface.position_limit(network) or 40), huggingface.vocab_size(network) or 100
    return probe_of((max(1, longest // 4), 1, longest), vocab, device)


def probe_of(lengths: tuple[int, ...], vocab: int, device: torch.device) -> Probe:
    """Rows of these lengths."""
    rows = TokenBatch.from_rows([[(7 * i + 3) % vocab for i in range(length)] for length in lengths]).to(device)
    return Probe(rows.ids, rows.offsets)


def gap(found: Tensor, expected: Tensor, batch: TokenBatch) -> float:
    """The largest difference of a row's vectors from the expected ones, relative to their norm.

    Shape:
        found, expected: (tokens, dim).
    """
    lengths = [length for rows, length in batch.groups for _ in range(rows)]
    rows = zip(torch.split(found.double(), lengths), torch.split(expected.double(), lengths), strict=True)
    return float(torch.stack([(a - b).norm() / b.norm().clamp(min=1e-12) for a, b in rows]).max())


def twin(module: Any, made: dict[Any, Any] | None = None) -> Any:
    """The module in eval mode and without hooks, on the same weights; the module itself stays as it is."""
    made = {} if made is None else made
    if module not in made:
        copied = made[module] = copy.copy(module)
        state = vars(copied)
        state.update({name: OrderedDict() for name in ALL}, training=False, _buffers=dict(module._buffers))
        parts = module._modules.items()
        state["_modules"] = {name: None if part is None else twin(part, made) for name, part in parts}
    return made[module]
