"""Single sentences of many threads and coroutines: one lock, a batcher, and sentence-transformers behind a lock.

python -m tests.benchmarks.callers [--seconds 120] [--threads 32] [--clients 200] [--rounds 4] [--round-seconds 5]
    [--model FOLDER] [--deterministic]

The ways first take turns. Each caller sends a sentence, waits for its vector, compares it with that of ``encode`` of
all sentences (to 1e-6, or bit by bit with --deterministic) and sends the next one. A ratio is the median over rounds.
Then all threads and clients share one batcher for as many seconds as given, while the memory of the process is looked
at. The program fails if a call raised, a vector was wrong, the memory grew by more than 20 MB after the first 20 s, or
the batcher was not 2.5 times as fast as one lock (without --deterministic, where one text costs as much as several).
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import random
import statistics
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from sbert import SentenceEncoder
from sbert.pipeline.batcher import Batcher
from sbert.storage import hub
from tests.benchmarks.texts import WORDS

SENTENCES, CALLS = 5000, 4_000_000
GROWTH, AFTER, RATIO = 20, 20, 2.5  # Megabytes, seconds, times one lock.


class Record:
    """What callers saw: the seconds of each call, in memory that is there from the start, and what went wrong."""

    def __init__(self) -> None:
        self.seconds = np.full(CALLS, -1, np.float32)  # Not zeros, which take memory when they are replaced.
        self.numbers, self.wrong, self.errors = itertools.count(), 0, 0
        self.began = time.perf_counter()
        self.figures = 0.0, 0.0, 0.0

    def called(self, start: float, right: bool) -> None:
        self.seconds[next(self.numbers) % CALLS] = time.perf_counter() - start
        self.wrong += not right

    def failed(self, error: Exception) -> None:
        self.errors += 1
        print(f"{type(error).__name__}: {error}", flush=True)

    def end(self) -> Record:
        """Note the calls per second, and the median and 99th percentile of their milliseconds."""
        taken = self.seconds[self.seconds >= 0]
        p50, p99 = (1e3 * np.percentile(taken, [50, 99])).tolist()
        self.figures, self.seconds = (len(taken) / (time.perf_counter() - self.began), p50, p99), taken[:0]
        return self


class Load:
    """Callers that send sentences one after the other until a moment.

    Args:
        sentences: The sentences.
        expected: Their vectors, one row each.
        tolerance: Largest difference that is right.
    """

    def __init__(self, sentences: list[str], expected: np.ndarray, tolerance: float) -> None:
        self.sentences, self.expected, self.tolerance = sentences, expected, tolerance
        self.seeds = itertools.count()

    def right(self, number: int, vector: np.ndarray) -> bool:
        return bool(np.abs(vector - self.expected[number]).max() <= self.tolerance)

    def thread(self, encode: Callable[[str], Any], until: float, record: Record) -> None:
        draw = random.Random(next(self.seeds))
        while (start := time.perf_counter()) < until:
            number = draw.randrange(len(self.sentences))
            try:
                record.called(start, self.right(number, encode(self.sentences[number])))
            except Exception as error:
                record.failed(error)

    async def client(self, encode: Callable[[str], Any], until: float, record: Record) -> None:
        draw = random.Random(next(self.seeds))
        while (start := time.perf_counter()) < until:
            number = draw.randrange(len(self.sentences))
            try:
                record.called(start, self.right(number, await encode(self.sentences[number])))
            except Exception as error:
                record.failed(error)

    async def clients(self, encode: Callable[[str], Any], count: int, until: float, record: Record) -> None:
        await asyncio.gather(*[self.client(encode, until, record) for _ in range(count)])

    def start(
        self,
        record: Record,
        seconds: float,
        encode: Any = None,
        threads: int = 0,
        aencode: Any = None,
        clients: int = 0,
    ) -> list[threading.Thread]:
        """Start threads, and one more for the event loop of the clients."""
        until = time.perf_counter() + seconds
        started = [threading.Thread(target=self.thread, args=(encode, until, record)) for _ in range(threads)]
        if clients:
            run = threading.Thread(target=lambda: asyncio.run(self.clients(aencode, clients, until, record)))
            started.append(run)
        for thread in started:
            thread.start()
        return started

    def run(self, **how: Any) -> Record:
        record = Record()
        for thread in self.start(record, **how):
            thread.join()
        return record.end()


def locked(encode: Callable[..., Any], **options: Any) -> Callable[[str], Any]:
    """Calls one after the other."""
    lock = threading.Lock()

    def call(sentence: str) -> Any:
        with lock:
            return encode(sentence, **options)

    return call


def sentences() -> list[str]:
    """Different sentences of 5 to 15 words."""
    draw = random.Random(0)
    return [" ".join(draw.choices(WORDS, k=draw.randint(4, 14))) + f" {number}" for number in range(SENTENCES)]


def in_turns(ways: dict[str, Callable[[float], Record]], rounds: int, seconds: float, least: float) -> bool:
    """Print a table of the ways; return whether all vectors are right, and the batcher ``least`` times as fast."""
    records: dict[str, list[Record]] = {name: [] for name in ways}
    for number in range(rounds):
        for name in list(ways)[:: -1 if number % 2 else 1]:
            records[name].append(ways[name](seconds))
    lock = [record.figures[0] for record in records[next(iter(ways))]]
    print("| callers | sentences/s | times one lock | p50 | p99 | errors | wrong |\n|---|---|---|---|---|---|---|")
    good = True
    for name, its in records.items():
        rate, p50, p99 = (statistics.median(column) for column in zip(*(record.figures for record in its), strict=True))
        ratio = statistics.median(record.figures[0] / one for record, one in zip(its, lock, strict=True))
        errors, wrong = sum(record.errors for record in its), sum(record.wrong for record in its)
        print(f"| {name} | {rate:,.0f} | {ratio:.2f} | {p50:.1f} ms | {p99:.1f} ms | {errors} | {wrong} |", flush=True)
        ours = "sentence-transformers" not in name
        good &= not (ours and (errors or wrong)) and ("batcher" not in name or ratio >= least)
    return good


def resident() -> float:
    """Megabytes of this process in memory."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def together(load: Load, batcher: Batcher, seconds: float, threads: int, clients: int, **calls: Any) -> bool:
    """Threads and clients share a batcher; print the memory over time; return whether all is well."""
    record = Record()
    started = load.start(record, seconds, threads=threads, clients=clients, **calls)
    seen: list[tuple[float, float]] = []
    print(f"\n{threads} threads and {clients} clients share a batcher\n|   s | resident MB | waiting |\n|---|---|---|")
    while any(thread.is_alive() for thread in started):
        now = time.perf_counter() - record.began
        seen.append((now, resident()))
        print(f"| {now:3.0f} | {seen[-1][1]:.1f} | {batcher.metrics.waiting} |", flush=True)
        time.sleep(min(10, seconds / 6))
    rate, p50, p99 = record.end().figures
    print(f"{rate:,.0f} sentences/s, p50 {p50:.1f} ms, p99 {p99:.1f} ms, {record.errors} errors, {record.wrong} wrong")
    print(batcher.metrics)
    later = [megabytes for moment, megabytes in seen if moment >= AFTER] or [seen[-1][1]]
    growth = max(later) - later[0]
    print(f"memory after the first {AFTER} s: {growth:+.1f} MB at most")
    return not record.errors and not record.wrong and growth <= GROWTH


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--threads", type=int, default=32)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--round-seconds", type=float, default=5)
    parser.add_argument("--model", default=str(hub.resolve(hub.OWN)), help="default: the model of the library")
    parser.add_argument("--deterministic", action="store_true")
    given = parser.parse_args()
    from sentence_transformers import SentenceTransformer

    model, theirs = SentenceEncoder(given.model, device="cpu"), SentenceTransformer(given.model, device="cpu")
    options: dict[str, Any] = {"deterministic": True} if given.deterministic else {}
    texts = sentences()
    load = Load(texts, model.encode(texts, **options), 0.0 if given.deterministic else 1e-6)
    their_load = Load(texts, theirs.encode(texts), 1e-5)
    one, their_one = locked(model.encode, **options), locked(theirs.encode, show_progress_bar=False)
    with model.batcher() as batcher:
        calls: dict[str, Any] = {
            "encode": lambda text: batcher.encode(text, **options),
            "aencode": lambda text: batcher.aencode(text, **options),
        }
        ways = {
            f"{given.threads} threads, one lock": lambda s: load.run(seconds=s, encode=one, threads=given.threads),
            f"{given.threads} threads, batcher": lambda s: load.run(seconds=s, threads=given.threads, **calls),
            f"{given.clients} coroutines, batcher": lambda s: load.run(seconds=s, clients=given.clients, **calls),
            f"{given.threads} threads, sentence-transformers, one lock": lambda s: their_load.run(
                seconds=s, encode=their_one, threads=given.threads
            ),
        }
        good = in_turns(ways, given.rounds, given.round_seconds, 0 if given.deterministic else RATIO)
        good &= together(load, batcher, given.seconds, given.threads, given.clients, **calls)
    print("holds" if good else "FALLS SHORT")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
