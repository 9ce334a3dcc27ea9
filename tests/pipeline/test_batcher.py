"""Requests of many threads and coroutines join into batches, and each gets its own vectors or its own error."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sbert import Pooling, SentenceEncoder, Transformer
from sbert.pipeline.batcher import Batcher, ClosedError, QueueFullError, Request
from tests import small

ROOT = Path(__file__).parent.parent.parent
TEXTS = [f"{text} {number}" for number in range(8) for text in small.TEXTS]
SECONDS = 30  # In which what should happen at once has happened on any machine.


class Gated:
    """A model whose batches are recorded, and wait for a gate."""

    def __init__(self, model: SentenceEncoder) -> None:
        self.model, self.device, self.max_seq_length = model, model.device, model.max_seq_length
        self.batches: list[list[str]] = []
        self.gate, self.began = threading.Event(), threading.Semaphore(0)

    def encode(self, texts: list[str], **options: Any) -> Any:
        self.batches.append(texts)
        self.began.release()
        assert self.gate.wait(SECONDS)
        return self.model.encode(texts, **options)


@pytest.fixture(scope="module")
def model() -> SentenceEncoder:
    return SentenceEncoder(
        Transformer(small.bert_model(), small.wrapped(small.wordpiece(), 64)), Pooling(), device="cpu"
    )


@pytest.fixture
def gated(model: SentenceEncoder) -> Iterator[Gated]:
    made = Gated(model)
    yield made
    made.gate.set()


def running(gated: Gated, **settings: Any) -> tuple[Batcher, concurrent.futures.Future[Any]]:
    """A batcher, and the future of a request that it computes now."""
    batcher = Batcher(gated, **settings)
    first = batcher.submit("first")
    assert gated.began.acquire(timeout=SECONDS)
    return batcher, first


@pytest.mark.slow  # Many threads that wait for each other.
def test_threads_get_the_vectors_of_encode(model: SentenceEncoder) -> None:
    kinds: list[dict[str, Any]] = [
        {},
        {"normalize_embeddings": True, "truncate_dim": 8},
        {"precision": "ubinary"},
        {"precision": "int8", "ranges": np.array([[-3.0] * 16, [3.0] * 16])},
        {"convert_to_tensor": True},
        {"convert_to_numpy": False},
        {"output_value": "token_embeddings"},
        {"prompt": "a small "},
    ]
    with Batcher(model, max_tokens=100) as batcher, ThreadPoolExecutor(32) as threads:
        for options in kinds:
            requests: list[Any] = [*TEXTS[:24], TEXTS, TEXTS[:2], [], iter(TEXTS[3:9])]
            waiting = [threads.submit(batcher.encode, request, **options) for request in requests]
            for request, done in zip([*requests[:-1], TEXTS[3:9]], waiting, strict=True):
                found, expected = done.result(SECONDS), model.encode(request, **options)
                assert type(found) is type(expected)
                for mine, right in zip(found, expected, strict=True):
                    torch.testing.assert_close(torch.as_tensor(mine), torch.as_tensor(right), atol=1e-6, rtol=0)

        async def call() -> Any:  # In several event loops at a time.
            return await asyncio.gather(*(asyncio.wrap_future(batcher.submit(text)) for text in TEXTS))

        for done in [threads.submit(lambda: asyncio.run(call())) for _ in range(4)]:
            np.testing.assert_allclose(np.stack(done.result(SECONDS)), model.encode(TEXTS), atol=1e-6)


def test_what_arrives_during_a_batch_forms_the_next_one(gated: Gated) -> None:
    batcher, first = running(gated)
    with batcher:
        futures = [batcher.submit(text) for text in TEXTS[:4]]
        other = batcher.submit("other", normalize_embeddings=True)
        assert batcher.metrics.waiting == 5
        gated.gate.set()
        concurrent.futures.wait([first, other, *futures])
    assert gated.batches == [["first"], TEXTS[:4], ["other"]]
    for result in (first.result(), futures[0].result()):
        assert result.base is None or result.base.size == 16  # Not that of the batch.
    metrics = batcher.metrics
    assert (metrics.waiting, metrics.requests, metrics.refused, metrics.batches) == (0, 6, 0, 3)
    assert metrics.texts_per_batch == 2


def test_waiting_for_others(gated: Gated) -> None:
    """An idle model waits as long as it is told to, but not once there is enough for a batch, nor after close()."""
    gated.gate.set()
    with Batcher(gated, max_wait=600, max_tokens=30) as batcher:
        pair = [batcher.submit("a boat " * 6), batcher.submit("a lake " * 12)]
        concurrent.futures.wait(pair, SECONDS)
        assert gated.batches == [["a boat " * 6, "a lake " * 12]]
        last = batcher.submit("lake")
        time.sleep(0.1)
        assert not last.done()
    assert last.result(0).shape == (16,)
    with Batcher(gated, max_wait=0.05) as batcher:
        start = time.perf_counter()
        batcher.encode("lake")
        assert time.perf_counter() - start >= 0.05


def test_full_queue(gated: Gated) -> None:
    batcher, _ = running(gated, max_queue=2)
    with batcher:
        waiting = [batcher.submit("second"), batcher.submit(TEXTS)]
        start = time.perf_counter()
        with pytest.raises(QueueFullError, match="2 requests wait, as many as max_queue=2 allows; send this one again"):
            batcher.encode("third")
        assert time.perf_counter() - start < SECONDS
        assert batcher.metrics.refused == 1
        gated.gate.set()
        concurrent.futures.wait(waiting)
        assert batcher.encode("third").shape == (16,)


def test_what_is_cancelled_leaves_the_queue(gated: Gated) -> None:
    batcher, first = running(gated, max_queue=2)

    async def calls() -> None:
        for _ in range(3):
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(asyncio.wrap_future(batcher.submit("second")), 0.01)
        await asyncio.sleep(0)
        assert batcher.metrics.waiting == 0
        task = asyncio.wrap_future(batcher.submit(TEXTS))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0.01)
        gated.gate.set()
        assert (await asyncio.wrap_future(batcher.submit("third"))).shape == (16,)

    with batcher:
        futures = [batcher.submit("second"), batcher.submit(TEXTS)]
        assert all(future.cancel() for future in futures)
        assert first.cancel()  # It runs, and its vectors are thrown away.
        assert batcher.metrics.waiting == 0
        assert concurrent.futures.wait(futures, 0).not_done == set()
        asyncio.run(calls())
    assert gated.batches == [["first"], ["third"]]


def test_single_sentences_do_not_wait_for_large_requests(gated: Gated) -> None:
    batcher, _ = running(gated, max_tokens=64)
    with batcher:
        large = [batcher.submit(["a small boat on the lake"] * 400), batcher.submit(["the red fox"] * 400)]
        single = batcher.submit("lake")
        gated.gate.set()
        single.result(SECONDS)
        batch = next(texts for texts in gated.batches if "lake" in texts)
        assert gated.batches.index(batch) == 1
        assert {"a small boat on the lake", "the red fox"} < set(batch)  # They share what it leaves.
        assert not any(future.done() for future in large)
        assert [len(future.result(SECONDS)) for future in large] == [400, 400]
    assert max(map(len, gated.batches)) < 64


def test_an_error_reaches_its_request_alone(gated: Gated) -> None:
    batcher, _ = running(gated)
    texts = ["lake"] * 500
    texts[400] = "lake " * 200
    long: dict[str, Any] = {"on_truncate": "error"}
    with batcher:
        with pytest.raises(TypeError, match=r"sentences\[1\] is of type NoneType"):
            batcher.submit(["One.", None])  # type: ignore[list-item]
        bad = batcher.submit(texts, **long)
        good = [batcher.submit(text, **long) for text in TEXTS[:5]]
        alone = batcher.submit("lake " * 200, **long)
        unknown = batcher.submit("lake", normalise_embeddings=True)
        gated.gate.set()
        with pytest.raises(ValueError, match=r"sentences\[400\] has more than max_seq_length=64 tokens"):
            bad.result(SECONDS)
        with pytest.raises(ValueError, match=r"sentences\[0\] has more than"):
            alone.result(SECONDS)
        with pytest.raises(TypeError, match="did you mean 'normalize_embeddings'"):
            unknown.result(SECONDS)
        for text, future in zip(TEXTS, good, strict=False):
            np.testing.assert_allclose(future.result(SECONDS), gated.model.encode(text), atol=1e-6)
        assert batcher.metrics.waiting == 0


def test_options_of_a_call_of_its_own(model: SentenceEncoder) -> None:
    with Batcher(model) as batcher, pytest.raises(TypeError, match="takes no pool=; pass it to encode of"):
        batcher.encode("One.", pool=None)


def test_whatever_is_raised_reaches_those_who_wait(model: SentenceEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a model, which the thread survives, or by the thread itself."""

    def encode(texts: list[str], **options: Any) -> Any:
        if texts == ["exit"]:
            raise SystemExit
        return model.encode(texts, **options)[: 0 if texts == ["short"] else None]

    def broken() -> float:
        raise ArithmeticError("no time")

    wrong: Any = Gated(model)
    wrong.encode = encode
    with Batcher(wrong) as batcher:
        for text, error in (("exit", SystemExit), ("short", IndexError)):
            with pytest.raises(error):
                batcher.encode(text)
        assert batcher.encode("lake").shape == (16,)
    with Batcher(wrong, max_wait=1e10) as batcher:  # Longer than a thread can wait at once.
        waiting = batcher.submit("one")
        with pytest.raises(concurrent.futures.TimeoutError):
            waiting.result(0.1)
        monkeypatch.setattr(batcher._queue, "seconds_to_wait", broken)
        later = batcher.submit("two")
        with batcher._queue.changed:
            batcher._queue.changed.notify()
        for future in (waiting, later):
            with pytest.raises(ArithmeticError, match="no time"):
                future.result(SECONDS)
        with pytest.raises(ClosedError, match="make another one"):
            batcher.submit("three")


