"""The one door to the ways a transformer runs: which of them a batch takes, and why.

For training, and wherever the model is called with a gradient: its layers as steps of autograd (``cpu_training``), or
the Hugging Face module without padding (``packed``), or with padding (``padded``). For ``encode``: a forward of our own
from copies of the weights (``fused``), replayed as CUDA graphs for short texts (``cuda_graphs``), or else the module.
Each way is compared once with a plainer one before it is used, and again after the weights change.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook

from sbert.backends import cpu_training, packed, padded
from sbert.backends.architectures import Backbone, classification_head, describe
from sbert.backends.attention import one_kernel
from sbert.backends.bert.model import BertModel
from sbert.backends.cuda_graphs import Graphs
from sbert.backends.fused import FusedEncoder
from sbert.backends.hooks import FORWARD, walk, watched
from sbert.backends.linear import packing
from sbert.backends.parity import gap, probe, tolerance, twin
from sbert.backends.weight_changes import Samples
from sbert.batch import TokenBatch
from sbert.storage.files import is_failure, one_line
from sbert.storage.processes import Lock

Output = TypeVar("Output")
Forward = Callable[[TokenBatch], Tensor]

_lock = Lock()
_inference: ContextVar[Inference | None] = ContextVar("sbert_inference", default=None)
# For each network, by kind of device and dtype: why it has to pad, if it has to.
_padding_reasons: WeakKeyDictionary[nn.Module, dict[tuple[str, torch.dtype], str | None]] = WeakKeyDictionary()
# For each network: whether its forward for training on a CPU gives the same vectors.
_trained: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()
# For each model for sequence classification: whether its head, run alone, gives the same scores.
_heads: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()


def forward(network: Any, batch: TokenBatch) -> Tensor:
    """The last layer's vectors of all tokens, by the way that is the fastest here.

    Args:
        network: A Hugging Face model, or a minimal BERT.
        batch: At least one token.

    Shape:
        Output: (tokens, dim), of the network's dtype or that of autocast.
    """
    inference = _inference.get()
    if inference is None or network.training or torch.is_grad_enabled():
        return _module_forward(network, batch)
    return inference.forward(network, batch)


def scores(model: Any, batch: TokenBatch) -> Tensor:
    """The scores of a model for sequence classification, whose backbone runs by the way that is the fastest here.

    Args:
        model: A Hugging Face model with a head; of one that reads more than the first token, the module itself runs.
        batch: At least one row.

    Shape:
        Output: (rows, classes).
    """
    all_have_tokens = sum(rows for rows, _ in batch.groups) == batch.rows  # Known on the host, without a wait.
    head = _head(model) if all_have_tokens and not watched(model, own=True) else None
    if head is None:
        return padded.scores(model, batch)
    first = forward(model.base_model, batch)[batch.offsets[:-1]]  # (rows, dim)
    return head(model, first[:, None])


def _head(model: Any) -> Callable[[Any, Tensor], Tensor] | None:
    """The head that reads first tokens, once it is known to give the scores of the module."""
    head = classification_head(model)
    if head is not None and model not in _heads:
        copied, batch = twin(model), probe(model.base_model, model.device)
        with torch.no_grad(), torch.autocast(batch.ids.device.type, enabled=False):
            expected = padded.scores(copied, batch)
            first = padded.hidden_states(copied.base_model, batch)[batch.offsets[:-1]]
            difference = (head(copied, first[:, None]) - expected).norm() / expected.norm().clamp(min=1e-12)
        _heads[model] = bool(difference <= tolerance(expected.dtype, model.device))
    return head if head is not None and _heads[model] else None


# ------------------------------------------------------------------------------------------ the module, for training


def _module_forward(network: Any, batch: TokenBatch) -> Tensor:
    """By way of the module or, for training on a CPU, of its layers."""
    device = batch.ids.device
    if isinstance(network, BertModel) or device.type == "mps" or _padding_reason(network, device) is not None:
        return padded.hidden_states(network, batch)
    learns = network.training or torch.is_grad_enabled()
    if learns and device.type == "cpu" and not torch.compiler.is_compiling():
        backbone = cpu_training.trainable(network)
        if backbone is not None and _same_when_trained(network, backbone):
            dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else network.dtype
            with torch.autocast("cpu", enabled=False):
                return cpu_training.hidden_states(backbone, batch, dtype)
    return packed.hidden_states(network, batch)


def padding_reason(network: Any) -> str | None:
    """Why batches of a network are padded, if they are; the first batch may show a reason that was not known before."""
    if isinstance(network, BertModel):
        return None
    known = _padding_reasons.get(network, {}).values()
    return packed.unsupported(network) or next((reason for reason in known if reason), None)


def _padding_reason(network: Any, device: torch.device) -> str | None:
    """The same for a device; before the first batch, both ways are compared."""
    reason = packed.unsupported(network)
    if reason is not None or torch.compiler.is_compiling():
        return reason
    key = device.type, network.dtype
    known = _padding_reasons.get(network)
    if known is not None and key in known:
        return known[key]
    with _lock:
        known = _padding_reasons.setdefault(network, {})
        if key not in known:
            known[key] = _compare_without_padding(network, device)
    return known[key]


def _compare_without_padding(network: Any, device: torch.device) -> str | None:
    """Why a network has to pad although its attention is ours: its forward fails or gives other vectors.

    Modes, hooks, gradients and random numbers stay as they are, whatever other threads do with the network.
    """
    name, batch = type(network).__name__, probe(network, device)
    try:
        copied = twin(network)
        with torch.no_grad(), torch.autocast(device.type, enabled=False):
            expected = padded.hidden_states(copied, batch)
            found = packed.hidden_states(copied, batch)
        windowed = _windowed(network.config)
    except Exception as error:
        if not is_failure(error):
            raise
        return f"{name} fails without padding ({one_line(error)})"
    if windowed and not any(batch.windows):
        return f"{name} does not tell its attention how far to look"
    difference = gap(found, expected, batch)
    if difference <= tolerance(expected.dtype, device) or not expected.isfinite().all():
        return None  # From vectors that are not finite nothing can be concluded.
    return _slower(network, f"without padding its vectors differ by {difference:.1e} of their norm")


def _windowed(config: Any) -> bool:
    """Whether a configuration promises layers that attend within a window, which a short probe cannot show."""
    layers = getattr(config, "layer_types", None)
    return "sliding_attention" in layers if layers else bool(getattr(config, "sliding_window", None))


def _same_when_trained(network: Any, backbone: Backbone) -> bool:
    """Whether the forward for training gives the vectors of the module, as it does unless that was changed."""
    with _lock:
        if network not in _trained:
            copied, batch = twin(network), probe(network, torch.device("cpu"))
            own = cpu_training.trainable(copied)
            with torch.no_grad(), torch.autocast("cpu", enabled=False):
                expected = packed.hidden_states(copied, batch)
                found = cpu_training.hidden_states(own or backbone, batch, expected.dtype)
            difference = gap(found, expected, batch)
            _trained[network] = difference <= tolerance(expected.dtype, batch.ids.device)
            if not _trained[network]:
                _slower(network, f"in training the vectors of its layers differ by {difference:.1e} of their norm")
    return _trained[network]


def _slower(network: Any, reason: str) -> str:
    name = type(network).__name__
    warnings.warn(f"{name} runs by its plain, slower forward: {reason}; please report it", stacklevel=2)
    return reason


# ------------------------------------------------------------------------------------- our own forward, for inference


@dataclass(frozen=True)
class Choice:
    """How a network runs for inference.

    Args:
        fused: Our own forward, from a batch to its token embeddings; None where the module runs.
        why: In words.
    """

    fused: Forward | None
    why: str

    def __str__(self) -> str:
        if isinstance(self.fused, Graphs) and self.fused.failure:
            return f"fused: {self.why}, which are not used: {self.fused.failure}"
        return f"{'fused' if self.fused else 'plain'}: {self.why}"


# What was chosen, for which settings and weights, and samples of these. None of it may refer to the network itself.
_choices: WeakKeyDictionary[nn.Module, tuple[Choice, object, Samples]] = WeakKeyDictionary()


class Inference:
    """One call of ``encode``, in which weights do not change: what was chosen for its first batch serves all.

    Args:
        dtype: Of the arithmetic; vectors come in the dtype of the weights.
        compiling: Options of ``torch.compile``, if that is wanted.
    """

    def __init__(self, dtype: torch.dtype, compiling: dict[str, Any] | None = None) -> None:
        self.dtype, self.compiling = dtype, compiling
        self._forwards: dict[nn.Module, Forward] = {}

    def running(self, call: Callable[[TokenBatch], Output]) -> Callable[[TokenBatch], Output]:
        """The same function, in which transformers run for inference."""

        def run(batch: TokenBatch) -> Output:
            token = _inference.set(self)
            try:
                return call(batch)
            finally:
                _inference.reset(token)

        return run

    def forward(self, network: Any, batch: TokenBatch) -> Tensor:
        """The tokens' vectors. Shape: (tokens, dim)."""
        if network not in self._forwards:
            self._forwards[network] = _inference_forward(network, self.dtype, self.compiling)
        return self._forwards[network](batch)


