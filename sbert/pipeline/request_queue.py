"""The queue of a batcher: requests of threads and coroutines, and the thread that computes batches of them."""

from __future__ import annotations

import asyncio
import atexit
import re
import threading
import time
import weakref
from bisect import bisect_right
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from functools import partial
from itertools import accumulate, chain
from operator import methodcaller
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

AnyFuture = Future[Any] | asyncio.Future[Any]


class QueueFullError(RuntimeError):
    """As many requests wait as the batcher allows."""


class ClosedError(RuntimeError):
    """The batcher is closed, or was closed while the request waited."""


class Request:
    """The texts of one caller, of which batches take a part each, and the future that gets the vectors."""

    def __init__(self, texts: list[str], one: bool, options: dict[str, Any], limit: int | None, future: AnyFuture):
        self.texts, self.one, self.options, self.future = texts, one, options, future
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

    def tokens(self, start: int, stop: int | None = None) -> int:
        """Estimated number of tokens of the texts from one index to another, by default to the end."""
        return self.before[len(self.texts) if stop is None else stop] - self.before[start]

    def take(self, tokens: int) -> int:
        """Take the next texts, about as many tokens as given and at least one text; return their number of tokens."""
        start = self.taken
        last = bisect_right(self.before, self.before[start] + tokens) - 1
        self.taken = min(len(self.texts), max(start + 1, last))
        return self.tokens(start, self.taken)

    def result(self) -> Any:
        """The vectors in the form of ``encode``."""
        first = self.parts[0]
        if self.one or len(self.parts) == 1:
            return first[0] if self.one else first
        if isinstance(first, list):
            return list(chain(*self.parts))
        return np.concatenate(self.parts) if isinstance(first, np.ndarray) else torch.cat(self.parts)


_Slice = tuple[Request, int, int]  # Texts of a request, from one index to another.
_Ended = tuple[Request, Any, BaseException | None]  # The vectors of a request, or the error.


def _part(found: Any, start: int, stop: int) -> Any:
    """Rows of a batch, copied, so that one vector does not hold the memory of all."""
    if (start, stop) == (0, len(found)):
        return found
    part = found[start:stop]
    if isinstance(part, list):
        return [row.clone() if isinstance(row, torch.Tensor) else row for row in part]
    return part.clone() if isinstance(part, torch.Tensor) else part.copy()


