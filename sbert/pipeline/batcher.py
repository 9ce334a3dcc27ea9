"""Many callers, one model: requests of threads and coroutines that come at the same time join into one batch."""

from __future__ import annotations

import atexit
import copy
import threading
import time
import weakref
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future, InvalidStateError
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, chain
from typing import Any, cast

import numpy as np
import torch

from sbert.inputs.arguments import check_count, check_number, check_positive
from sbert.inputs.devices import default_batch_tokens
from sbert.inputs.texts import rows_of
from sbert.pipeline.progress import RowError
from sbert.pipeline.results import Encoded, Sentences, as_encode
from sbert.storage.processes import in_child

# What belongs to a call of its own, or is not of vectors in memory.
_REFUSED = {"chunk_size", "device", "out", "overwrite", "pool", "shard", "show_progress_bar"}
# Recent batches that metrics are of.
_WINDOW = 2048
# Parts of a batch that requests take in turn: so many large ones share each batch.
_TURNS = 8
# How long a batch waits at most for the callers of the last one: seconds, and a share of the time that it took.
_MOMENT, _SHARE = 0.005, 0.15
# Threads cannot wait for any number of seconds.
_HOUR = 3600.0
# English words have about four characters per token, other scripts about one.
_CHARACTERS_PER_TOKEN = 4


class QueueFullError(RuntimeError):
    """As many requests wait as the batcher allows."""


class ClosedError(RuntimeError):
    """The batcher is closed, or was closed while the request waited."""


@dataclass(frozen=True)
class Metrics:
    """What a batcher does.

    Args:
        waiting: Number of requests that wait; those in the batch that runs do not.
        requests: Number of requests that have ended, with vectors or an error, since the start.
        refused: Number of requests that found the queue full.
        batches: Number of batches since the start.
        texts_per_batch: Mean of the last 2,048 batches.
    """

    waiting: int
    requests: int
    refused: int
    batches: int
    texts_per_batch: float