def _inference_forward(network: Any, dtype: torch.dtype, compiling: dict[str, Any] | None) -> Forward:
    (choice, _, samples), plain = _entry(network, dtype, compiling), _plain(network, dtype, compiling)
    # What has to be waited for is asked for now, and looked at once the first batch is under way.
    unchanged = samples.start() if choice.fused is not None and samples.deferred else None

    def attempt(batch: TokenBatch) -> Tensor:
        nonlocal choice
        if choice.fused is None:
            return plain(batch)
        try:
            with torch.autocast(batch.ids.device.type, enabled=False):
                return choice.fused(batch).to(network.dtype)
        except Exception as error:
            if not is_failure(error):
                raise
            reason = one_line(error)
        vectors = plain(batch)  # Where this fails, too, it is not the forward's fault.
        choice = _dismissed(network, reason)
        return vectors

    def run(batch: TokenBatch) -> Tensor:
        nonlocal choice, unchanged
        vectors, still = attempt(batch), unchanged
        unchanged = None
        if still is None or still():
            return vectors
        _choices.pop(network, None)
        choice = choose(network, dtype, compiling)
        return attempt(batch)

    return run


def _plain(network: Any, dtype: torch.dtype, compiling: dict[str, Any] | None) -> Forward:
    """The module, seen by its hooks."""
    compiled = compiling is not None and _state(network) is not None
    run_module = torch.compile(_module_forward, **(compiling or {})) if compiled else _module_forward

    def run(batch: TokenBatch) -> Tensor:
        weights = network.dtype
        with torch.autocast(batch.ids.device.type, dtype) if dtype != weights else nullcontext():
            vectors: Tensor = run_module(network, batch)
        return vectors.to(weights)

    return run


