"""Encoding by a pool: chunks of texts of similar length go to its workers, vectors and counts come back."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, as_completed
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sbert.inputs.arguments import check_positive, warn
from sbert.pipeline.batching import Distinct, Rows, plan, unique
from sbert.pipeline.encode import Encoding, SavedRows
from sbert.pipeline.progress import Report
from sbert.pipeline.run import RowsOfTensor

# Characters of a token in most languages, and batches of a chunk: an accelerator is done sooner with a batch.
_CHARACTERS, _BATCHES_ACCELERATOR = 4, 4
_TEXTS = 8192  # Of a chunk, at most.

# Arguments of ``Encoding`` behind the model.
Settings = tuple[tuple[Any, ...], dict[str, Any]]
# Rows of a window, and the outputs of them that a worker will give.
Sent = list[tuple[Rows, Future[Any]]]


def encode_chunk(
    model: Any,
    function: Callable[..., Any],
    settings: Settings,
    chunk: Distinct,
    reporting: tuple[int, Any, str, str | None],
) -> tuple[Any, Report, list[str]]:
    """What a worker does: outputs of some texts, what its report has counted, and warnings.

    Args:
        model: The worker's model.
        function: ``encode_rows`` or ``encode_tokens``.
        settings: For ``Encoding``.
        chunk: Different texts, whose first occurrences are counted from the start of the window.
        reporting: Number of rows before the window, the limit in tokens, the name of the rows, and the model's route.
    """
    before, limit, what, route = reporting
    model = model if route is None else model.route(route)
    if model.max_seq_length != limit:
        model.max_seq_length = limit
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        job = Encoding(model, *settings[0], **settings[1])
        report = job.report(None, show=False, what=what)
        report.rows = before
        result = function(job, chunk, report)
    # Tensors as arrays, which are written to the pipe as they are.
    result = [part.cpu().numpy() for part in result] if isinstance(result, list) else result.numpy()
    return result, report, [str(warning.message) for warning in caught]


def encode_rows(job: Encoding, chunk: Distinct, report: Report) -> Tensor:
    """Outputs of the texts of a chunk."""
    result = RowsOfTensor(len(chunk.texts), job.to)
    for rows, vectors in job.batches(chunk, report, job._forward):
        result.put(rows, vectors)
    outputs = result.complete()
    job.repair(outputs, chunk.texts, report)
    return outputs


def encode_tokens(job: Encoding, chunk: Distinct, report: Report) -> list[Tensor]:
    """One vector per token, for consecutive texts."""
    report.rows += int(chunk.first[0])
    return job.token_embeddings(chunk.texts, report)


class PooledEncoding(Encoding):
    """An encoding whose batches are computed by a pool, in chunks of texts of similar length.

    Args:
        pool: The pool; its model is that of this call.
        size: Number of texts per chunk. Default: about a batch.
        model: As in the class that is computed in the workers; with all other arguments.
    """

    def __init__(self, pool: Any, size: int | None, model: Any, *args: Any, **settings: Any) -> None:
        # The workers have the whole of a model with routes.
        given: tuple[Any, str | None] = getattr(model, "route_of", (model, None))
        whole, self._route = (model, None) if pool.model is model else given
        pool.check(whole)
        self._pool, self._size = pool, check_positive("chunk_size", size)
        super().__init__(model, *args, device=pool.devices[0], **settings)
        self._settings = args, {**settings, "on_device": False}
        self._warned: set[str] = set()
        self._sent: Sent | None = None  # The window that is computed next, if it was sent before.
        self._send_next: Callable[[], None] = lambda: None

    def _one(self, texts: list[Any]) -> None:
        """No text is computed in this process."""

    def repair(self, result: Tensor, texts: list[Any], report: Report) -> None:
        """Nothing is left to do: the workers have done it."""

    def each(self, runs: Iterable[list[Any]], report: Report, saved: SavedRows | None = None) -> Iterator[Tensor]:
        """The vectors of each list of texts, in order; the next list is sent while the workers are at work on one."""
        source, coming = iter(runs), deque[tuple[list[Any], Sent]]()
        failed: list[Exception] = []

        def send_next() -> None:
            try:
                texts = next(source, None)
            except Exception as error:
                failed.append(error)  # What was read before is encoded.
                return
            if texts is not None:
                different, first, inverse = unique(texts)
                given = Distinct(different, first, np.bincount(inverse), np.zeros(len(different), bool))
                coming.append((texts, self._send(given, report, report.rows + len(now or ()))))

        self._send_next, now = send_next, next(source, None)
        try:
            while now is not None:
                yield self.vectors(now, report, saved)
                now, self._sent = coming.popleft() if coming else (None, None)
        finally:
            self._cancel(*(sent for _, sent in coming))
        if failed:
            raise failed[0]

    def batches(self, given: Distinct, report: Report, forward: Any) -> Iterator[tuple[Rows, Any]]:  # noqa: ARG002
        """The rows of each chunk, and their outputs, in the order in which workers finish."""
        sent, self._sent = self._sent or self._send(given, report, report.rows), None
        rows_of = {future: rows for rows, future in sent}
        try:
            self._send_next()
            for future in as_completed(rows_of):
                yield rows_of[future], torch.from_numpy(self._receive(future, report)).to(self.to)
        finally:
            self._cancel(sent)

    def _send(self, given: Distinct, report: Report, before: int) -> Sent:
        """Send different texts to the workers, the longest first; ``before`` rows precede the window."""
        sizes = (len(text) if isinstance(text, str) else sum(map(len, text)) for text in given.texts)
        lengths = np.fromiter(sizes, np.int64, len(given.texts))
        batches = 1 if self.device.type == "cpu" else _BATCHES_ACCELERATOR
        share = int(lengths.sum()) // (2 * len(self._pool.devices))
        chunks = plan(lengths, max(1, min(_CHARACTERS * batches * self.batch_tokens, share)), self._size)
        chunks = [rows for rows in chunks if not given.done[rows].all()]
        return [(rows, self._submit(encode_rows, given, rows, report, before)) for rows in chunks]

    def _submit(self, function: Any, given: Distinct, rows: Rows, report: Report, before: int) -> Future[Any]:
        first = given.first[rows]
        what = f"{report.what}[{before + first.min()}:{before + first.max() + 1}]"
        texts = [_plain(given.texts[row]) for row in rows]
        chunk = Distinct(texts, first, given.counts[rows], np.zeros(len(rows), bool))
        reporting = before, report.limit, report.what, self._route
        order: Future[Any] = self._pool.submit(encode_chunk, (function, self._settings, chunk, reporting), what)
        return order

    def _cancel(self, *windows: Sent) -> None:
        self._pool.cancel(future for sent in windows for _, future in sent)

    def _receive(self, future: Future[Any], report: Report) -> Any:
        result, counted, messages = future.result()
        report.add(counted)
        for message in messages:
            if message not in self._warned:
                warn(message)
        self._warned.update(messages)
        return result

    def token_embeddings(self, texts: list[str], report: Report) -> list[Tensor]:
        """One float32 tensor (tokens, dim) per text, on the device of the model."""
        result: list[Tensor] = []
        given = Distinct.of_all(texts)
        size = self._size or max(1, min(_TEXTS, len(texts) // (2 * len(self._pool.devices))))
        chunks = [given.first[start : start + size] for start in range(0, len(texts), size)]
        sent = [(rows, self._submit(encode_tokens, given, rows, report, 0)) for rows in chunks]
        try:
            for rows, future in sent:
                result += [torch.from_numpy(part).to(self.model.device) for part in self._receive(future, report)]
                report.rows += len(rows)
                report.advance(len(rows))
        finally:
            self._cancel(sent)
        return result


def _plain(item: Any) -> Any:
    """A text or a pair, as ``str``: a class of the caller's own may be unknown to a worker."""
    return str.__str__(item) if isinstance(item, str) else tuple(map(str.__str__, item))
