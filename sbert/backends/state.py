"""The one door to the backends, and what is known of each network: what runs it, why, and from which copies."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from sbert.backends import packed
from sbert.backends.attention import without_cudnn
from sbert.backends.backend import Backend, CallSettings, RunBatch, inference_call
from sbert.backends.cpu_training import CpuTraining
from sbert.backends.engines import Engine, EngineChoice, weights_digest
from sbert.backends.fused import Fused
from sbert.backends.minimal_bert import BertModel, convert_model
from sbert.backends.network import ModuleSnapshot, Samples, has_hooks, snapshot, state_of
from sbert.backends.packed import Packed
from sbert.backends.padded import Padded, in_dtype
from sbert.backends.parity import copy_without_hooks, parity, parity_limit, probe
from sbert.batch import HIDDEN, TokenBatch
from sbert.inputs.arguments import warn
from sbert.storage.files import is_failure, is_out_of_memory
from sbert.storage.processes import Lock

# What runs the module itself, in order of preference. In a call of ``encode`` no weight changes, so that ``Fused``,
# which copies them, is preferred there.
_OF_MODULE: tuple[type[Backend], ...] = (CpuTraining, Packed, Padded)
_lock = Lock()


class CachedBackend(NamedTuple):
    """What computes from copies of the weights, or why nothing does; it must not refer to the network.

    Args:
        backend: What computes; None if the module itself runs.
        reason: Why the module itself runs.
        settings: For which settings and weights it was made.
        samples: Of these weights.
        modules: Those of the network then.
    """

    backend: Fused | None
    reason: str | None
    settings: object
    samples: Samples
    modules: ModuleSnapshot


class ModelState:
    """What is known of one network; ``state_of(network, ModelState)`` has it, and it does not refer to the network."""

    def __init__(self) -> None:
        # Why backends do not run it as the padded module does, by backend, kind of device and dtype.
        self.refusals: dict[tuple[type[Backend], str, torch.dtype], str | None] = {}
        self.cached: CachedBackend | None = None
        # Of a model for sequence classification: whether its head reads the first token of each row alone.
        self.reads_first: bool | None = None


def forward(network: Any, batch: TokenBatch, plain: bool = False, engine: EngineChoice | None = None) -> Tensor:
    """The last layer's vectors of all tokens, by the backend that is the fastest here.

    Args:
        network: A Hugging Face model, or a minimal BERT.
        batch: At least one token.
        plain: Whether the module itself runs, with padding.
        engine: What the caller has chosen to encode in.

    Shape:
        Output: (tokens, dim), of the network's dtype or that of autocast.
    """
    call = inference_call.get()
    if plain or (batch.marks is not None and (batch.marks == HIDDEN).any()):  # A mask of tokens, which only that has.
        return in_dtype(call.settings.dtype if call else network.dtype, network, Padded(network).forward, batch)
    device = batch.values.device
    if call is None or network.training or torch.is_grad_enabled():
        run: RunBatch = select(network, device).forward
    else:
        if network not in call.forwards:
            cached = cached_backend(network, call.settings, engine) if call.settings.copies else None
            backend = None if cached is None else cached.backend
            call.forwards[network] = _of_module(network, call.settings, device) if backend is None else backend.forward
        run = call.forwards[network]
    if device.type != "cuda" or torch.compiler.is_compiling():
        return run(batch)
    with without_cudnn():
        return run(batch)


def select(network: Any, device: torch.device) -> Backend:
    """The backend that runs a network in its present state, with the weights that it has at each forward."""
    return next(kind(network) for kind in _OF_MODULE if refusal(kind, network, device, network.dtype) is None)


def refusal(kind: type[Backend], network: Any, device: torch.device, dtype: torch.dtype) -> str | None:
    """Why a backend does not run a network; it is compared with the padded module before its first use."""
    reason = kind.supports(network, device, dtype)
    if reason is not None or kind is Padded or torch.compiler.is_compiling():
        return reason
    key, refusals = (kind, device.type, dtype), state_of(network, ModelState).refusals
    if key not in refusals:
        with _lock:
            if key not in refusals:
                result = parity(kind, network, device, dtype)
                refusals[key] = result if isinstance(result, str) else None
    return refusals[key]


def padding_reason(network: Any) -> str | None:
    """Why batches of a network are padded; None if they are not."""
    return None if isinstance(network, BertModel) else refusal(Packed, network, network.device, network.dtype)


def _of_module(network: Any, settings: CallSettings, device: torch.device) -> RunBatch:
    """The module itself, compiled if that is wanted and it has no hooks, in the dtype of the call."""
    module = select(network, device).forward
    if settings.compiling is not None and not has_hooks(network):
        module = torch.compile(module, **settings.compiling)
    return partial(in_dtype, settings.dtype, network, module)


def cached_backend(network: Any, call: CallSettings, engine: EngineChoice | None = None) -> CachedBackend:
    """What computes from copies of the weights: made at its first use, and again after the weights have changed."""
    state, current = state_of(network, ModelState), snapshot(network)
    settings, cached = (call.dtype, call.compiling, engine, *current.version()), state.cached
    same = cached is not None and cached.settings == settings and (cached.modules is current or not current.cacheable)
    if cached is not None and same and cached.samples.is_current():
        return cached
    with _lock:
        if state.cached is not cached:  # By another thread.
            return cached_backend(network, call, engine)
        state.cached = None  # Its copies are not needed while others are made.
        samples = Samples(network)
        try:
            fused = _find_fused(network, call, engine)
        except (RuntimeError, MemoryError) as error:  # The module needs no copies; the next call tries again.
            if not is_out_of_memory(error):
                raise
            return CachedBackend(None, "there is no memory for copies of its weights", settings, samples, current)
        backend, reason = (None, fused) if isinstance(fused, str) else (fused, None)
        cached = state.cached = CachedBackend(backend, reason, settings, samples, current)
    return cached


def _find_fused(network: Any, settings: CallSettings, choice: EngineChoice | None) -> Fused | str:
    """The engine or else the fused forward of a network, or the reason why it cannot run."""
    device, dtype = network.device, settings.dtype
    reason = Fused.supports(network, device, dtype)
    if choice:
        fits = device.type == "cpu" and settings == CallSettings(torch.float32)
        if reason or not fits or choice.digest != weights_digest(network):
            warn(f"torch runs the model, not {choice.name}: {reason or 'weights changed, or no float32 on a CPU'}")
        else:
            remedy = f"torch runs it; delete or replace {choice.file}"
            if isinstance(engine := parity(Engine, network, device, choice.dtype, remedy, choice=choice), Engine):
                return engine
    return reason or parity(Fused, network, device, dtype, dtype=dtype, compiling=settings.compiling)


def materialize(network: Any) -> Any:
    """The Hugging Face model with the weights of a minimal BERT, and what was chosen for that; others stay."""
    if not isinstance(network, BertModel):
        return network
    model: Any = convert_model(network)
    packed.adopt(model)
    cached = state_of(network, ModelState).cached
    if cached is not None:
        state_of(model, ModelState).cached = cached._replace(modules=snapshot(model))
    return model


def explain(network: Any, dtype: torch.dtype, engine: EngineChoice | None = None) -> tuple[str, dict[str, str]]:
    """What runs a network in ``encode``, in words, and why each backend that would be preferred does not, by its name.

    Args:
        network: A Hugging Face model, or a minimal BERT.
        dtype: Of the arithmetic of ``encode``.
        engine: What the caller has chosen to encode in.
    """
    cached = cached_backend(network, CallSettings(dtype), engine)
    chosen = f"plain: {cached.reason}" if cached.backend is None else f"{cached.backend.name}: {cached.backend.why}"
    refusals = {} if cached.reason is None else {Fused.name: cached.reason}
    for kind in (Packed, Padded):
        reason = refusal(kind, network, network.device, network.dtype)
        if reason is not None:
            refusals[kind.name] = reason
        elif not refusals:  # Nothing asks for the next one.
            break
    return chosen, refusals


# ---------------------------------------------------------------------------- models for sequence classification


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
    if plain or not all_have_tokens or has_hooks(model, modules=False) or not _reads_first_tokens(model):
        return Padded(model).scores(batch)
    return head_logits(model, forward(model.base_model, batch)[batch.offsets[:-1]][:, None])


def _reads_first_tokens(model: Any) -> bool:
    """Whether the head gives the same scores if it is shown the first token of each row alone."""
    state = state_of(model, ModelState)
    if state.reads_first is None:
        copied, batch = copy_without_hooks(model), probe(model.base_model, model.device)
        try:
            with torch.no_grad(), torch.autocast(batch.ids.device.type, enabled=False):
                expected = Padded(copied).scores(batch)
                first = Padded(copied.base_model).forward(batch)[batch.offsets[:-1]]
                error = (head_logits(copied, first[:, None]) - expected).norm()
            state.reads_first = bool(error <= parity_limit(expected.dtype, model.device) * expected.norm())
        except Exception as failure:
            if not is_failure(failure):
                raise
            state.reads_first = False
    return state.reads_first


def head_logits(model: Any, states: Tensor) -> Tensor:
    """What the head of a model makes of the vectors of tokens: of a classifier, those of the first ones.

    Shape:
        states: (rows, tokens, dim). Output: (rows, classes), or (rows, tokens, vocabulary).
    """
    # Already imported by the model.
    from transformers.modeling_outputs import BaseModelOutputWithPooling

    pooler = getattr(model.base_model, "pooler", None)
    pooled = None if pooler is None else pooler(states)
    output = BaseModelOutputWithPooling(last_hidden_state=states, pooler_output=pooled)
    head, backbone = copy.copy(model), nn.Module()  # The same modules, but in the place of the backbone its output.
    vars(backbone)["forward"] = lambda *_, **__: output
    vars(head)["_modules"] = {**model._modules, model.base_model_prefix: backbone}
    logits: Tensor = head(input_ids=torch.zeros(states.shape[:2], dtype=torch.int64, device=states.device)).logits
    return logits
