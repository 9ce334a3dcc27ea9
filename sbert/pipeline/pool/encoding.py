"""Encoding by a pool: chunks of texts of similar length go to its workers, vectors and counts come back."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, as_completed
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sbert.inputs.arguments import check_positive, warn
from sbert.pipeline.batching import Rows, plan, unique
from sbert.pipeline.encode import Encoding, SavedRows
from sbert.pipeline.progress import Counts, Report
from sbert.pipeline.run import RowsOfTensor

# Characters of a token in most languages, and batches of a chunk: an accelerator is done sooner with a batch.
_CHARACTERS, _BATCHES_ACCELERATOR = 4, 4
_TEXTS = 8192  # Of a chunk, at most.
# Orders per worker that are handed out or done and not yet taken: a device may be that many times slower than another.
_AHEAD = 8

Sent = list[tuple[Rows, Future[Any]]]


def _plain(item: Any) -> Any:
    """A text or a pair, as ``str``: a class of the caller's own may be unknown to a worker."""
    return str.__str__(item) if isinstance(item, str) else tuple(map(str.__str__, item))


def encode_chunk(
    model: Any,
    method: Callable[..., Any],
    settings: tuple[tuple[Any, ...], dict[str, Any]],
    arguments: tuple[Any, ...],
    reporting: tuple[int, str, int | None, str],
) -> tuple[Any, Counts, list[str]]:
    """What a worker does: a result of an ``Encoding``, what its report has counted, and warnings.

    Args:
        model: The worker's model.
        method: A function of an ``Encoding``, of the arguments and of a report.
        settings: Arguments of ``Encoding`` behind the model.
        arguments: Arguments of the method.
        reporting: Number of rows before the window, ``on_truncate``, the limit in tokens, and the name of the rows.
    """
    before, on_truncate, limit, what = reporting
    if model.max_seq_length != limit:
        model.max_seq_length = limit
    report = Report(None, False, on_truncate, limit, what, rows=before)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = method(Encoding(model, *settings[0], **settings[1]), *arguments, report)
    # Tensors as arrays, which are written to the pipe as they are.
    result = [part.cpu().numpy() for part in result] if isinstance(result, list) else result.numpy()
    return result, report.counts(), [str(warning.message) for warning in caught]


def encode_rows(job: Encoding, texts: list[Any], first: Rows, counts: Rows, report: Report) -> Tensor:
    """Outputs of some of the different texts of a window; ``first`` and ``counts`` as in ``Encoding.batches``."""
    result: RowsOfTensor | None = None
    for rows, vectors in job.batches(texts, first, counts, report, job._forward):
        result = result or RowsOfTensor((len(texts), vectors.shape[1]), job.to)
        result.put(rows, vectors)
    outputs = result.complete() if result else torch.empty(0)
    beyond = job.beyond_range(outputs, report)
    if len(beyond):
        outputs[torch.from_numpy(beyond)] = job.exact()._outputs([texts[row] for row in beyond], Report.silent())
    return outputs