def _dismissed(network: Any, reason: str) -> Choice:
    """Have the module run in place of a forward that failed, until the weights change."""
    choice = Choice(None, _slower(network, f"the fused forward failed ({reason})"))
    with _lock:
        if network in _choices:
            _choices[network] = (choice, *_choices[network][1:])
    return choice


def choose(network: Any, dtype: torch.dtype, compiling: dict[str, Any] | None = None) -> Choice:
    """The forward of a network for inference, made at its first use and again after its weights changed.

    It has to be called without gradient and in eval mode, as it compares two forwards.
    """
    return _entry(network, dtype, compiling)[0]


def carry_over(network: nn.Module, successor: nn.Module) -> None:
    """Keep what was chosen for a network that is replaced by another one with the same weights."""
    with _lock:
        if network in _choices:
            _choices[successor] = _choices[network]


def _entry(network: Any, dtype: torch.dtype, compiling: dict[str, Any] | None) -> tuple[Choice, object, Samples]:
    settings = (dtype, compiling, torch.get_num_threads(), _state(network))
    made = _choices.get(network)
    if made is not None and made[1] == settings and (made[2].deferred or made[2].start()()):
        return made
    with _lock:
        samples = Samples(network)
        made = _choices[network] = _choose(network, dtype, compiling), settings, samples
    return made


def _choose(network: Any, dtype: torch.dtype, compiling: dict[str, Any] | None) -> Choice:
    device = network.device
    if device.type == "mps":
        return Choice(None, "MPS compiles for each shape, so batches are padded to few shapes")
    if _state(network) is None:
        return Choice(None, "hooks are to see its modules run")
    batch = probe(network, device)
    expected = padded.hidden_states(network, batch)
    if not expected.isfinite().all():
        return Choice(None, "its vectors are not finite")
    backbone = describe(network)
    if isinstance(backbone, str):
        return Choice(None, backbone)
    reordered, how = False, "F.linear"
    if compiling is not None:
        how = "torch.compile"
    elif device.type == "cpu":
        reordered, how = packing(dtype, torch.get_num_threads())
    try:
        fused = FusedEncoder(backbone, dtype, reordered, compiling)
        difference = gap(fused(batch), expected, batch)
    except Exception as error:
        if not is_failure(error):
            raise
        return Choice(None, _slower(network, f"the fused forward failed ({one_line(error)})"))
    if not difference <= tolerance(dtype, device):
        return Choice(None, _slower(network, f"the fused forward differs by {difference:.1e} of the vectors' norm"))
    if compiling is None and backbone.position_bias is None and one_kernel(dtype, device, backbone.head_dim):
        return Choice(Graphs(fused), f"{how}, CUDA graphs for short texts")
    return Choice(fused, how)


def _state(network: nn.Module) -> object:
    """What changes when weights are assigned or stepped, or modules replaced; None where hooks watch the modules."""
    if _has_any_global_hook():  # type: ignore[no-untyped-call]
        return None
    state: list[object] = []
    for module in walk(network):
        if any(getattr(module, hooks) for hooks in FORWARD):
            return None
        for parameter in module._parameters.values():
            if parameter is not None:
                state += (parameter.data_ptr(), -1 if parameter.is_inference() else parameter._version)
    return state
