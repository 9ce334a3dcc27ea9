"""Encoding: deduplicate texts or pairs, tokenize them, form batches, run the model, collect its outputs in order."""

from __future__ import annotations

import copy
import math
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from itertools import accumulate
from operator import attrgetter
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from sbert.backends import CallSettings, InferenceCall, snapshot
from sbert.batch import Ragged, TokenBatch, TokenEmbeddings, move, start_to_host
from sbert.functional import directions, truncate
from sbert.inputs.arguments import check_choice, check_count
from sbert.inputs.devices import adapt_half_precision, default_batch_tokens, default_windows, inference_dtype
from sbert.modules import Router
from sbert.pipeline.batching import Distinct, Rows, plan, prefetch, unique, windows
from sbert.pipeline.progress import Report, check_finite, not_finite
from sbert.pipeline.quantization import check_coding, quantize
from sbert.pipeline.run import MemoryLimit, RowsOfTensor, Runner, TextTooLargeError
from sbert.pipeline.self_check import check_once
from sbert.storage.files import is_out_of_memory, one_line
from sbert.storage.processes import in_child

Forward = Callable[[TokenBatch], Any]
Scored = np.float32 | npt.NDArray[np.float32] | Tensor | list[Tensor]
_FIRST, _ONCE = np.zeros(1, np.int64), np.ones(1, np.int64)
_lock = threading.RLock()
# For each model: the threads of the running calls, and the modules that were in training mode before them.
_calls: dict[nn.Module, tuple[list[int], list[nn.Module]]] = {}


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Eval mode without gradient. The last of several threads to leave restores the modes of the modules.

    If each thread restored the modes that it found, one thread could enable dropout while another one encodes.
    """
    thread = threading.get_ident()
    shared, _ = getattr(model, "route_of", (model, None))  # The encoders of one route share its modules.
    with _lock:
        threads, paused = _calls.setdefault(shared, ([], []))
        threads.append(thread)
        paused += filter(attrgetter("training"), [model, *snapshot(shared).below])
        _set_mode(paused, training=False)
    try:
        with torch.no_grad():
            yield
    finally:
        with _lock:
            threads.remove(thread)
            if not threads:
                _set_mode(_calls.pop(shared)[1], training=True)


def _set_mode(modules: list[nn.Module], training: bool) -> None:
    for module in modules:
        if isinstance(module, torch.jit.ScriptModule):
            module.training = training
        else:
            vars(module)["training"] = training  # As an attribute it takes fifty times as long.


def _forget_others() -> None:
    """In a forked child, end the calls of threads that do not exist there, one of which may have held the lock."""
    global _lock
    _lock = threading.RLock()
    for model, (threads, _) in list(_calls.items()):
        threads[:] = [thread for thread in threads if thread == threading.get_ident()]
        if not threads:
            _set_mode(_calls.pop(model)[1], training=True)


in_child(_forget_others)


def outputs(model: Any, device: torch.device, route: str | None = None) -> list[Any]:
    """Output of each module for one text: the only way to know it for modules of the caller's own."""
    chain = [module.choose(route) if isinstance(module, Router) else module for module in model]
    batch = TokenBatch.from_rows(model.route(route)._reader.tokenize(["a"])).to(device)
    with evaluating(model):
        return list(accumulate(chain, lambda output, module: module(output), initial=batch))[1:]


def output_dims(model: Any, device: torch.device) -> list[int]:
    """Dimension of the output of each module.

    Raises:
        ValueError: If the routes of the model give vectors of different dimensions.
    """
    each = [outputs(model, device, route) for route in model.routes or (None,)]
    dims = [[(value.values if isinstance(value, Ragged) else value).shape[-1] for value in values] for values in each]
    if len({own[-1] for own in dims}) > 1:
        given = ", ".join(f"{route}: {own[-1]}" for route, own in zip(model.routes, dims, strict=True))
        raise ValueError(f"the routes give vectors of different dimensions ({given}); add a Dense to one of them")
    return dims[0]


def convert(outputs: Tensor, single: bool, to_numpy: bool, to_tensor: bool) -> Scored:
    """The outputs as the caller wants them.

    Args:
        outputs: One row per text or pair.
        single: Whether the caller passed one text or pair, and gets one row.
        to_numpy: Whether to return an array.
        to_tensor: Whether to return a tensor, which comes first; with neither, a list of tensors.
    """
    if not (single or to_numpy or to_tensor):
        return list(outputs)
    result: npt.NDArray[np.float32] | Tensor = outputs.numpy() if to_numpy and not to_tensor else outputs
    return result[0] if single else result


