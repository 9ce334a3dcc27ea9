"""One call on one model: tokenize ahead, form batches, run them within memory. The one path to a vector."""

from __future__ import annotations

import copy
import math
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import accumulate, repeat
from operator import attrgetter
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sbert.backends import CallSettings, InferenceCall, snapshot
from sbert.batch import Ragged, TokenBatch, TokenEmbeddings
from sbert.functional import directions, truncate
from sbert.inputs.devices import adapt_half_precision, default_batch_tokens, inference_dtype
from sbert.pipeline.batching import Indices, plan, prefetch, windows
from sbert.pipeline.progress import Report, TextTooLargeError
from sbert.pipeline.self_check import check_once
from sbert.pipeline.settings import EncodeSettings
from sbert.pipeline.sparse import sparse_rows
from sbert.pipeline.tokenize import Tokens
from sbert.storage.files import is_out_of_memory
from sbert.storage.processes import in_child

# The indices of the texts of each batch, and their outputs: a row or, of tokens, a tensor for each.
Results = Iterator[tuple[Indices, Any]]
# Batches that have to fit before twice their size is tried again.
_PATIENCE = 64
_DEFAULTS = EncodeSettings()
_WEIGHT = torch.empty(0, dtype=torch.float32, device="cpu")  # Of a model without weights.
_lock = threading.RLock()
# The thread of each running call and the modules that it keeps in eval mode; and the number of calls for each of these.
_calls: list[tuple[int, list[nn.Module]]] = []
_paused: dict[nn.Module, int] = {}


@contextmanager
def evaluating(model: nn.Module) -> Iterator[dict[nn.Module, Any]]:
    """Eval mode without gradient, for the modules below the model, with what ``snapshot`` has found of them.

    The last of several threads to leave restores the mode of each module. If each thread restored the modes that it
    found, one thread could enable dropout while another one encodes. Models may share modules, as the encoders of
    routes do, so calls are counted for each module.
    """
    parts = snapshot(model).parts
    modules = [model, *parts]
    with _lock:
        paused = list(filter(attrgetter("training"), modules))
        paused += filter(_paused.__contains__, modules) if _paused else []  # By other threads.
        for module in paused:
            _paused[module] = _paused.get(module, 0) + 1
            _set_mode(module, training=False)
        call = threading.get_ident(), paused
        if paused:
            _calls.append(call)
    try:
        with torch.no_grad():
            yield parts
    finally:
        if paused:
            with _lock:
                _end(call)


def _end(call: tuple[int, list[nn.Module]]) -> None:
    _calls.remove(call)
    for module in call[1]:
        _paused[module] -= 1
        if not _paused[module]:
            del _paused[module]
            _set_mode(module, training=True)


def _set_mode(module: nn.Module, training: bool) -> None:
    if isinstance(module, torch.jit.ScriptModule):
        module.training = training
    else:
        vars(module)["training"] = training  # As an attribute it takes fifty times as long.


def _forget_others() -> None:
    """In a forked child, end the calls of threads that do not exist there, one of which may have held the lock."""
    global _lock
    _lock = threading.RLock()
    for call in [call for call in _calls if call[0] != threading.get_ident()]:
        _end(call)


in_child(_forget_others)


def outputs(model: Any, device: torch.device) -> list[Any]:
    """Output of each module for one text: the only way to know it for modules of the caller's own."""
    batch = TokenBatch.from_rows(model[0].tokenize(["a"])).to(device)
    with evaluating(model):
        return list(accumulate(model, lambda output, module: module(output), initial=batch))[1:]


def output_dims(model: Any, device: torch.device) -> list[int]:
    """Dimension of the output of each module."""
    return [(value.values if isinstance(value, Ragged) else value).shape[-1] for value in outputs(model, device)]


