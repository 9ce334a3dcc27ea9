"""Many callers, one model: requests of threads and coroutines that come at the same time join into one batch."""

from __future__ import annotations

import asyncio
import weakref
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast, overload

import numpy as np
import numpy.typing as npt

from sbert.inputs.arguments import check_count, check_number, check_positive
from sbert.inputs.devices import default_batch_tokens
from sbert.inputs.texts import rows_of
from sbert.pipeline.request_queue import Request, RequestQueue
from sbert.pipeline.results import Encoded, EncodeOptions, EncodeToArray, Texts, as_encode

if TYPE_CHECKING:
    from typing_extensions import Unpack

# What belongs to a call of its own, or is not of vectors in memory.
_REFUSED = {"chunk_size", "device", "out", "pool", "resume", "shard", "show_progress_bar"}


@dataclass(frozen=True)
class Metrics:
    """What a batcher does.

    Args:
        waiting: Number of requests that wait; those in the batch that runs do not.
        requests: Number of requests that have ended, with vectors or an error, since the start.
        refused: Number of requests that found the queue full.
        batches: Number of batches since the start.
        texts_per_batch: Mean of the last 2,048 batches.
        tokens_per_batch: Mean of the last 2,048 batches, estimated from the characters.
        p50: Median of the seconds from a request to its vectors, of the last 2,048 requests.
        p99: 99th percentile of them.
    """

    waiting: int
    requests: int
    refused: int
    batches: int
    texts_per_batch: float
    tokens_per_batch: float
    p50: float
    p99: float


class Batcher:
    """Joins the requests of many threads and coroutines into batches for one model; see ``SentenceEncoder.batcher``.

    A thread computes one batch after the other, each of what has arrived while the one before it was computed. So an
    idle model begins at once, and a busy one reads many texts at a time. Requests with the same options share a batch.
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
        >>> with model.batcher() as batcher, ThreadPoolExecutor(32) as threads:
        ...     vectors = list(threads.map(batcher.encode, ["One.", "Two.", "Three."] * 20))
        >>> len(vectors), vectors[0].shape, batcher.metrics.requests
        (60, (384,), 60)
    """

    def __init__(
        self, model: Any, *, max_wait: float | None = None, max_tokens: int | None = None, max_queue: int = 1024
    ) -> None:
        if max_wait is not None and check_number("max_wait", max_wait) < 0:
            raise ValueError(f"max_wait={max_wait} is negative; pass seconds, or 0 to begin at once")
        tokens = check_positive("max_tokens", max_tokens) or default_batch_tokens(model.device) // 4
        self.model = model
        self._queue = RequestQueue(model.encode, max_wait, tokens, check_count("max_queue", max_queue))
        # The thread of a batcher that is deleted ends as well, but nothing waits for that.
        weakref.finalize(self, self._queue.close, finish=False, join=False).atexit = False

    def submit(self, sentences: Texts, **options: Any) -> Future[Any]:
        """A future of ``encode``. Cancelled before its batch runs, it costs nothing.

        Example:
            >>> with model.batcher() as batcher:
            ...     future = batcher.submit(["One.", "Two."], normalize_embeddings=True)
            ...     future.result(timeout=60).shape
            (2, 384)
        """
        refused = sorted(set(options) & _REFUSED)
        if refused:
            raise TypeError(f"a batcher takes no {refused[0]}=; pass it to encode of the model")
        single = isinstance(sentences, str)
        request = Request(list(rows_of(sentences)), single, options, self.model.max_seq_length)
        self._queue.submit(request)
        return request.future

    @as_encode
    def encode(self, sentences: Texts, **options: Any) -> Encoded:
        """Encode sentences in the next batch that has room, and wait for the vectors.

        Args:
            sentences: As in ``SentenceEncoder.encode``.
            options: Its other arguments, but none of ``device``, ``out``, ``pool`` and those that belong to them.

        Raises:
            QueueFullError: At once, if ``max_queue`` requests wait.
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

    @overload
    async def aencode(self, sentences: Texts, **options: Unpack[EncodeToArray]) -> npt.NDArray[np.float32]: ...
    @overload
    async def aencode(
        self,
        sentences: Texts,
        *,
        precision: str = ...,
        output_value: str = ...,
        convert_to_numpy: bool = ...,
        convert_to_tensor: bool = ...,
        **options: Unpack[EncodeOptions],
    ) -> Encoded: ...
    async def aencode(self, sentences: Any, **options: Any) -> Any:
        """``encode`` for coroutines: it blocks neither the event loop nor a thread. Cancelling it leaves the queue.

        Example:
            >>> async def main():
            ...     with model.batcher() as batcher:
            ...         return await asyncio.gather(*map(batcher.aencode, ["One.", "Two.", "Three."]))
            >>> [vector.shape for vector in asyncio.run(main())]
            [(384,), (384,), (384,)]
        """
        return await asyncio.wrap_future(self.submit(sentences, **options))

    @property
    def metrics(self) -> Metrics:
        """What the batcher has done so far, and how long requests took lately."""
        queue = self._queue
        with queue.changed:
            queue.drop_cancelled()
            waiting, counts = len(queue.requests), dict(queue.counts)
            latencies, batches = list(queue.latencies) or [0.0], list(queue.batches) or [(0, 0)]
        (texts, tokens), (p50, p99) = np.mean(batches, axis=0).tolist(), np.percentile(latencies, [50, 99]).tolist()
        return Metrics(waiting, **counts, texts_per_batch=texts, tokens_per_batch=tokens, p50=p50, p99=p99)

    def close(self, *, finish: bool = True) -> None:
        """Take no further requests, and wait for the thread to end. In a coroutine: ``asyncio.to_thread(x.close)``.

        Args:
            finish: Whether to compute the requests that wait; if not, they get a ``ClosedError``.
        """
        self._queue.close(finish)

    def __enter__(self) -> Batcher:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(finish=kind is None)
