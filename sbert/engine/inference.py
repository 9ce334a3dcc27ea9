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

from sbert.attention import one_kernel
from sbert.batch import TokenBatch, TokenEmbeddings
from sbert.engine.fused import FusedEncoder
from sbert.engine.graphs import Graphs
from sbert.engine.linear import packing
from sbert.engine.mode import walk
from sbert.modules.backbone import describe
from sbert.modules.transformer import Transformer

# By how much the token embeddings of two forwards may differ, as a part of their size: in half precision, and in
# full; GPUs may be told to multiply float32 in TF32.
_HALF, _FULL = 0.1, {"cpu": 1e-4}

_lock = threading.RLock()


@dataclass(frozen=True)
class Chosen:
    """How a transformer runs.

    Args:
        fused: Our own forward, from a batch to its token embeddings; None where the Hugging Face module runs.
        why: In words.
    """

    fused: Callable[[TokenBatch], Tensor] | None
    why: str


# What was chosen, for which settings and weights, and a sample of these. None of it may hold the module itself.
_made: WeakKeyDictionary[Transformer, tuple[Chosen, object, list[np.ndarray], bytes]] = WeakKeyDictionary()


def forwards(
    modules: Iterable[nn.Module], dtype: torch.dtype, compiling: dict[str, Any] | None = None
) -> list[Callable[[Any], Any]]:
    """What to call for each module, one behind the other.

    Args:
        modules: Of an encoder.
        dtype: Of a transformer's arithmetic; its values come in that of its weights.
        compiling: Options of ``torch.compile`` for transformers, if that is wanted.
    """
    return [_forward(x, dtype, compiling) if isinstance(x, Transformer) else x for x in modules]


def _forward(
    module: Transformer, dtype: torch.dtype, compiling: dict[str, Any] | None
) -> Callable[[TokenBatch], TokenEmbeddings]:
    fused, weights = choose(module, dtype, compiling).fused, module.network.dtype
    if fused is not None:
        return lambda batch: batch.embeddings(fused(batch).to(weights))
    plain: Callable[[TokenBatch], TokenEmbeddings] = module
    if compiling is not None:
        plain = torch.compile(module.forward, **compiling)

    def run(batch: TokenBatch) -> TokenEmbeddings:
        with torch.autocast(batch.ids.device.type, dtype) if dtype != weights else nullcontext():
            tokens = plain(batch)
        return batch.embeddings(tokens.values.to(weights))

    return run


def choose(module: Transformer, dtype: torch.dtype, compiling: dict[str, Any] | None = None) -> Chosen:
    """The forward for a transformer, made at its first use and again after its weights changed.

    It has to be called without gradient and in eval mode, as it compares the two forwards.
    """
    settings = (dtype, compiling, torch.get_num_threads(), _state(module.network))
    if module in _made:
        chosen, made_for, samples, sampled = _made[module]
        if made_for == settings and _sampled(samples) == sampled:
            return chosen
    with _lock:
        samples = _samples(module.network)
        chosen = _choose(module, dtype, compiling)
        _made[module] = chosen, settings, samples, _sampled(samples)
    return chosen


def _choose(module: Transformer, dtype: torch.dtype, compiling: dict[str, Any] | None) -> Chosen:
    if type(module).forward is not Transformer.forward:
        return Chosen(None, f"{type(module).__name__} has a forward of its own")
    name, device = type(module.network).__name__, module.network.device
    if device.type == "mps":
        return Chosen(None, "MPS compiles for each shape, so batches are padded to few shapes")
    if _state(module.network) is None:
        return Chosen(None, "hooks are to see its modules run")
    batch = _probe(module).to(device)
    expected = module.padded_forward(batch).float()
    if not expected.isfinite().all():
        return Chosen(None, "its vectors are not finite")
    backbone = describe(module.network)
    if isinstance(backbone, str):
        return Chosen(None, backbone)
    packed, how = False, "F.linear"
    if compiling is not None:
        how = "torch.compile"
    elif device.type == "cpu":
        packed, how = packing(dtype, torch.get_num_threads())
    fused = FusedEncoder(backbone, dtype, packed, compiling)
    apart = _apart(fused(batch), expected)
    if not apart <= _tolerance(dtype, device):
        why = f"the fused forward differs by {apart:.1e} of the vectors' size"
        warnings.warn(f"{name} runs by its plain, slower forward: {why}; please report it", stacklevel=2)
        return Chosen(None, why)
    if compiling is None and one_kernel(dtype, device) and backbone.position_bias is None:
        return Chosen(Graphs(fused), f"{how}, CUDA graphs for short texts")
    return Chosen(fused, how)


def _probe(module: Transformer) -> TokenBatch:
    """Three rows of different lengths, to compare forwards by."""
    longest, vocab = min(40, module.max_seq_length or 40), module.vocab_size or 100
    lengths = (longest, max(1, longest // 4), 1)
    return TokenBatch.from_rows([[(7 * i + 3) % vocab for i in range(length)] for length in lengths])


def _tolerance(dtype: torch.dtype, device: torch.device) -> float:
    return _HALF if dtype.itemsize < 4 else _FULL.get(device.type, 1e-2)


def _apart(found: Tensor, expected: Tensor) -> float:
    """How far token embeddings are from others, as a part of their size."""
    return float((found.float() - expected).norm() / expected.norm().clamp(min=1e-12))


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