# ------------------------------------------------------------------------------------------- threads, processes


def batcher_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "sbert-batcher"]


@pytest.mark.parametrize("finish", [True, False])
def test_close(gated: Gated, finish: bool) -> None:
    batcher, first = running(gated)
    waiting = batcher.submit("second")
    closing = threading.Thread(target=batcher.close, kwargs={"finish": finish})
    closing.start()
    if not finish:
        with pytest.raises(ClosedError, match="closed before this request was computed"):
            waiting.result(SECONDS)
    gated.gate.set()
    closing.join(SECONDS)
    assert first.result(0).shape == (16,)
    if finish:
        assert waiting.result(0).shape == (16,)
    assert not batcher_threads()
    with pytest.raises(ClosedError, match=r"make another one with model\.batcher\(\)"):
        batcher.encode("third")
    batcher.close()


def test_a_deleted_batcher_ends_its_thread(model: SentenceEncoder) -> None:
    batcher = Batcher(model)
    assert not batcher_threads()
    batcher.encode("One.")
    (thread,) = batcher_threads()
    del batcher
    thread.join(SECONDS)
    assert not thread.is_alive()


def test_what_is_done_is_forgotten(model: SentenceEncoder) -> None:
    """Without the garbage collector, which may come late: results can be large."""
    gc.collect()
    gc.disable()
    try:
        with Batcher(model) as batcher:
            found = batcher.encode(TEXTS)
            future = batcher.submit("One.")
            assert len(found), future.result(SECONDS).shape
        assert not [thing for thing in gc.get_objects() if type(thing) is Request]
    finally:
        gc.enable()


PROGRAM = """
import atexit, json, os, sys, threading
atexit.register(lambda: print(type(futures[-1].exception(0)).__name__))  # After the batcher's own.
from sbert import SentenceEncoder
from sbert.pipeline.batcher import Batcher, ClosedError, QueueFullError, Request

batcher = Batcher(SentenceEncoder(sys.argv[1], device="cpu"))
expected = batcher.encode("a small boat").tolist()
child = os.fork()
if child == 0:
    same = batcher.encode("a small boat").tolist() == expected
    batcher.close()
    os._exit(0 if same and threading.active_count() == 1 else 1)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
same = batcher.encode("a small boat").tolist() == expected
futures = [batcher.submit(["a small boat"] * 50_000) for _ in range(4)]
print(json.dumps([code, same, futures[-1].done()]))  # The program ends while they are computed.
"""


@pytest.mark.slow  # A process that forks and ends while a batch is encoded.
@pytest.mark.skipif(sys.platform == "win32", reason="Windows cannot fork")
def test_a_fork_and_an_exit_during_a_batch(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, str(small.bert(tmp_path))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["[0, true, false]", "ClosedError"]