class PooledEncoding(Encoding):
    """An encoding whose batches are computed by a pool, in chunks of texts of similar length.

    Args:
        pool: The pool; its model is that of this call.
        size: Number of texts per chunk. Default: about a batch.
        model: As in the class that is computed in the workers; with all other arguments.
    """

    def __init__(self, pool: Any, size: int | None, model: Any, *args: Any, **settings: Any) -> None:
        pool.check(model)
        self._pool, self._size = pool, check_positive("chunk_size", size)
        super().__init__(model, *args, **settings)
        self.to = model.device if settings.get("on_device") else torch.device("cpu")
        self._settings = args, {**settings, "on_device": False}
        self._warned: set[str] = set()
        self._sent: Sent | None = None  # The window that is computed next, if it was sent before.
        self._send_ahead: Callable[[], None] = lambda: None

    @property
    def device(self) -> torch.device:
        """Device that decides about batches and arithmetic: of the workers, not of the caller's model."""
        device: torch.device = self._pool.devices[0]
        return device

    @device.setter
    def device(self, device: torch.device) -> None:
        pass

    def _one(self, texts: list[Any]) -> None:
        """No text is computed in this process."""

    def beyond_range(self, outputs: Tensor, report: Report) -> Rows:  # noqa: ARG002
        """None: workers have computed them again."""
        return np.zeros(0, np.int64)

    def each(self, runs: Iterable[list[Any]], report: Report, saved: SavedRows | None = None) -> Iterator[Tensor]:
        """The vectors of each list of texts, in order; the workers are at work on later lists meanwhile."""
        failed: list[Exception] = []
        coming: deque[tuple[list[Any], Sent]] = deque()

        def read() -> Iterator[list[Any]]:
            try:
                yield from runs
            except Exception as error:
                failed.append(error)  # What was read before is encoded.

        def send_ahead() -> None:
            rows = report.rows + len(now or ()) + sum(len(texts) for texts, _ in coming)
            while self._pool.pending < _AHEAD * len(self._pool.devices) and (texts := next(source, None)) is not None:
                different, first, inverse = unique(texts)
                counts = np.bincount(inverse, minlength=len(different))
                coming.append((texts, self._send(different, first, counts, report, rows)))
                rows += len(texts)

        source, self._send_ahead = read(), send_ahead
        now = next(source, None)
        try:
            while now is not None:
                yield self.vectors(now, report, saved)
                now, self._sent = coming.popleft() if coming else (next(source, None), None)
        finally:
            for _, sent in coming:
                self._pool.cancel(future for _, future in sent)
        if failed:
            raise failed[0]

    def batches(
        self,
        texts: list[Any],
        first: Rows,
        counts: Rows,
        report: Report,
        forward: Any,  # noqa: ARG002
        done: npt.NDArray[np.bool_] | None = None,
    ) -> Iterator[tuple[Rows, Any]]:
        """The rows of each chunk, and their outputs, in the order in which workers finish."""
        sent, self._sent = self._sent or self._send(texts, first, counts, report, report.rows, done), None
        rows_of = {future: rows for rows, future in sent}
        try:
            self._send_ahead()
            for future in as_completed(rows_of):
                yield rows_of[future], torch.from_numpy(self._receive(future, report)).to(self.to)
                self._send_ahead()
        finally:
            self._pool.cancel(rows_of)

    def _send(
        self,
        texts: list[Any],
        first: Rows,
        counts: Rows,
        report: Report,
        before: int,
        done: npt.NDArray[np.bool_] | None = None,
    ) -> Sent:
        """Send different texts to the workers, the longest first."""
        lengths = np.array([len(text) if isinstance(text, str) else sum(map(len, text)) for text in texts], np.int64)
        batches = 1 if self.device.type == "cpu" else _BATCHES_ACCELERATOR
        share = int(lengths.sum()) // (2 * len(self._pool.devices))
        chunks = plan(lengths, max(1, min(_CHARACTERS * batches * self.batch_tokens, share)), self._size)
        return [
            (rows, self._submit(encode_rows, texts, rows, report, before, first[rows], counts[rows]))
            for rows in chunks
            if done is None or not done[rows].all()
        ]

    def _submit(
        self, method: Callable[..., Any], texts: list[Any], rows: Rows, report: Report, before: int, *more: Rows
    ) -> Future[Any]:
        """Send some texts; ``more`` are their indices in the window, if others are left out, and their counts."""
        places = more[0] if more else rows
        what = f"{report.what}[{before + int(places.min())}:{before + int(places.max()) + 1}]"
        start = before if more else before + int(rows[0])
        reporting = start, report.on_truncate, report.limit, report.what
        arguments = [_plain(texts[row]) for row in rows], *more
        order: Future[Any] = self._pool.submit(encode_chunk, (method, self._settings, arguments, reporting), what)
        return order

    def _receive(self, future: Future[Any], report: Report) -> Any:
        result, counts, messages = future.result()
        report.add(counts)
        for message in messages:
            if message not in self._warned:
                warn(message)
        self._warned.update(messages)
        return result

    def token_embeddings(self, texts: list[str], report: Report) -> list[Tensor]:
        """One float32 tensor (tokens, dim) per text, on the device of the model."""
        result: list[Tensor] = []
        size = self._size or max(1, min(_TEXTS, len(texts) // (2 * len(self._pool.devices))))
        chunks = [np.arange(start, min(len(texts), start + size)) for start in range(0, len(texts), size)]
        futures = [self._submit(Encoding.token_embeddings, texts, rows, report, 0) for rows in chunks]
        try:
            for rows, future in zip(chunks, futures, strict=True):
                parts = self._receive(future, report)
                result += [torch.from_numpy(part).to(self.model.device) for part in parts]
                report.rows += len(rows)
                report.done(len(rows))
        finally:
            self._pool.cancel(futures)
        return result
