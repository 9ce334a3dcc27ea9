"""Which forward runs a module for inference, and why."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook

from sbert.backends.architectures import describe
from sbert.backends.attention import one_kernel
from sbert.backends.cuda_graphs import Graphs
from sbert.backends.fused import FusedEncoder, apart_by
from sbert.backends.hooks import walk
from sbert.backends.linear import packing
from sbert.backends.weight_changes import Samples
from sbert.batch import TokenBatch, TokenEmbeddings
from sbert.modules.transformer import Transformer
from sbert.storage.files import is_failure, one_line
from sbert.storage.processes import Lock

# By how much the token embeddings of two forwards may differ, as a part of their size: in half precision, and in
# full; GPUs may be told to multiply float32 in TF32.
_HALF, _FULL = 0.1, {"cpu": 1e-4}

_lock = Lock()


@dataclass(frozen=True)
class Chosen:
    """How a transformer runs.

    Args:
        fused: Our own forward, from a batch to its token embeddings; None where the Hugging Face module runs.
        why: In words.
    """

    fused: Callable[[TokenBatch], Tensor] | None
    why: str

    def __str__(self) -> str:
        if isinstance(self.fused, Graphs) and self.fused.failure:
            return f"fused: {self.why}, which are not used: {self.fused.failure}"
        return f"{'fused' if self.fused else 'plain'}: {self.why}"


# What was chosen, for which settings and weights, and samples of these. None of it may hold the module itself.
_made: WeakKeyDictionary[Transformer, tuple[Chosen, object, Samples]] = WeakKeyDictionary()


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
    (chosen, _, samples), plain = _entry(module, dtype, compiling), _plain(module, dtype, compiling)
    # What has to be waited for is asked for now, and looked at once the first batch is under way.
    unchanged = samples.start() if chosen.fused is not None and samples.deferred else None

    def attempt(batch: TokenBatch) -> TokenEmbeddings:
        nonlocal chosen
        if chosen.fused is None:
            return plain(batch)
        try:
            return batch.embeddings(chosen.fused(batch).to(module.network.dtype))
        except Exception as error:
            if not is_failure(error):
                raise
            reason = one_line(error)
        tokens = plain(batch)  # Where this fails, too, it is not the forward's fault.
        chosen = _dismissed(module, reason)
        return tokens

    def run(batch: TokenBatch) -> TokenEmbeddings:
        nonlocal chosen, unchanged
        tokens, still = attempt(batch), unchanged
        unchanged = None
        if still is None or still():
            return tokens
        _made.pop(module, None)
        chosen = choose(module, dtype, compiling)
        return attempt(batch)

    return run


def _plain(
    module: Transformer, dtype: torch.dtype, compiling: dict[str, Any] | None
) -> Callable[[TokenBatch], TokenEmbeddings]:
    """The Hugging Face module, seen by whoever watches it."""
    forward: Callable[[TokenBatch], TokenEmbeddings] = module
    if compiling is not None and _state(module) is not None:
        forward = torch.compile(module.forward, **compiling)

    def run(batch: TokenBatch) -> TokenEmbeddings:
        weights = module.network.dtype
        with torch.autocast(batch.ids.device.type, dtype) if dtype != weights else nullcontext():
            tokens = forward(batch)
        return replace(tokens, values=tokens.values.to(weights))

    return run


def _dismissed(module: Transformer, reason: str) -> Chosen:
    """Have the Hugging Face module run in place of a forward that failed, until the weights change."""
    chosen = Chosen(None, _slower(module, f"the fused forward failed ({reason})"))
    with _lock:
        if module in _made:
            _made[module] = (chosen, *_made[module][1:])
    return chosen


def _slower(module: Transformer, why: str) -> str:
    name = type(module.network).__name__
    warnings.warn(f"{name} runs by its plain, slower forward: {why}; please report it", stacklevel=2)
    return why


def choose(module: Transformer, dtype: torch.dtype, compiling: dict[str, Any] | None = None) -> Chosen:
    """The forward for a transformer, made at its first use and again after its weights changed.

    It has to be called without gradient and in eval mode, as it compares the two forwards.
    """
    return _entry(module, dtype, compiling)[0]


def _entry(module: Transformer, dtype: torch.dtype, compiling: dict[str, Any] | None) -> tuple[Chosen, object, Samples]:
    settings = (dtype, compiling, torch.get_num_threads(), _state(module))
    made = _made.get(module)
    if made is not None and made[1] == settings and (made[2].deferred or made[2].start()()):
        return made
    with _lock:
        samples = Samples(module.network)
        made = _made[module] = _choose(module, dtype, compiling), settings, samples
    return made


def _choose(module: Transformer, dtype: torch.dtype, compiling: dict[str, Any] | None) -> Chosen:
    if type(module).forward is not Transformer.forward:
        return Chosen(None, f"{type(module).__name__} has a forward of its own")
    device = module.network.device
    if device.type == "mps":
        return Chosen(None, "MPS compiles for each shape, so batches are padded to few shapes")
    if _state(module) is None:
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
    try:
        fused = FusedEncoder(backbone, dtype, packed, compiling)
        apart = apart_by(fused(batch), expected)
    except Exception as error:
        if not is_failure(error):
            raise
        return Chosen(None, _slower(module, f"the fused forward failed ({one_line(error)})"))
    if not apart <= _tolerance(dtype, device):
        return Chosen(None, _slower(module, f"the fused forward differs by {apart:.1e} of the vectors' size"))
    if compiling is None and backbone.position_bias is None and one_kernel(dtype, device, backbone.head_dim):
        return Chosen(Graphs(fused), f"{how}, CUDA graphs for short texts")
    return Chosen(fused, how)


def _probe(module: Transformer) -> TokenBatch:
    """Three rows of different lengths, to compare forwards by."""
    longest, vocab = min(40, module.max_seq_length or 40), module.vocab_size or 100
    lengths = (longest, max(1, longest // 4), 1)
    return TokenBatch.from_rows([[(7 * i + 3) % vocab for i in range(length)] for length in lengths])


def _tolerance(dtype: torch.dtype, device: torch.device) -> float:
    return _HALF if dtype.itemsize < 4 else _FULL.get(device.type, 1e-2)


def _state(model: nn.Module) -> object:
    """What changes when somebody assigns or steps weights or replaces modules; None where hooks watch the modules."""
    if _has_any_global_hook():  # type: ignore[no-untyped-call]
        return None
    state: list[object] = []
    for module in walk(model):
        if module._forward_hooks or module._forward_pre_hooks:
            return None
        for parameter in module._parameters.values():
            if parameter is not None:
                state += (parameter.data_ptr(), -1 if parameter.is_inference() else parameter._version)
    return state
