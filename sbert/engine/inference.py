"""Which forward runs a module for inference, and why."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn

from sbert.batch import TokenBatch, TokenEmbeddings
from sbert.engine.fused import FusedEncoder
from sbert.engine.linear import packing
from sbert.engine.mode import walk
from sbert.modules.backbone import describe
from sbert.modules.transformer import Transformer

# By how much the token embeddings of two forwards may differ, as a part of their size.
_TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-4, torch.bfloat16: 0.1, torch.float16: 0.1}

_lock = threading.Lock()


@dataclass(frozen=True)
class Chosen:
    """How a transformer runs.

    Args:
        fused: Its faster forward, or None where its own is used.
        why: In words.
    """

    fused: FusedEncoder | None
    why: str


@dataclass(frozen=True)
class _Made:
    chosen: Chosen
    state: object
    samples: list[np.ndarray]
    sampled: bytes
    dtype: torch.dtype


_made: WeakKeyDictionary[Transformer, _Made] = WeakKeyDictionary()


def forwards(modules: Iterable[nn.Module], dtype: torch.dtype) -> list[Callable[[Any], Any]]:
    """What to call for each module, one behind the other, so that transformers compute in ``dtype``."""
    return [_forward(module, dtype) if isinstance(module, Transformer) else module for module in modules]


def _forward(module: Transformer, dtype: torch.dtype) -> Callable[[TokenBatch], TokenEmbeddings]:
    weights = module.auto_model.dtype
    fused = choose(module, dtype).fused

    def run(batch: TokenBatch) -> TokenEmbeddings:
        if fused is not None and len(batch.ids):
            return batch.embeddings(fused(batch).to(weights))
        with torch.autocast(batch.ids.device.type, dtype) if dtype != weights else nullcontext():
            tokens: TokenEmbeddings = module(batch)
        return batch.embeddings(tokens.values.to(weights))

    return run


def choose(module: Transformer, dtype: torch.dtype) -> Chosen:
    """The forward for a transformer, made at its first use and again after its weights changed.

    It has to be called without gradient and in eval mode, as it compares the two forwards.
    """
    state = _state(module.auto_model)
    made = _made.get(module)
    if made is not None and made.dtype == dtype and made.state == state and made.sampled == _sampled(made.samples):
        return made.chosen
    with _lock:
        chosen = _choose(module, dtype) if state is not None else Chosen(None, "hooks are to see its modules run")
        samples = _samples(module.auto_model)
        _made[module] = _Made(chosen, state, samples, _sampled(samples), dtype)
    return chosen


def _choose(module: Transformer, dtype: torch.dtype) -> Chosen:
    if type(module).forward is not Transformer.forward:
        return Chosen(None, f"{type(module).__name__} has a forward of its own")
    backbone = describe(module.auto_model)
    if isinstance(backbone, str):
        return Chosen(None, backbone)
    device = backbone.words.weight.device
    packed, how = packing(dtype, torch.get_num_threads()) if device.type == "cpu" else (False, "F.linear")
    fused = FusedEncoder(backbone, dtype, packed)
    difference = _difference(module, fused, device)
    if difference is None:
        return Chosen(None, "its vectors are not finite")
    if difference > _TOLERANCE[dtype]:
        why = f"the fused forward differs by {difference:.1e} of the vectors' size"
        name = type(module.auto_model).__name__
        warnings.warn(f"{name} runs by its plain, slower forward: {why}; please report this model", stacklevel=2)
        return Chosen(None, why)
    return Chosen(fused, f"fused forward, {how}")


def _difference(module: Transformer, fused: FusedEncoder, device: torch.device) -> float | None:
    """How far two forwards are apart on three rows, as a part of the vectors' size; None if these are no numbers."""
    longest = min(40, module.max_seq_length or 40)
    vocab = fused.backbone.words.num_embeddings
    rows = [[(7 * i + 3) % vocab for i in range(length)] for length in (longest, max(1, longest // 4), 1)]
    batch = TokenBatch.from_rows(rows).to(device)
    plain = module(batch).values.float()
    if not plain.isfinite().all():
        return None
    return float((fused(batch).float() - plain).norm() / plain.norm().clamp(min=1e-12))


def _state(model: nn.Module) -> object:
    """What changes when somebody assigns or steps weights or replaces modules; None where hooks watch the modules."""
    state: list[object] = []
    for module in walk(model):
        if module._forward_hooks or module._forward_pre_hooks:
            return None
        for parameter in module._parameters.values():
            if parameter is not None:
                state += (parameter.data_ptr(), -1 if parameter.is_inference() else parameter._version)
    return state


def _samples(model: nn.Module) -> list[np.ndarray]:
    """Views of a few numbers of each weight on a CPU: changes through ``.data`` leave no other trace."""
    samples = []
    for parameter in model.parameters():
        if parameter.device.type == "cpu" and parameter.numel():
            flat = parameter.detach().flatten()
            few: Tensor = flat[:: max(1, len(flat) // 4)]
            samples.append((few.view(torch.int16) if few.element_size() == 2 else few).numpy())
    return samples


def _sampled(samples: list[np.ndarray]) -> bytes:
    return b"".join(sample.tobytes() for sample in samples)
