"""Single sentences of many threads and coroutines: one lock, a batcher, and sentence-transformers behind a lock.

python -m tests.benchmarks.callers [--seconds 5] [--rounds 4] [--threads 32] [--clients 200] [--model FOLDER]

The implementations take turns. Each caller sends a sentence, waits for its vector, compares it with that of one call
for all sentences, and sends the next one. A ratio is the median over the rounds. The program fails if a call raised or
a vector was wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from sbert import SentenceEncoder
from sbert.storage import hub
from tests.benchmarks.compare import WORDS

# Sentences per second, and the median and 99th percentile of the milliseconds.
Figures = tuple[float, float, float]


class Load:
    """Callers that send sentences one after the other until a moment.

    Args:
        encode_all: Encodes all sentences in one call, whose vectors are right.
    """

    def __init__(self, encode_all: Callable[[list[str]], np.ndarray]) -> None:
        draw = random.Random(0)
        self.sentences = [" ".join(draw.choices(WORDS, k=draw.randint(4, 14))) + f" {row}" for row in range(5000)]
        self.expected = encode_all(self.sentences)
        self.seconds: list[float] = []
        self.wrong = 0

    def rows(self, seed: int, until: float) -> Iterator[int]:
        draw = random.Random(seed)
        while time.perf_counter() < until:
            yield draw.randrange(len(self.sentences))

    def note(self, row: int, vector: np.ndarray, begin: float) -> None:
        self.seconds.append(time.perf_counter() - begin)
        self.wrong += bool(np.abs(vector - self.expected[row]).max() > 1e-5)

    def call(self, encode: Callable[[str], np.ndarray], seed: int, until: float) -> None:
        for row in self.rows(seed, until):
            begin = time.perf_counter()
            self.note(row, encode(self.sentences[row]), begin)

    async def acall(self, encode: Callable[[str], Awaitable[np.ndarray]], seed: int, until: float) -> None:
        for row in self.rows(seed, until):
            begin = time.perf_counter()
            self.note(row, await encode(self.sentences[row]), begin)

    def run(
        self, encode: Callable[[str], Any], count: int, seconds: float, is_async: bool
    ) -> tuple[float, float, float]:
        """The figures of so many callers."""
        self.seconds, begin = [], time.perf_counter()
        until = begin + seconds
        if is_async:

            async def gather() -> None:
                await asyncio.gather(*[self.acall(encode, seed, until) for seed in range(count)])

            asyncio.run(gather())
        else:
            with ThreadPoolExecutor(count) as threads:
                list(threads.map(lambda seed: self.call(encode, seed, until), range(count)))
        rate = len(self.seconds) / (time.perf_counter() - begin)
        p50, p99 = 1000 * np.percentile(self.seconds, [50, 99])
        return rate, float(p50), float(p99)


def locked(encode: Callable[..., np.ndarray]) -> Callable[[str], np.ndarray]:
    """Calls one after the other."""
    lock = threading.Lock()

    def call(sentence: str) -> np.ndarray:
        with lock:
            return encode(sentence, show_progress_bar=False)

    return call


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--threads", type=int, default=32)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--model", default=str(hub.resolve(hub.OWN)), help="default: the model of the library")
    given = parser.parse_args()
    from sentence_transformers import SentenceTransformer

    model, theirs = SentenceEncoder(given.model, device="cpu"), SentenceTransformer(given.model, device="cpu")
    ours, others = Load(model.encode), Load(theirs.encode)
    figures: dict[str, list[Figures]] = defaultdict(list)
    with model.batcher() as batcher:
        lock, batch, abatch = locked(model.encode), batcher.encode, batcher.aencode
        for _ in range(given.rounds):
            for name, load, encode, count, is_async in (
                (f"{given.threads} threads, one lock", ours, lock, given.threads, False),
                (f"{given.threads} threads, batcher", ours, batch, given.threads, False),
                (f"{given.clients} coroutines, batcher", ours, abatch, given.clients, True),
                ("threads, sentence-transformers, one lock", others, locked(theirs.encode), given.threads, False),
            ):
                figures[name].append(load.run(encode, count, given.seconds, is_async))
    base = [rate for rate, _, _ in next(iter(figures.values()))]
    print("| callers | sentences/s | times one lock | p50 | p99 |\n|---|---|---|---|---|")
    for name, rows in figures.items():
        rate, p50, p99 = (statistics.median(column) for column in zip(*rows, strict=True))
        ratio = statistics.median(row[0] / one for row, one in zip(rows, base, strict=True))
        print(f"| {name} | {rate:,.0f} | {ratio:.2f} | {p50:.1f} ms | {p99:.1f} ms |")
    if ours.wrong:
        raise SystemExit(f"{ours.wrong} vectors are wrong")


if __name__ == "__main__":
    main()
