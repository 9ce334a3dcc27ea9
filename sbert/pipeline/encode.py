"""Encoding: deduplicate texts or pairs, tokenize them, form batches, run the model, collect its outputs in order."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from itertools import accumulate
from typing import Any, ClassVar, Literal, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from sbert.backends import Inference
from sbert.batch import Ragged, TokenBatch, TokenEmbeddings, start_to_host
from sbert.functional import directions, truncate
from sbert.inputs.arguments import check_positive
from sbert.inputs.devices import default_batch_tokens, default_windows, inference_dtype
from sbert.inputs.texts import Pair
from sbert.pipeline.batching import Rows, plan, unique, windows
from sbert.pipeline.eval_mode import evaluating
from sbert.pipeline.outputs import RowsOfTensor
from sbert.pipeline.progress import Report, check_finite, not_finite
from sbert.pipeline.quantization import check_coding, quantize
from sbert.pipeline.run import TextTooLargeError, ahead, room_of, run
from sbert.pipeline.tokenize import Tokens, tokenize
from sbert.storage.files import is_out_of_memory, one_line

_FIRST, _ONCE = np.zeros(1, np.int64), np.ones(1, np.int64)


def outputs(model: nn.Sequential, device: torch.device) -> list[Any]:
    """Output of each module for one text: the only way to know it for modules of the caller's own."""
    reader: Any = model[0]
    batch = tokenize(reader, ["a"]).batch(np.arange(1)).to(device)
    with evaluating(model):
        return list(accumulate(model, lambda output, module: module(output), initial=batch))[1:]


def output_dims(model: nn.Sequential, device: torch.device) -> list[int]:
    """Dimension of the output of each module."""
    return [(made.values if isinstance(made, Ragged) else made).shape[-1] for made in outputs(model, device)]


def _record(tokens: Tokens, first: Rows, counts: Rows, report: Report) -> None:
    """Report truncated texts and unknown tokens; ``first`` and ``counts`` as in ``batches``, of these texts."""
    if tokens.truncated.any():
        report.truncated_rows(first[tokens.truncated], int(counts[tokens.truncated].sum()))
    report.unknown += tokens.unknown


def _is_finite(vectors: Tensor) -> bool:
    # For one vector, a sum takes the least; that of large values may be infinite.
    small = len(vectors) == 1 and vectors.device.type == "cpu"
    return (small and math.isfinite(vectors.sum().item())) or not len(not_finite(vectors))