class Batcher(AbstractContextManager["Batcher"]):
    """Joins the requests of many threads and coroutines into batches for one model; see ``SentenceEncoder.batcher``.

    A thread computes one batch after the other, each of what has arrived while the one before it was computed. So an
    idle model begins immediately, a busy one reads many texts at a time. Requests with the same options share a batch.
    Those of many texts are computed in parts, so that single sentences do not wait for them. The vectors are those of
    ``encode``, as are the errors, each raised to the caller whose text or option it is. Warnings are those of a batch.

    The thread starts with the first request. It ends with ``close()``, at the end of a ``with`` block, and when the
    batcher is deleted. A forked child has a queue and a thread of its own.

    Args:
        model: The model.
        max_wait: Seconds that a request may wait for others while the model is idle. Default: 0.15 of the time of the
            last batch, at most 5 ms, and only until as many requests have come as it answered: callers come back.
        max_tokens: Number of tokens from which a batch takes no further texts, estimated from the characters. Default:
            a quarter of the ``batch_tokens`` of the device.
        max_queue: Number of requests that may wait.

    Raises:
        ValueError: If a number is too small.

    Example:
        >>> from concurrent.futures import ThreadPoolExecutor
        >>> from sbert import SentenceEncoder
        >>> model = SentenceEncoder()
        >>> with model.batcher() as batcher, ThreadPoolExecutor(32) as threads:
        ...     vectors = list(threads.map(batcher.encode, ["One.", "Two.", "Three."] * 20))
        >>> len(vectors), vectors[0].shape, batcher.metrics.requests
        (60, (256,), 60)
    """

    def __init__(
        self, model: Any, *, max_wait: float | None = None, max_tokens: int | None = None, max_queue: int = 1024
    ) -> None:
        if max_wait is not None and check_number("max_wait", max_wait) < 0:
            raise ValueError(f"max_wait={max_wait} is negative; pass seconds, or 0 to begin immediately")
        tokens = check_positive("max_tokens", max_tokens) or default_batch_tokens(model.device) // 4
        self.model = model
        self._queue = RequestQueue(model.encode, max_wait, tokens, check_count("max_queue", max_queue))
        # The thread of a batcher that is deleted ends as well, but nothing waits for that.
        weakref.finalize(self, self._queue.close, finish=False, join=False).atexit = False

    def submit(self, sentences: Sentences, **options: Any) -> Future[Any]:
        """A future of ``encode``. Cancelled before its batch runs, it costs nothing.

        A coroutine waits for it with ``await asyncio.wrap_future(future)``, which blocks neither the event loop nor a
        thread.

        Example:
            >>> from sbert import SentenceEncoder
            >>> model = SentenceEncoder()
            >>> with model.batcher() as batcher:
            ...     future = batcher.submit(["One.", "Two."], normalize_embeddings=True)
            ...     future.result(timeout=60).shape
            (2, 256)
        """
        refused = sorted(set(options) & _REFUSED)
        if refused:
            raise TypeError(f"a batcher takes no {refused[0]}=; pass it to encode of the model")
        request = Request(list(rows_of(sentences)), isinstance(sentences, str), options, self.model.max_seq_length)
        self._queue.submit(request)
        return request.future

    @as_encode
    def encode(self, sentences: Sentences, **options: Any) -> Encoded:
        """Encode sentences in the next batch that has room, and wait for the vectors.

        Args:
            sentences: As in ``SentenceEncoder.encode``.
            options: Its other arguments, but none of ``device``, ``out``, ``pool`` and those that belong to them.

        Raises:
            QueueFullError: Immediately, if ``max_queue`` requests wait.
            ClosedError: If the batcher is closed.
            TypeError: As ``encode`` of the model.
            ValueError: As ``encode`` of the model.
        """
        future = self.submit(sentences, **options)
        try:
            return cast("Encoded", future.result())
        finally:
            future.cancel()  # Without effect, unless the caller was interrupted.
            del future  # An error in it refers to this frame.

    @property
    def metrics(self) -> Metrics:
        """What the batcher has done so far."""
        return self._queue.metrics()

    def close(self, *, finish: bool = True) -> None:
        """Take no further requests, and wait for the thread to end. In a coroutine: ``asyncio.to_thread(x.close)``.

        Args:
            finish: Whether to compute the requests that wait; if not, they get a ``ClosedError``.
        """
        self._queue.close(finish)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(finish=kind is None)


# ------------------------------------------------------------------------------------------------------- the queue


