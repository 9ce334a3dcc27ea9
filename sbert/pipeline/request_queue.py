"""The queue of a batcher: requests of many callers, and the thread that computes batches of them."""

from __future__ import annotations

import atexit
import re
import threading
import time
import weakref
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from itertools import accumulate, chain
from typing import Any

import numpy as np
import torch

from sbert.storage.processes import in_child

# Recent requests, and batches, that metrics are of.
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


class Request:
    """The texts of one caller, of which batches take a part each, and the future that gets the vectors."""

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

    def result(self) -> Any:
        """The vectors in the form of ``encode``."""
        first = self.parts[0]
        if self.single or len(self.parts) == 1:
            return first[0] if self.single else first
        if isinstance(first, list):
            return list(chain(*self.parts))
        return np.concatenate(self.parts) if isinstance(first, np.ndarray) else torch.cat(self.parts)

    def end(self, error: BaseException | None = None) -> None:
        """Set the future to the vectors, or to an error."""
        with suppress(InvalidStateError):  # It was cancelled.
            if error is None:
                self.future.set_result(self.result())
            else:
                self.future.set_exception(error)


_Slice = tuple[Request, int, int]  # Texts of a request, from one index to another.


class RequestQueue:
    """Requests that wait, and the thread that computes batches of them; neither keeps the batcher alive.

    Args:
        encode: What computes a batch: a function of a list of texts and of options.
        max_wait: Seconds that a request may wait for others while the thread is idle. Default: a moment, until the
            callers that received the last vectors send the next request; else two halves of the callers would take
            turns for good.
        max_tokens: Number of tokens from which a batch takes no further texts.
        max_queue: Number of requests that may wait.
    """

    def __init__(self, encode: Callable[..., Any], max_wait: float | None, max_tokens: int, max_queue: int) -> None:
        self.encode, self.max_wait, self.max_tokens, self.max_queue = encode, max_wait, max_tokens, max_queue
        self.latencies: deque[float] = deque(maxlen=_WINDOW)
        self.batches: deque[tuple[int, int]] = deque(maxlen=_WINDOW)  # Texts and tokens of each.
        self.counts = {"requests": 0, "refused": 0, "batches": 0}
        self.closed = False
        self.reset()
        _queues.add(self)

    def reset(self) -> None:
        """An empty queue and no thread: at first, and in a forked child, where the thread does not exist."""
        self.changed = threading.Condition()
        self.requests: deque[Request] = deque()
        self.tokens = 0
        self.expected, self.until = 0, 0.0  # How many requests the thread waits for, and until when.
        self.thread: threading.Thread | None = None

    def drop_cancelled(self) -> None:
        """Remove requests that were cancelled, or of which a part has failed."""
        for request in [request for request in self.requests if request.future.done()]:
            self.requests.remove(request)
            self.tokens -= request.before[-1] - request.before[request.taken]
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
            self.tokens += request.before[-1]
            if len(self.requests) == 1 and self.max_wait is not None:
                self.expected, self.until = self.max_queue + 1, request.arrived + self.max_wait
            if self.thread is None:
                self.thread = threading.Thread(target=self.work, name="sbert-batcher", daemon=True)
                self.thread.start()
            elif len(self.requests) in (1, self.expected) or self.tokens >= self.max_tokens:
                self.changed.notify()  # What the thread may wait for.

    def close(self, finish: bool, join: bool = True, error: BaseException | None = None) -> None:
        """End the thread, after what waits or after the batch that runs; what still waits then gets the error."""
        error = error or ClosedError("the batcher was closed before this request was computed; send it to another one")
        with self.changed:
            self.closed = True
            waiting = [] if finish else list(self.requests)
            if not finish:
                self.requests.clear()
            self.changed.notify()
        for request in waiting:
            request.end(error)
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
                if not self.requests:
                    self.changed.wait()
                elif (left := self.seconds_to_wait()) > 0:
                    self.changed.wait(min(left, _HOUR))
                elif batch := self.take():
                    return batch
        return []

    def seconds_to_wait(self) -> float:
        """How long the first request may still wait for others."""
        enough = self.closed or self.tokens >= self.max_tokens or len(self.requests) >= self.expected
        return 0 if enough else self.until - time.perf_counter()

    def take(self) -> list[_Slice]:
        """The next batch: requests of the first one's options take parts of it in turn, and go on behind the others."""
        self.drop_cancelled()
        turns = deque(request for request in self.requests if request.key == self.requests[0].key)
        starts: dict[Request, int] = {}
        left = self.max_tokens
        while turns and left > 0:
            request = turns.popleft()
            starts.setdefault(request, request.taken)
            tokens = request.take(min(left, max(1, self.max_tokens // _TURNS)))
            left, self.tokens = left - tokens, self.tokens - tokens
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
            tokens = sum(request.before[stop] - request.before[start] for request, start, stop in batch)
            self.batches.append((sum(stop - start for _, start, stop in batch), tokens))
            self.counts["batches"] += 1
            self.counts["requests"] += len(ended)
            self.latencies.extend(now - request.arrived for request in ended)
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
                return {batch[0][0]: _with_rows_from(error, batch[0][1])}
            vectors = None
        if vectors is None:
            return self.compute(batch[: len(batch) // 2]) | self.compute(batch[len(batch) // 2 :])
        row = 0
        for request, start, stop in batch:
            request.parts.append(_part(vectors, row, row := row + stop - start))
        return {}


def _part(vectors: Any, start: int, stop: int) -> Any:
    """Rows of a batch, copied, so that one vector does not hold the memory of all."""
    if (start, stop) == (0, len(vectors)):
        return vectors
    part = vectors[start:stop]
    if isinstance(part, list):
        return [row.clone() if isinstance(row, torch.Tensor) else row for row in part]
    return part.clone() if isinstance(part, torch.Tensor) else part.copy()


def _with_rows_from(error: BaseException, start: int) -> BaseException:
    """The error of texts from ``start`` on; the row that it names is that of the caller's list."""
    if start and len(error.args) == 1 and isinstance(error.args[0], str):
        error.args = (re.sub(r"(?<=sentences\[)\d+", lambda row: str(int(row[0]) + start), error.args[0]),)
    return error


_queues: weakref.WeakSet[RequestQueue] = weakref.WeakSet()


def _reset_all() -> None:
    for queue in list(_queues):
        queue.reset()


def _close_all() -> None:
    """The batches that run end first: a thread that computes while the interpreter ends may crash it."""
    for queue in list(_queues):
        queue.close(finish=False)


in_child(_reset_all)
atexit.register(_close_all)