@contextmanager
def _naming(rows: str) -> Iterator[None]:
    """Say which rows were in work where memory is full, unless the error names a text."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if isinstance(error, TextTooLargeError) or not is_out_of_memory(error):
            raise
        raise torch.OutOfMemoryError(
            f"{rows} do not fit in memory ({one_line(error)}); encode fewer at a time, or write to a file with out="
        ) from error


AnyEncoding = TypeVar("AnyEncoding", bound="Encoding")


class SavedRows(Protocol):
    """Keeps rows of a list of texts while the others are computed, for a call that goes on after it was killed."""

    def restore(self) -> tuple[Rows, Tensor] | None:
        """The rows that a call before has kept of the list that is computed now, and their outputs."""

    def add(self, rows: Rows, outputs: Tensor) -> None:
        """Keep some rows. Shape: (n,), (n, dim)."""


class Encoding:
    """One call of ``encode`` or ``predict``: a model and validated settings.

    Args:
        model: A model whose method ``tokens`` tokenizes texts, or pairs of texts.
        batch_tokens: Maximum number of tokens per batch; "auto" for what ``auto_batch`` measures. Default: that of the
            device.
        batch_size: Number of texts per batch, instead of a maximum of tokens.
        on_device: Whether the outputs stay on the device of the model.
        inference: How transformers run. Default: in the dtype of their weights.
        deterministic: Whether outputs have the same bits whatever else is in the call.
    """

    what: ClassVar[str] = "the score"
    probe: ClassVar[str | Pair] = ("a", "a")  # An input to find out the dimension of the outputs.
    _early: tuple[list[Any], Future[Tokens]] | None = None  # Texts that are tokenized before their window is encoded.

    def __init__(
        self,
        model: Any,
        batch_tokens: int | Literal["auto"] | None = None,
        batch_size: int | None = None,
        on_device: bool = False,
        inference: Inference | None = None,
        deterministic: bool = False,
    ) -> None:
        if batch_size is not None and batch_tokens is not None:
            raise ValueError("batch_size and batch_tokens both set the size of a batch; pass one of them")
        self.model: Any = model
        self.device: torch.device = model.device
        self.dtype: torch.dtype = model.dtype
        self.to: torch.device = self.device if on_device else torch.device("cpu")
        self._batch_tokens = batch_tokens if batch_tokens == "auto" else check_positive("batch_tokens", batch_tokens)
        self.batch_size: int | None = check_positive("batch_size", batch_size)
        self.deterministic: bool = deterministic
        self.inference: Inference = inference or self._inference(self.dtype)

    @property
    def batch_tokens(self) -> int:
        """Maximum number of tokens per batch."""
        if self._batch_tokens == "auto":
            from sbert.pipeline.auto_batch import measured

            return measured(self)
        return self._batch_tokens or default_batch_tokens(self.device)

    def _inference(self, dtype: torch.dtype, compiling: Any = None, copies: bool = True) -> Inference:
        if self.deterministic:
            from sbert.pipeline.deterministic import Deterministic

            return Deterministic(dtype)
        return Inference(dtype, compiling, copies)

    def tokens(self, texts: list[Any]) -> Tokens:
        """Tokens of texts or pairs."""
        tokens: Tokens = self.model.tokens(texts)
        return tokens

    def finish(self, output: Tensor) -> Tensor:
        """Rows of the result from an output of the model. Shape: (rows, dim)."""
        return output.float()

    def vectors(self, texts: list[Any], report: Report, saved: SavedRows | None = None) -> Tensor:
        """The outputs for texts or pairs, one row for each, all of them finite. Shape: (texts, dim)."""
        before = report.rows
        with _naming(f"{report.what}[{before}:{before + len(texts)}]"):
            found = self._computed(texts, report, saved)
            if _is_finite(found):
                return found
            rows = self.beyond_range(found, report)
            if len(rows):
                quiet = Report(len(rows), False, "ignore", None)
                found[torch.from_numpy(rows).to(self.to)] = self.exact()._outputs([texts[row] for row in rows], quiet)
            check_finite(found, before, f"{self.what} of {report.what}")
            return found

    def _computed(self, texts: list[Any], report: Report, saved: SavedRows | None) -> Tensor:
        if len(texts) == 1 and not self.deterministic:
            recorded = report.truncated, report.unknown
            try:
                return self._one(texts, report)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
            report.truncated, report.unknown = recorded  # Once more, after the memory was given back.
        return self._outputs(texts, report, saved)

    def _one(self, texts: list[Any], report: Report) -> Tensor:
        """``_outputs`` of one text: without the steps that form batches and put rows in order, which a query feels."""
        with evaluating(self.model):
            tokens = self.tokens(texts)
            _record(tokens, _FIRST, _ONCE, report)
            output = self.inference.running(self.model)(tokens.batch(_FIRST).to(self.device))
            found = self.finish(output)
            if found.device != self.to:
                found, wait = start_to_host(found)
                wait()
        report.rows += 1
        report.done(1)
        return found.clone()  # Modules may keep what they return, and pinned memory is scarce.

    def _outputs(self, texts: list[Any], report: Report, saved: SavedRows | None = None) -> Tensor:
        different, first, inverse = unique(texts)
        counts = np.bincount(inverse, minlength=len(different))
        result: RowsOfTensor | None = None
        done = np.zeros(len(texts), bool)
        if saved is not None and (restored := saved.restore()):
            done[restored[0]] = True
            result = RowsOfTensor((len(texts), restored[1].shape[1]), self.to)
            result.put(*restored)
            report.done(int(counts[done[first]].sum()))
        for rows, vectors in self.batches(different, first, counts, report, self.rows_of, done[first]):
            if result is None:
                result = RowsOfTensor((len(texts), vectors.shape[1]), self.to)
            result.put(first[rows], vectors)
            report.done(int(counts[rows].sum()))
            if saved is not None:
                saved.add(first[rows], vectors)
        report.rows += len(texts)
        if result is None:  # There are no texts.
            return self._outputs([self.probe], Report(1, False, "ignore", None))[:0]
        complete = result.complete()
        again = np.flatnonzero(first[inverse] != np.arange(len(texts)))
        if len(again):
            source = torch.from_numpy(first[inverse[again]]).to(self.to)
            complete[torch.from_numpy(again).to(self.to)] = complete[source]
        return complete

    def rows_of(self, batch: TokenBatch) -> Tensor:
        """Rows of the result for a batch. Shape: (rows, dim)."""
        return self.finish(self.model(batch))

    def beyond_range(self, outputs: Tensor, report: Report) -> Rows:
        """The rows that have left the range of half precision; the report counts them."""
        if self.inference.dtype == self.dtype:
            return np.zeros(0, np.int64)
        rows = not_finite(outputs)
        half, full = (str(dtype).partition(".")[2] for dtype in (self.inference.dtype, self.dtype))
        report.left_range(len(rows), half, full)
        return rows

    def exact(self: AnyEncoding) -> AnyEncoding:
        """The same call, which computes in the dtype of the weights, and leaves the copies of lower precision."""
        made = copy.copy(self)
        made.inference = self._inference(self.dtype, copies=False)
        return made

    def batches(
        self,
        texts: list[Any],
        first: Rows,
        counts: Rows,
        report: Report,
        forward: Callable[[TokenBatch], Any],
        done: npt.NDArray[np.bool_] | None = None,
    ) -> Iterator[tuple[Rows, Any]]:
        """Run batches of texts; yield the indices of each batch and its output.

        The next windows of texts are tokenized while the model runs.

        Args:
            texts: The texts or pairs.
            first: Index of the first occurrence of each, for the report.
            counts: Number of occurrences of each, for the report.
            report: Records progress, truncated texts and unknown tokens.
            forward: The model, or some of its modules.
            done: The texts whose output is known: batches of nothing else are left out, and the others are as without.
        """

        def name(row: int) -> str:
            return f"{report.what}[{report.rows + int(first[window.start + row])}]"

        runs = windows(len(texts), *default_windows(self.device))
        coming = (self._tokenized(texts[run]) for run in runs)
        forward = self.inference.running(forward)
        with evaluating(self.model), closing(ahead(coming, 2) if len(runs) > 1 else coming) as tokenized:
            for window, tokens in zip(runs, tokenized, strict=True):
                _record(tokens, first[window], counts[window], report)
                for rows, output in self._run(forward, tokens, name, None if done is None else done[window]):
                    yield window.start + rows, output

    def _tokenized(self, texts: list[Any]) -> Tokens:
        early, self._early = self._early, None
        return early[1].result() if early is not None and early[0] == texts else self.tokens(texts)

    def each(self, runs: Iterable[list[Any]], report: Report, saved: SavedRows | None = None) -> Iterator[Tensor]:
        """The vectors of each list of texts, in order. A pool reads lists ahead, as many as its workers need.

        The next list is read before the vectors of one are computed, so that its first texts are tokenized meanwhile.
        """
        reading, failed = iter(runs), None
        texts = next(reading, None)
        with ThreadPoolExecutor(1, "sbert-ahead") as thread:
            while texts is not None:
                coming, early = None, None
                try:
                    coming = next(reading, None)
                except Exception as error:
                    failed = error  # What was read before is encoded.
                if coming is not None:
                    first = unique(coming)[0]
                    first = first[windows(len(first), *default_windows(self.device))[0]]
                    early = first, thread.submit(self.tokens, first)
                yield self.vectors(texts, report, saved)
                texts, self._early = coming, early
        if failed is not None:
            raise failed

    def _run(
        self,
        forward: Callable[[TokenBatch], Any],
        tokens: Tokens,
        name: Callable[[int], str],
        done: npt.NDArray[np.bool_] | None,
    ) -> Iterator[tuple[Rows, Any]]:
        if self.deterministic:
            from sbert.pipeline.deterministic import run_fixed

            return run_fixed(forward, tokens, self.device, name, done)
        batches = plan(tokens.lengths, self.batch_tokens, self.batch_size)
        if done is not None and done.any():
            batches = [rows for rows in batches if not done[rows].all()]
        return run(forward, tokens, batches, self.device, room_of(self.model, self.device), name)


class SentenceEncoding(Encoding):
    """One call of ``SentenceEncoder.encode``.

    Args:
        model: The model, a chain of modules.
        prompt: Text prepended to each text.
        truncate_dim: Dimension to which vectors are truncated.
        normalize: Whether vectors are scaled to length 1.
        precision: Precision of the vectors.
        ranges: Ranges of the precision int8.
        plain: Whether to compute in the dtype of the weights, and without ``torch.compile``.
        deterministic: Whether outputs have the same bits whatever else is in the call.
    """

    what: ClassVar[str] = "the vector"
    probe: ClassVar[str | Pair] = "a"

    def __init__(
        self,
        model: Any,
        prompt: str = "",
        batch_tokens: int | Literal["auto"] | None = None,
        batch_size: int | None = None,
        *,
        truncate_dim: int | None = None,
        normalize: bool = False,
        precision: str = "float32",
        ranges: npt.ArrayLike | None = None,
        on_device: bool = False,
        plain: bool = False,
        deterministic: bool = False,
    ) -> None:
        check_coding(precision, ranges)
        super().__init__(model, batch_tokens, batch_size, on_device, deterministic=deterministic)
        if not plain:
            dtype, _ = inference_dtype(self.dtype, model.automatic_dtype, self.device)
            self.inference: Inference = self._inference(dtype, model._compiling)
        self.prompt: str = prompt
        self.truncate_dim: int | None = truncate_dim
        self.normalize: bool = normalize
        self.precision: str = precision
        self.ranges: npt.ArrayLike | None = ranges

    def tokens(self, texts: list[str]) -> Tokens:
        """Tokens of texts behind the prompt."""
        tokens: Tokens = self.model.tokens(texts, self.prompt)
        return tokens

    def finish(self, output: Tensor) -> Tensor:
        """Vectors, truncated and normalized. Shape: (rows, dim)."""
        vectors = truncate(output.float(), self.truncate_dim)
        return directions(vectors) if self.normalize else vectors

    def vectors(self, texts: list[str], report: Report, saved: SavedRows | None = None) -> Tensor:
        """Vectors of texts. Shape: (texts, dim), or (texts, bytes) for bit precisions."""
        return quantize(super().vectors(texts, report, saved), self.precision, self.ranges)

    def token_embeddings(self, texts: list[str], report: Report) -> list[Tensor]:
        """One float32 tensor (tokens, dim) per text, on the device of the model."""
        before = report.rows
        found = self._token_embeddings(texts, report)
        peaks = torch.stack([part.abs().amax() for part in found])[:, None] if found else torch.zeros(0, 1)
        rows = self.beyond_range(peaks, report)
        if len(rows):
            again = self.exact()._token_embeddings(
                [texts[row] for row in rows], Report(len(rows), False, "ignore", None)
            )
            for row, part in zip(rows.tolist(), again, strict=True):
                found[row], peaks[row] = part, part.abs().amax()
        check_finite(peaks, before, f"a token's vector of {report.what}")
        return found

    def _token_embeddings(self, texts: list[str], report: Report) -> list[Tensor]:
        result: dict[int, Tensor] = {}
        each, once = np.arange(len(texts)), np.ones(len(texts), int)
        modules = self._token_modules()

        def vectors(batch: TokenBatch) -> list[Tensor]:
            output = modules(batch)
            return [part.clone() for part in output.values.float().split(output.lengths.tolist())]

        for rows, parts in self.batches(texts, each, once, report, vectors):
            result.update(zip(rows.tolist(), parts, strict=True))
            report.done(len(rows))
        report.rows += len(texts)
        return [result[row] for row in range(len(texts))]

    def _token_modules(self) -> nn.Sequential:
        """The modules up to the last one that gives one vector per token."""
        made = outputs(self.model, self.device)
        tokens = [number for number, value in enumerate(made, start=1) if isinstance(value, TokenEmbeddings)]
        if not tokens:
            raise ValueError(
                f"{type(self.model[0]).__name__} gives no vectors per token; use output_value='sentence_embedding'"
            )
        modules: nn.Sequential = self.model[: tokens[-1]]
        return modules