class Request:
    """The texts of one caller, of which batches take a part each, and the future that receives the vectors."""

    def __init__(self, texts: list[str], single: bool, options: dict[str, Any], limit: int | None) -> None:
        self.texts, self.single, self.options = texts, single, options
        self.future: Future[Any] = Future()
        try:
            self.key: Hashable = frozenset(options.items())
        except TypeError:  # An array among the options: it shares its batches with no other request.
            self.key = object()
        # How many tokens there are before each text, and in all. Of a long text the model reads up to its limit.
        costs = (2 + (len(text) // _CHARACTERS_PER_TOKEN if text.isascii() else len(text)) for text in texts)
        self.before = list(accumulate((min(cost, limit or cost) for cost in costs), initial=0))
        self.taken = 0  # Number of texts that batches have taken.
        self.parts: list[Any] = []
        self.arrived = time.perf_counter()

    def take(self, tokens: int) -> int:
        """Take the next texts, about as many tokens as given and at least one text; return their number of tokens."""
        start = self.taken
        last = bisect_right(self.before, self.before[start] + tokens) - 1
        self.taken = min(len(self.texts), max(start + 1, last))
        return self.before[self.taken] - self.before[start]

    def end(self, error: BaseException | None = None) -> None:
        """Set the future to the vectors in the form of ``encode``, or to an error."""
        with suppress(InvalidStateError):  # It was cancelled.
            if error is not None:
                self.future.set_exception(error)
            else:
                self.future.set_result(self.parts[0][0] if self.single else _join(self.parts))


_Slice = tuple[Request, int, int]  # Texts of a request, from one index to another.


class RequestQueue:
    """Requests that wait, and the thread that computes batches of them; neither keeps the batcher alive.

    Args:
        encode: What computes a batch: a function of a list of texts and of options.
        max_wait: As in ``Batcher``. By default, the thread waits for the callers that received the last vectors; else
            two halves of the callers would alternate for good.
        max_tokens: Number of tokens from which a batch takes no further texts.
        max_queue: Number of requests that may wait.
    """

    def __init__(self, encode: Callable[..., Any], max_wait: float | None, max_tokens: int, max_queue: int) -> None:
        self.encode, self.max_wait, self.max_tokens, self.max_queue = encode, max_wait, max_tokens, max_queue
        self.batches: deque[int] = deque(maxlen=_WINDOW)  # Number of texts of each.
        self.counts = {"requests": 0, "refused": 0, "batches": 0}
        self.closed = False
        self.reset()
        _queues.add(self)

    def reset(self) -> None:
        """An empty queue and no thread: at first, and in a forked child, where the thread does not exist."""
        self.changed = threading.Condition()
        self.requests: deque[Request] = deque()
        self.expected, self.until = 0, 0.0  # How many requests the thread waits for, and until when.
        self.thread: threading.Thread | None = None

    def metrics(self) -> Metrics:
        """What ``Batcher.metrics`` says."""
        with self.changed:
            self.drop_cancelled()
            texts_per_batch = sum(self.batches) / max(1, len(self.batches))
            return Metrics(waiting=len(self.requests), texts_per_batch=texts_per_batch, **self.counts)

    def drop_cancelled(self) -> None:
        """Remove requests that were cancelled, or of which a part has failed."""
        for request in [request for request in self.requests if request.future.done()]:
            self.requests.remove(request)
            if request.future.cancelled():
                request.future.set_running_or_notify_cancel()  # For those who wait for several futures.

    def submit(self, request: Request) -> None:
        """Add a request to the queue."""
        with self.changed:
            if self.closed:
                raise ClosedError("the batcher is closed; make another one with model.batcher()")
            if len(self.requests) >= self.max_queue:
                self.drop_cancelled()
            if len(self.requests) >= self.max_queue:
                self.counts["refused"] += 1
                raise QueueFullError(
                    f"{len(self.requests)} requests wait, as many as max_queue={self.max_queue} allows; send this one"
                    " again later, or pass a larger max_queue"
                )
            self.requests.append(request)
            if len(self.requests) == 1 and self.max_wait is not None:
                self.expected, self.until = self.max_queue + 1, request.arrived + self.max_wait
            if self.thread is None:
                self.thread = threading.Thread(target=self.work, name="sbert-batcher", daemon=True)
                self.thread.start()
            self.changed.notify()

    def close(self, finish: bool, join: bool = True, error: BaseException | None = None) -> None:
        """End the thread, after what waits or after the batch that runs; what still waits then gets the error."""
        error = error or ClosedError("the batcher was closed before this request was computed; send it to another one")
        with self.changed:
            self.closed = True
            while self.requests and not finish:
                self.requests.popleft().end(error)
            self.changed.notify()
        if join and self.thread not in (None, threading.current_thread()):
            self.thread.join()

    def work(self) -> None:
        """Compute batches until the batcher is closed."""
        batch: list[_Slice] = []
        try:
            while batch := self.next_batch():
                self.run(batch)
                batch = []  # The thread may now wait for long, and holds no texts meanwhile.
        except BaseException as error:  # No caller may wait for good.
            for request, _, _ in batch:
                request.end(error)
            self.close(finish=False, join=False, error=error)

    def next_batch(self) -> list[_Slice]:
        """Wait for requests and take the next batch of them; none if the batcher is closed and no request waits."""
        with self.changed:
            while self.requests or not self.closed:
                left = self.seconds_to_wait() if self.requests else _HOUR
                if left > 0:
                    self.changed.wait(min(left, _HOUR))
                elif batch := self.take():
                    return batch
        return []

    def seconds_to_wait(self) -> float:
        """How long the first request may still wait for others."""
        tokens = sum(request.before[-1] - request.before[request.taken] for request in self.requests)
        enough = self.closed or tokens >= self.max_tokens or len(self.requests) >= self.expected
        return 0 if enough else self.until - time.perf_counter()

    def take(self) -> list[_Slice]:
        """The next batch: requests of the first one's options take parts of it alternately, and go on after others."""
        self.drop_cancelled()
        turns = deque(request for request in self.requests if request.key == self.requests[0].key)
        starts: dict[Request, int] = {}
        left = self.max_tokens
        while turns and left > 0:
            request = turns.popleft()
            starts.setdefault(request, request.taken)
            left -= request.take(min(left, max(1, self.max_tokens // _TURNS)))
            self.requests.remove(request)
            if request.taken < len(request.texts):
                self.requests.append(request)
                turns.append(request)
        return [(request, start, request.taken) for request, start in starts.items()]

    def run(self, batch: list[_Slice]) -> None:
        """Compute a batch; end the requests that are complete, after they were counted."""
        start = time.perf_counter()
        failed = self.compute(batch)
        now = time.perf_counter()
        ended = [request for request, _, stop in batch if request in failed or stop == len(request.texts)]
        with self.changed:
            if self.max_wait is None:
                self.expected, self.until = len(self.requests) + len(ended), now + min(_MOMENT, _SHARE * (now - start))
            self.batches.append(sum(stop - start for _, start, stop in batch))
            self.counts["batches"] += 1
            self.counts["requests"] += len(ended)
        for request in ended:
            request.end(failed.get(request))

    def compute(self, batch: list[_Slice]) -> dict[Request, BaseException]:
        """Compute the parts of a batch; return the requests that failed, with their errors.

        A batch that fails is halved, until the error is that of one request: errors of texts are raised before
        anything is computed, so that the others lose little.
        """
        texts = [text for request, start, stop in batch for text in request.texts[start:stop]]
        try:
            vectors = self.encode(texts, show_progress_bar=False, **batch[0][0].options)
            if len(vectors) != len(texts):
                raise IndexError(f"the model gave {len(vectors)} rows for {len(texts)} texts")
        except BaseException as error:
            if len(batch) == 1:
                if isinstance(error, RowError):
                    error.shift(batch[0][1])  # The row of the caller's list.
                return {batch[0][0]: error}
            vectors = None
        if vectors is None:
            return self.compute(batch[: len(batch) // 2]) | self.compute(batch[len(batch) // 2 :])
        row = 0
        for request, start, stop in batch:
            # A copy, so that one vector does not hold the memory of all.
            part = vectors[row : row + stop - start]
            request.parts.append(copy.deepcopy(part) if len(part) < len(vectors) else vectors)
            row += len(part)
        return {}


def _join(parts: list[Any]) -> Any:
    """The vectors of all parts of a request."""
    if len(parts) == 1:
        return parts[0]
    if isinstance(parts[0], list):
        return list(chain(*parts))
    return np.concatenate(parts) if isinstance(parts[0], np.ndarray) else torch.cat(parts)


_queues: weakref.WeakSet[RequestQueue] = weakref.WeakSet()


def _for_all(function: Callable[[RequestQueue], None]) -> None:
    for queue in list(_queues):
        function(queue)


in_child(partial(_for_all, RequestQueue.reset))
# The batches that run end first: a thread that computes while the interpreter ends may crash it.
atexit.register(_for_all, partial(RequestQueue.close, finish=False))