class SavedRows(Protocol):
    """Stores rows of a list of texts while the others are computed, for a call that goes on after it was killed."""

    def restore(self) -> tuple[Rows, Tensor] | None:
        """The rows that a call before has stored of the list that is computed now, and their outputs."""

    def add(self, rows: Rows, outputs: Tensor) -> None:
        """Store some rows. Shape: (n,), (n, dim)."""


class Encoding:
    """One call of ``encode`` or ``predict``: a model and validated settings.

    Args:
        model: A model whose method ``tokens`` tokenizes texts, or pairs of texts, behind a prompt.
        prompt: Text prepended to each text, or to the first text of each pair.
        batch_tokens: Maximum number of tokens per batch. Default: that of the device.
        batch_size: Number of texts per batch, instead of a maximum of tokens.
        on_truncate: What to do about texts that are too long: ``"warn"``, ``"ignore"`` or ``"error"``.
        truncate_dim: Dimension to which outputs are truncated.
        normalize: Whether outputs are scaled to length 1.
        precision: Precision of the outputs.
        ranges: Ranges of the precision int8.
        device: What computes, if that is not the device of the model.
        on_device: Whether the outputs stay on the device of the model.
        plain: Whether to compute in the dtype of the weights, and without ``torch.compile``.
        deterministic: Whether outputs have the same bits whatever else is in the call.
    """

    def __init__(
        self,
        model: Any,
        prompt: str = "",
        batch_tokens: int | None = None,
        batch_size: int | None = None,
        on_truncate: str = "warn",
        *,
        truncate_dim: int | None = None,
        normalize: bool = False,
        precision: str = "float32",
        ranges: npt.ArrayLike | None = None,
        device: torch.device | None = None,
        on_device: bool = False,
        plain: bool = False,
        deterministic: bool = False,
    ) -> None:
        if batch_size is not None and batch_tokens is not None:
            raise ValueError("batch_size and batch_tokens both set the size of a batch; pass one of them")
        for name, size in (("batch_size", batch_size), ("batch_tokens", batch_tokens)):
            if size is not None:
                check_count(name, size)
        if on_truncate != "warn":
            check_choice("on_truncate", on_truncate, ("warn", "ignore", "error"))
        if precision != "float32" or ranges is not None:
            check_coding(precision, ranges)
        self.model: Any = model
        self.prompt: str = prompt
        self.device: torch.device = model.device if device is None else device
        self.dtype: torch.dtype = model.dtype
        if self.dtype != torch.float32 and not plain:
            adapt_half_precision(model, self.device)
            self.dtype = model.dtype
        self.to: torch.device = model.device if on_device else torch.device("cpu")
        self._batch_tokens, self.batch_size, self._on_truncate = batch_tokens, batch_size, on_truncate
        self.truncate_dim: int | None = truncate_dim
        self.normalize: bool = normalize
        self.precision: str = precision
        self.ranges: npt.ArrayLike | None = ranges
        self.deterministic: bool = deterministic
        dtype = self.dtype
        if model.automatic_dtype and not plain and self.device.type != "cpu":
            dtype, _ = inference_dtype(dtype, True, self.device)
        copies, compiling = not deterministic or self.device.type == "cpu", None if plain else model._compiling
        self.settings = CallSettings(dtype, None if deterministic else compiling, copies)
        self.inference = InferenceCall(self.settings)
        if self.device.type == "cuda" and not plain:
            check_once(self, evaluating)

    @property
    def batch_tokens(self) -> int:
        """Maximum number of tokens per batch."""
        return self._batch_tokens or default_batch_tokens(self.device, self.settings.dtype)

    def report(self, total: int | None, show: bool | None = None, what: str = "") -> Report:
        """A report of a number of texts, if it is known; ``what`` they are called there."""
        what = what or ("pairs" if self.model.is_cross_encoder else "sentences")
        return Report(total, show, self._on_truncate, self.model.max_seq_length, what, self.model._warned)

    def exact(self) -> Encoding:
        """The same call, which computes in the dtype of the weights, and leaves the copies of lower precision."""
        other = copy.copy(self)
        other.settings = CallSettings(self.dtype, copies=False)
        other.inference = InferenceCall(other.settings)
        return other

    # ------------------------------------------------------------------------------------------------- vectors

    def compute(self, texts: list[Any], show: bool | None) -> Tensor:
        """``vectors`` with a report of their own; a single text takes a straight line."""
        if len(texts) == 1 and not self.deterministic and (output := self._one(texts)) is not None:
            return output if self.precision == "float32" else quantize(output, self.precision, self.ranges)
        with self.report(len(texts), show) as report:
            return self.vectors(texts, report)

    def _one(self, texts: list[Any]) -> Tensor | None:
        """The output of one text; None if its memory was refused or its values are not finite, which batches repair."""
        try:
            with evaluating(self.model):
                tokens = self.model.tokens(texts, self.prompt)
                if tokens.truncated[0] or tokens.unreadable[0]:
                    with self.report(1, show=False) as report:
                        report.record(tokens, _FIRST, _ONCE)
                        report.rows = 1
                batch = tokens.batch(_FIRST)
                batch = batch if self.device.type == "cpu" else batch.to(self.device)
                output = self.finish(self.inference.run(self.model, batch))
                if output.device != self.to:
                    output, wait = start_to_host(output)
                    wait()
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            return None
        # Modules may keep what they return, and pinned memory is scarce.
        return output.clone() if math.isfinite(output.sum().item()) else None

    def vectors(self, texts: list[Any], report: Report, saved: SavedRows | None = None) -> Tensor:
        """The outputs for texts or pairs, one row for each, all of them finite. Shape: (texts, dim or bytes)."""
        before = report.rows
        try:
            result = self._outputs(texts, report, saved)
            if not math.isfinite(result.sum().item()):  # The sum of large values may be infinite, too.
                self.repair(result, texts, report)
                what = "the score" if self.model.is_cross_encoder else "the vector"
                check_finite(result, before, f"{what} of {report.what}")
        except (RuntimeError, MemoryError) as error:
            if isinstance(error, TextTooLargeError) or not is_out_of_memory(error):
                raise
            raise torch.OutOfMemoryError(
                f"{report.what}[{before}:{before + len(texts)}] do not fit in memory ({one_line(error)}); encode fewer"
                " at a time, or write to a file with out="
            ) from error
        return result if self.precision == "float32" else quantize(result, self.precision, self.ranges)

    def each(self, runs: Iterable[list[Any]], report: Report, saved: SavedRows | None = None) -> Iterator[Tensor]:
        """The vectors of each list of texts, in order. A pool reads lists ahead, as many as its workers need."""
        for texts in runs:
            yield self.vectors(texts, report, saved)

    def _outputs(self, texts: list[Any], report: Report, saved: SavedRows | None = None) -> Tensor:
        if not texts:
            some = ("a", "a") if self.model.is_cross_encoder else "a"
            return self._outputs([some], Report.silent())[:0]
        different, first, inverse = unique(texts)
        counts = np.bincount(inverse)
        result, done = RowsOfTensor(len(texts), self.to), np.zeros(len(texts), bool)
        if saved is not None and (restored := saved.restore()):
            result.put(*restored)
            done[restored[0]] = True
            report.advance(int(counts[done[first]].sum()))
        for rows, vectors in self.batches(Distinct(different, first, counts, done[first]), report, self._forward):
            result.put(first[rows], vectors)
            report.advance(int(counts[rows].sum()))
            if saved is not None:
                saved.add(first[rows], vectors)
        report.rows += len(texts)
        complete = result.complete()
        again = np.flatnonzero(first[inverse] != np.arange(len(texts)))
        if len(again):
            source, target = (move(torch.from_numpy(rows), self.to) for rows in (first[inverse[again]], again))
            complete[target] = complete[source]
        return complete

    def repair(self, result: Tensor, texts: list[Any], report: Report) -> None:
        """Compute rows again that left the range of half precision."""
        rows = self.beyond_range(result, report)
        if len(rows):
            again = self.exact()._outputs([texts[row] for row in rows], Report.silent())
            result[torch.from_numpy(rows).to(self.to)] = again

    def beyond_range(self, outputs: Tensor, report: Report) -> Rows:
        """The rows that have left the range of half precision; the report counts them."""
        if self.settings.dtype == self.dtype:
            return np.zeros(0, np.int64)
        rows = not_finite(outputs)
        half, full = (str(dtype).partition(".")[2] for dtype in (self.settings.dtype, self.dtype))
        report.left_range(len(rows), half, full)
        return rows

    def _forward(self, batch: TokenBatch) -> Tensor:
        return self.finish(self.model(batch))

    def finish(self, output: Tensor) -> Tensor:
        """Rows of the result from an output of the model: truncated and normalized. Shape: (rows, dim)."""
        if not isinstance(output, Tensor):
            raise ValueError(
                "the modules give one vector per token and none per text; add a Pooling behind them, or pass"
                " output_value='token_embeddings'"
            )
        vectors = output.float()
        if self.truncate_dim is not None:
            vectors = truncate(vectors, self.truncate_dim)
        return directions(vectors) if self.normalize else vectors

    # ------------------------------------------------------------------------------------------------- batches

    def batches(self, given: Distinct, report: Report, forward: Forward) -> Iterator[tuple[Rows, Any]]:
        """Run batches of texts; yield the indices of each batch and its output.

        The next windows of texts are tokenized while the model runs.

        Args:
            given: The texts or pairs. Of a batch that is not left out, those whose output is known are computed again.
            report: Records progress, truncated texts and those that cannot be read.
            forward: The model, or some of its modules.
        """

        def name(row: int) -> str:
            return f"{report.what}[{report.rows + int(given.first[window.start + row])}]"

        runs = windows(len(given.texts), *default_windows(self.device))
        coming = (self.model.tokens(given.texts[run], self.prompt) for run in runs)
        forward = partial(self.inference.run, forward)
        with evaluating(self.model), closing(prefetch(coming, 2) if len(runs) > 1 else coming) as tokenized:
            for window, tokens in zip(runs, tokenized, strict=True):
                report.record(tokens, given.first[window], given.counts[window])
                for rows, output in self._run(Runner(forward, tokens, self.device, name), given.done[window]):
                    yield window.start + rows, output

    def _run(self, runner: Runner[Any], done: npt.NDArray[np.bool_]) -> Iterator[tuple[Rows, Any]]:
        if self.deterministic:
            from sbert.pipeline.deterministic import run_fixed

            return run_fixed(runner, done)
        # A maximum of the caller's own includes padding, which costs memory where there is any.
        padded = None if self._batch_tokens or self.device.type != "cpu" else self.batch_tokens * 5 // 4
        batches = plan(runner.tokens.lengths, self.batch_tokens, self.batch_size, padded)
        limit = self.model._memory_limits.setdefault(self.device, MemoryLimit())
        return runner.run([rows for rows in batches if not done[rows].all()], limit)

    # ----------------------------------------------------------------------------------------- token embeddings

    def compute_tokens(self, texts: list[str], show: bool | None, with_sentences: bool) -> list[Any]:
        """The vectors of the tokens of each text; with those of the texts as well, a dict of both for each text."""
        with self.report(len(texts), show) as report:
            rows = self.token_embeddings(texts, report)
        if not with_sentences:
            return rows
        both = zip(rows, self.vectors(texts, Report.silent()), strict=True)
        return [{"token_embeddings": tokens, "sentence_embedding": vector} for tokens, vector in both]

    def token_embeddings(self, texts: list[str], report: Report) -> list[Tensor]:
        """One float32 tensor (tokens, dim) per text, on the device of the model."""
        before = report.rows
        result = self._token_embeddings(texts, report)
        peaks = torch.stack([part.abs().amax() for part in result])[:, None] if result else torch.zeros(0, 1)
        rows = self.beyond_range(peaks, report)
        if len(rows):
            again = self.exact()._token_embeddings([texts[row] for row in rows], Report.silent())
            for row, part in zip(rows.tolist(), again, strict=True):
                result[row], peaks[row] = part, part.abs().amax()
        check_finite(peaks, before, f"a token's vector of {report.what}")
        return result

    def _token_embeddings(self, texts: list[str], report: Report) -> list[Tensor]:
        result: dict[int, Tensor] = {}
        modules = self._token_modules()

        def vectors(batch: TokenBatch) -> list[Tensor]:
            output = modules(batch)
            return [part.clone() for part in output.values.float().split(output.lengths.tolist())]

        for rows, parts in self.batches(Distinct.of_all(texts), report, vectors):
            result.update(zip(rows.tolist(), parts, strict=True))
            report.advance(len(rows))
        report.rows += len(texts)
        return [result[row] for row in range(len(texts))]

    def _token_modules(self) -> nn.Sequential:
        """The modules up to the last one that gives one vector per token."""
        each = enumerate(outputs(self.model, self.device), start=1)
        tokens = [number for number, output in each if isinstance(output, TokenEmbeddings)]
        if not tokens:
            raise ValueError(
                f"{type(self.model[0]).__name__} gives no vectors per token; use output_value='sentence_embedding'"
            )
        modules: nn.Sequential = self.model[: tokens[-1]]
        return modules
