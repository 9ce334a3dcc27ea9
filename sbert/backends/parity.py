"""Whether a transformer gives without padding what it gives with it: tried out once, before the first batch."""

from __future__ import annotations

import copy
import warnings
from collections import OrderedDict
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from sbert.backends import cpu_training as trained
from sbert.backends import packed
from sbert.backends.hooks import ALL
from sbert.batch import TokenBatch
from sbert.storage.files import is_failure, one_line
from sbert.storage.processes import Lock

if TYPE_CHECKING:
    from sbert.backends.architectures import Backbone
    from sbert.modules.transformer import Transformer

# By how much the vectors of a row may differ, as a part of their size: in half precision, and in full on a CPU;
# GPUs may be told to multiply float32 in TF32.
_HALF, _FULL, _TF32 = 0.1, {torch.float32: 1e-4, torch.float64: 1e-8}, 1e-2

_lock = Lock()
# For each Hugging Face model, by kind of device and dtype: why it has to pad, if it has to.
_found: WeakKeyDictionary[nn.Module, dict[tuple[str, torch.dtype], str | None]] = WeakKeyDictionary()
# For each Hugging Face model: whether its forward for training gives the same.
_trained: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()


def difference(module: Transformer, device: torch.device) -> str | None:
    """Why a transformer has to pad although its attention is ours: its forward fails or gives other vectors.

    Three short rows run both ways, the first time that this is asked. Modes, hooks, gradients and random numbers
    stay as they are, whatever other threads do with the model.
    """
    key = device.type, module.auto_model.dtype
    known = _found.get(module.auto_model)
    if known is not None and key in known:
        return known[key]
    with _lock:
        known = _found.setdefault(module.auto_model, {})
        if key not in known:
            known[key] = _compare(module, device)
    return known[key]


def _compare(module: Transformer, device: torch.device) -> str | None:
    name = type(module.auto_model).__name__
    batch = _probe(module).to(device)
    try:
        twin = _twin(module, {})
        with torch.no_grad(), torch.autocast(device.type, enabled=False):
            expected = twin.padded_forward(batch)
            found = packed.hidden_states(twin.auto_model, batch, twin._options)
        local = _local(module.auto_model.config)
    except Exception as error:
        if not is_failure(error):
            raise
        return f"{name} fails without padding ({one_line(error)})"
    if local and not any(batch.windows):
        return f"{name} does not tell its attention how far to look"
    apart = _apart(found, expected, batch)
    full = _FULL.get(expected.dtype, _HALF)
    tolerance = full if device.type == "cpu" else max(full, _TF32)
    if apart <= tolerance or not expected.isfinite().all():  # Of vectors that are not finite nothing is to be learnt.
        return None
    reason = f"without padding its vectors differ by {apart:.1e} of their size"
    warnings.warn(f"{name} runs slower than it could: {reason}; please report it", stacklevel=2)
    return reason


def same_when_trained(module: Transformer, backbone: Backbone) -> bool:
    """Whether the forward for training gives the vectors of the Hugging Face module, as it does if nobody changed that.

    The first time that this is asked, three short rows run both ways.
    """
    with _lock:
        if module.auto_model not in _trained:
            twin, batch = _twin(module, {}), _probe(module)
            own = trained.trainable(twin.auto_model)
            with torch.no_grad(), torch.autocast("cpu", enabled=False):
                expected = packed.hidden_states(twin.auto_model, batch, twin._options)
                found = trained.hidden_states(own or backbone, batch, expected.dtype)
            apart = _apart(found, expected, batch)
            _trained[module.auto_model] = apart <= _FULL.get(expected.dtype, _HALF)
            if apart > _FULL.get(expected.dtype, _HALF):
                name = type(module.auto_model).__name__
                warnings.warn(
                    f"{name} is trained slower than it could be: the vectors that its layers give differ by {apart:.1e}"
                    " of their size; please report it",
                    stacklevel=2,
                )
    return _trained[module.auto_model]


def _probe(module: Transformer) -> packed.Probe:
    """Rows of different lengths, most of whose tokens stand behind others that they must not see."""
    longest, vocab = min(40, module.max_seq_length or 40), module.vocab_size or 100
    lengths = (max(1, longest // 4), 1, longest)
    rows = TokenBatch.from_rows([[(7 * i + 3) % vocab for i in range(length)] for length in lengths])
    return packed.Probe(rows.ids, rows.offsets)


def _twin(module: Any, made: dict[nn.Module, Any]) -> Any:
    """The module in eval mode and without hooks, on the same weights."""
    if module not in made:
        twin = made[module] = copy.copy(module)
        state = vars(twin)
        state.update({name: OrderedDict() for name in ALL}, training=False, _buffers=dict(module._buffers))
        parts = module._modules.items()
        state["_modules"] = {name: None if part is None else _twin(part, made) for name, part in parts}
    return made[module]


def _local(config: Any) -> bool:
    """Whether a configuration promises layers that look no further than a window, which a short probe cannot show."""
    layers = getattr(config, "layer_types", None)
    return "sliding_attention" in layers if layers else bool(getattr(config, "sliding_window", None))


def _apart(found: Tensor, expected: Tensor, batch: packed.Probe) -> float:
    """How far the vectors of the worst row are from others, as a part of their size."""
    lengths = [length for rows, length in batch.groups for _ in range(rows)]
    rows = zip(torch.split(found.double(), lengths), torch.split(expected.double(), lengths), strict=True)
    return float(torch.stack([(a - b).norm() / b.norm().clamp(min=1e-12) for a, b in rows]).max())