class MemoryLimit:
    """The size of batches that fit in memory: half of what did not, until many of that size have fitted."""

    def __init__(self) -> None:
        self.tokens: float = math.inf
        self._fitted = 0

    def lower(self, tokens: int) -> None:
        """A batch of this number of tokens, including padding, did not fit."""
        self.tokens, self._fitted = min(self.tokens, tokens // 2), 0

    def confirm(self, tokens: int) -> None:
        """A batch of this number of tokens did fit: what else filled the memory may be gone."""
        self._fitted += 2 * tokens > self.tokens
        if self._fitted >= _PATIENCE:
            self.tokens, self._fitted = 2 * self.tokens, 0


@dataclass(frozen=True, eq=False)
class Window:
    """Different texts or pairs that are computed together, each once.

    Args:
        texts: The texts or pairs.
        rows: Row of the caller's input where each occurs first, for errors.
        counts: Number of occurrences of each.
        inverse: The text of each row of the window.
    """

    texts: list[Any]
    rows: Indices
    counts: Indices
    inverse: Indices

    def select(self, indices: Indices) -> Window:
        """A window of some of the texts, one row for each."""
        texts = [self.texts[index] for index in indices]
        return Window(texts, self.rows[indices], self.counts[indices], np.arange(len(texts)))


class Encoding:
    """A model with the settings of one call.

    Args:
        model: A model whose method ``tokens`` tokenizes texts, or pairs of texts, after a prompt.
        settings: The settings.
        device: What computes, if that is not the device of the model.
        on_device: Whether the outputs stay on the device of the model.
    """

    def __init__(
        self,
        model: Any,
        settings: EncodeSettings = _DEFAULTS,
        device: torch.device | None = None,
        on_device: bool = False,
    ) -> None:
        weight = next(filter(torch.is_floating_point, model.parameters()), _WEIGHT)
        self.model: Any = model
        self.settings: EncodeSettings = settings
        self.device: torch.device = device or weight.device
        self.dtype: torch.dtype = weight.dtype
        if self.dtype != torch.float32 and not settings.plain:
            adapt_half_precision(model, self.device)
            self.dtype = model.dtype
        self.to: torch.device = weight.device if on_device else _WEIGHT.device
        dtype, _ = inference_dtype(self.dtype, model.automatic_dtype and not settings.plain, self.device)
        self.inference = InferenceCall(CallSettings(dtype, None if settings.plain else model._compiling))
        self.batch_tokens: int = settings.batch_tokens or default_batch_tokens(self.device, dtype)
        # A maximum of the caller's own includes padding, which costs memory where there is any.
        fixed = settings.batch_tokens or self.device.type != "cpu"
        self.padded_tokens: int | None = None if fixed else self.batch_tokens * 5 // 4

    def in_full_precision(self) -> Encoding:
        """The same call, which computes in the dtype of the weights, and leaves the copies of lower precision."""
        other = copy.copy(self)
        other.inference = InferenceCall(CallSettings(self.dtype, copies=False))
        return other

    def check(self) -> None:
        """Compare the model with the CPU at its first use on an accelerator, and compute in the dtype that works."""
        settings = self.inference.settings
        if self.settings.plain or not settings.copies:
            return

        def run(batch: TokenBatch, dtype: torch.dtype) -> Any:
            with evaluating(self.model):
                return InferenceCall(replace(settings, dtype=dtype)).run(self.model, batch)

        dtype = check_once(self.model, self.device, settings.dtype, run)
        if dtype != settings.dtype:
            self.inference = InferenceCall(replace(settings, dtype=dtype))

    def finish(self, output: Any) -> Any:
        """Outputs of texts from one of the modules: truncated and normalized, (rows, dim); or the vectors of tokens."""
        settings = self.settings
        if settings.token_embeddings:
            return [part.clone() for part in output.values.float().split(output.lengths.tolist())]
        if not isinstance(output, Tensor) and not self.model.is_multi_vector:
            remedy = "add a Pooling after them, or pass similarity_fn_name='maxsim' for a multi-vector encoder"
            raise ValueError(f"the modules give one vector per token and none per text; {remedy}")
        values: Any = output if isinstance(output, Tensor) else output.values
        vectors: Any = truncate(values.float(), settings.truncate_dim)
        vectors = directions(vectors) if settings.normalize else vectors
        if isinstance(output, Tensor):
            return sparse_rows(vectors, settings.max_active_dims, self.to) if settings.sparse else vectors
        return [part.clone() for part in vectors.to(self.to).split(output.lengths.tolist())]

    def token_modules(self) -> Any:
        """The modules up to the last one that gives one vector per token."""
        values = enumerate(outputs(self.model, self.device), start=1)
        numbers = [number for number, value in values if isinstance(value, TokenEmbeddings)]
        if not numbers:
            kind = type(self.model[0]).__name__
            raise ValueError(f"{kind} gives no vectors per token; use output_value='sentence_embedding'")
        return self.model[: numbers[-1]]


def run_here(job: Encoding, window: Window, report: Report) -> Results:
    """Run the texts of a window in this process; the next ones are tokenized while the model runs.

    Args:
        job: The model and the settings.
        window: The texts.
        report: Records truncated texts and those that consist mostly of unknown tokens.
    """
    model, settings = job.model, job.settings
    runs = windows(len(window.texts), job.device)
    coming = map(model.tokens, map(window.texts.__getitem__, runs), repeat(settings.prompt))
    forward = job.token_modules() if settings.token_embeddings else model
    ahead = closing(prefetch(coming, 2)) if len(runs) > 1 else nullcontext(coming)
    with evaluating(model) as job.inference.parts, ahead as tokenized:
        for run, tokens in zip(runs, tokenized, strict=True):
            report.record(tokens, window.rows[run], window.counts[run])
            batches = plan(tokens.lengths, job.batch_tokens, settings.batch_size, job.padded_tokens)
            for rows, output in run_batches(job, forward, tokens, batches, window.rows[run], report.what):
                indices = rows + run.start if run.start else rows
                report.advance(window.counts, indices)
                yield indices, job.finish(output)


def run_batches(
    job: Encoding, forward: Callable[[TokenBatch], Any], tokens: Tokens, batches: Iterable[Indices], rows: Indices,
    what: str = "sentences",
) -> Results:  # fmt: skip
    """Yield the indices of each batch and its output. A batch that does not fit in memory is halved.

    Args:
        job: The device and the settings of the backends.
        forward: The model, or some of its modules; its output has one entry per row.
        tokens: The tokens of all texts.
        batches: The indices of each batch.
        rows: Row of the caller's input of each text.
        what: What errors call the texts.

    Raises:
        TextTooLargeError: If a batch of one text does not fit in memory, tried twice: it may be full for a moment only.
    """
    if job.device.type != "cpu":
        job.check()
    lengths, limits, device = tokens.lengths, job.model._memory_limits, job.device
    limit = limits.get(device) or limits.setdefault(device, MemoryLimit())
    waiting, refused = list(batches)[::-1], False
    while waiting:
        indices = waiting.pop()
        size = len(indices) * int(lengths[indices].max())
        output, fits = None, len(indices) == 1 or size <= limit.tokens
        if fits:
            try:
                output = job.inference.run(forward, tokens.batch(indices, device))
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
        if output is not None:
            if limit.tokens < math.inf:
                limit.confirm(size)
            refused = False
            yield indices, output
        elif len(indices) == 1 and refused:
            problem = f", {lengths[indices[0]]:,} tokens, does not fit in the free memory of {device}, even alone"
            remedy = "; split it, set a lower max_seq_length, or free memory"
            raise TextTooLargeError(what, int(rows[indices[0]]), problem + remedy)
        else:
            if fits and device.type != "cpu":  # Outside of the except clause, whose traceback holds the memory.
                torch.get_device_module(device).empty_cache()
            if fits and len(indices) > 1:
                limit.lower(size)
            refused, half = len(indices) == 1, len(indices) // 2
            waiting += [indices[half:], indices[:half]] if half else [indices]