def _with_rows_from(error: Exception, start: int) -> Exception:
    """The error of texts from ``start`` on; the row that it names is that of the caller's list."""
    if start and len(error.args) == 1 and isinstance(error.args[0], str):
        error.args = (re.sub(r"(?<=sentences\[)\d+", lambda row: str(int(row[0]) + start), error.args[0]),)
    return error


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
        # For each set of options: the requests, the next one first.
        self.queues: OrderedDict[Hashable, OrderedDict[Request, None]] = OrderedDict()
        self.waiting = self.tokens = 0
        self.expected, self.until = 0, 0.0  # How many requests the thread waits for, and until when.
        self.thread: threading.Thread | None = None

    def submit(self, request: Request) -> None:
        """Add a request to the queue."""
        with self.changed:
            if self.closed:
                raise ClosedError("the batcher is closed; make another one with model.batcher()")
            if self.waiting >= self.max_queue:
                self.counts["refused"] += 1
                raise QueueFullError(
                    f"{self.waiting} requests wait, as many as max_queue={self.max_queue} allows; send this one again"
                    " later, or pass a larger max_queue"
                )
            self.queues.setdefault(request.key, OrderedDict())[request] = None
            self.waiting += 1
            self.tokens += request.tokens(0)
            if self.waiting == 1 and self.max_wait is not None:
                self.expected, self.until = self.max_queue + 1, request.arrived + self.max_wait
            if self.thread is None:
                self.thread = threading.Thread(target=self.work, name="sbert-batcher", daemon=True)
                self.thread.start()
            elif self.waiting in (1, self.expected) or self.tokens >= self.max_tokens:  # What the thread may wait for.
                self.changed.notify()
        request.future.add_done_callback(partial(_leave, weakref.ref(self), weakref.ref(request)))

    def leave(self, request: Request) -> None:
        """Remove a request from the queue, if a part of it still waits."""
        with self.changed:
            if request in (requests := self.queues.get(request.key, OrderedDict())):
                del requests[request]
                self.waiting -= 1
                self.tokens -= request.tokens(request.taken)
                if not requests:
                    del self.queues[request.key]

    def close(self, finish: bool, join: bool = True, error: BaseException | None = None) -> None:
        """End the thread, after what waits or after the batch that runs; what still waits then gets the error."""
        with self.changed:
            self.closed = True
            waiting = [] if finish else [request for requests in self.queues.values() for request in requests]
            for request in waiting:
                self.leave(request)
            self.changed.notify()
        error = error or ClosedError("the batcher was closed before this request was computed; send it to another one")
        _deliver([(request, None, error) for request in waiting])
        if join and self.thread not in (None, threading.current_thread()):
            self.thread.join()

    def work(self) -> None:
        """Compute batches until the batcher is closed."""
        batch: list[_Slice] = []
        try:
            while batch := self.next_batch():
                _deliver(self.computed(batch))
                batch = []  # The thread may now wait for long.
        except BaseException as error:  # No caller may wait for good.
            _deliver([(request, None, error) for request, _, _ in batch])
            self.close(finish=False, join=False, error=error)

    def computed(self, batch: list[_Slice]) -> list[_Ended]:
        """The requests that have ended with a batch, after they were counted."""
        start = time.perf_counter()
        try:
            ended = self.compute(batch)
        except BaseException as error:
            ended = [(request, None, error) for request, _, _ in batch]
        now = time.perf_counter()
        with self.changed:
            for request, _, failed in ended:
                if failed is not None:  # Its other parts are not computed.
                    self.leave(request)
            if self.max_wait is None:
                self.expected, self.until = self.waiting + len(ended), now + min(_MOMENT, _SHARE * (now - start))
            tokens = sum(request.tokens(start, stop) for request, start, stop in batch)
            self.batches.append((sum(stop - start for _, start, stop in batch), tokens))
            self.counts["batches"] += 1
            self.counts["requests"] += len(ended)
            self.latencies.extend(now - request.arrived for request, _, _ in ended)
        return ended

    def next_batch(self) -> list[_Slice]:
        """Wait for requests and take the next batch of them; none if the batcher is closed and no request waits."""
        with self.changed:
            while self.queues or not self.closed:
                if not self.queues:
                    self.changed.wait()
                elif (left := self.seconds_to_wait()) > 0:
                    self.changed.wait(min(left, _HOUR))
                elif batch := self.take():
                    return batch
        return []

    def seconds_to_wait(self) -> float:
        """How long the first request may still wait for others."""
        enough = self.closed or self.tokens >= self.max_tokens or self.waiting >= self.expected
        return 0 if enough else self.until - time.perf_counter()

    def take(self) -> list[_Slice]:
        """The next batch: requests of the same options take parts of it in turn, and so do sets of options."""
        key, requests = next(iter(self.queues.items()))
        starts: dict[Request, int] = {}
        left = self.max_tokens
        while requests and left > 0:
            request = next(iter(requests))
            if request.future.done():  # It is cancelled, or a part of it has failed.
                self.leave(request)
                continue
            starts.setdefault(request, request.taken)
            tokens = request.take(min(left, max(1, self.max_tokens // _TURNS)))
            left, self.tokens = left - tokens, self.tokens - tokens
            if request.taken < len(request.texts):
                requests.move_to_end(request)
            else:
                self.leave(request)
        if requests:
            self.queues.move_to_end(key)
        return [(request, start, request.taken) for request, start in starts.items()]

    def compute(self, batch: list[_Slice]) -> list[_Ended]:
        """Compute a batch; return the requests that have ended, with their vectors or the error.

        A batch that fails is halved, until the error is that of one request: errors of texts are raised before
        anything is computed, so that the others lose little.
        """
        texts = [text for request, start, stop in batch for text in request.texts[start:stop]]
        try:
            found = self.encode(texts, show_progress_bar=False, **batch[0][0].options)
        except Exception as error:
            if len(batch) == 1:
                return [(batch[0][0], None, _with_rows_from(error, batch[0][1]))]
            found = None
        if found is None:
            return self.compute(batch[: len(batch) // 2]) + self.compute(batch[len(batch) // 2 :])
        ended: list[_Ended] = []
        row = 0
        for request, start, stop in batch:
            request.parts.append(_part(found, row, row := row + stop - start))
            if stop == len(request.texts):
                ended.append((request, request.result(), None))
        return ended


_queues: weakref.WeakSet[RequestQueue] = weakref.WeakSet()


in_child(lambda: list(map(RequestQueue.reset, list(_queues))))
# The batches that run end first: a thread that computes while the interpreter ends may crash it.
atexit.register(lambda: list(map(methodcaller("close", finish=False), list(_queues))))


def _leave(queue: weakref.ref[RequestQueue], request: weakref.ref[Request], future: AnyFuture) -> None:
    """When a future is done: what still waits of its request leaves the queue. It keeps neither of them alive."""
    if isinstance(future, Future) and future.cancelled():
        future.set_running_or_notify_cancel()  # For those who wait for several futures.
    here, leaving = queue(), request()
    if here is not None and leaving is not None:
        here.leave(leaving)


def _deliver(ended: list[_Ended]) -> None:
    """Set the futures: those of threads at once, those of event loops with one call for each loop."""
    loops: defaultdict[asyncio.AbstractEventLoop | None, list[_Ended]] = defaultdict(list)
    for each in ended:
        future = each[0].future
        loops[future.get_loop() if isinstance(future, asyncio.Future) else None].append(each)
    for loop, its in loops.items():
        if loop is None:
            _set(its)
        else:
            with suppress(RuntimeError):  # The loop is closed, and no coroutine waits.
                loop.call_soon_threadsafe(_set, its)


def _set(ended: list[_Ended]) -> None:
    for request, result, error in ended:
        with suppress(InvalidStateError, asyncio.InvalidStateError):  # It was cancelled.
            if error is None:
                request.future.set_result(result)
            else:
                request.future.set_exception(error)
