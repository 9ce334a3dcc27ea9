"""Workers of a pool: two of one thread beside one of them and beside one process with two threads; workers killed.

python -m tests.benchmarks.workers [--texts 12000] [--rounds 5] [--kills 5] [--model FOLDER]

The ways take turns; a ratio is the median over rounds. By processor time, which depends less on what else runs on the
machine, the texts per second are those of one core that does nothing else. Then workers are killed while two of them
encode. At last, the memory of each worker: what it shares with no other process, and its part of all (PSS). The program
fails if two workers are not 1.8 times as fast as one, or slower than one process with two threads, or if a vector
differs from that of one process by more than 1e-6.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sbert import SentenceEncoder
from sbert.pipeline.pool import Pool
from sbert.storage import hub

RATIO, TOLERANCE, MEGABYTE = 1.8, 1e-6, 1 << 20
WORDS = "the a cat dog man woman plays sleeps eats reads house garden street car book old new red two on in".split()


def generate_texts(count: int) -> list[str]:
    """Different short texts of 15 words, 17 tokens."""
    return [" ".join(WORDS[(number * 7 + place * place) % len(WORDS)] for place in range(14)) + f" {number}"
            for number in range(count)]  # fmt: skip


def pool_of(model: SentenceEncoder, workers: int) -> Pool:
    """A pool whose workers have one thread each."""
    torch.set_num_threads(workers)
    return model.pool(["cpu"] * workers)


def seconds(call: Callable[[], Any], *pools: Pool) -> tuple[float, float]:
    """Seconds by the clock, and processor seconds of this process and of the workers."""
    clock, processor = time.perf_counter(), processor_seconds(pools)
    call()
    return time.perf_counter() - clock, processor_seconds(pools) - processor


def processor_seconds(pools: Iterable[Pool]) -> float:
    ticks = 0
    for pid in [pid for pool in pools for pid in workers_of(pool)]:
        ticks += sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]))
    return time.process_time() + ticks / os.sysconf("SC_CLK_TCK")


def killed(pool: Pool, given: list[str], kills: int, usual: float) -> tuple[Any, float]:
    """The vectors, and the seconds, of a call during which workers are killed at random moments."""
    done = threading.Event()
    count = 0

    def kill() -> None:
        nonlocal count
        while count < kills and not done.wait(usual / kills * random.uniform(0.3, 1)):
            os.kill(random.choice(workers_of(pool)), signal.SIGKILL)
            count += 1

    killer = threading.Thread(target=kill)
    killer.start()
    start = time.perf_counter()
    vectors = pool.encode(given, chunk_size=64)
    took = time.perf_counter() - start
    done.set()
    killer.join()
    print(f"{count} workers killed: {took:.1f} s, without {usual:.1f} s")
    if count < kills:
        sys.exit(f"the work ended before {kills} workers were killed; pass more --texts")
    return vectors, took


def workers_of(pool: Pool) -> list[int]:
    """The workers' processes: the children of the process that hands out orders."""
    broker = pool._workers.broker.pid
    children = Path(f"/proc/{broker}/task").glob("*/children")
    return [int(number) for each in children for number in each.read_text().split()]


def memory(pool: Pool) -> None:
    """Print the memory of each worker."""
    for pid in workers_of(pool):
        lines = [line.split() for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]]
        size = {line[0][:-1]: int(line[1]) * 1024 / MEGABYTE for line in lines}
        own = size["Private_Dirty"] + size["Private_Clean"]
        print(f"worker {pid}: {own:6.0f} MB of its own, PSS {size['Pss']:6.0f} MB, resident {size['Rss']:6.0f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=12_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--model", default=hub.OWN, help="folder or name")
    options = parser.parse_args()
    given, model = generate_texts(options.texts), SentenceEncoder(options.model, device="cpu")
    with pool_of(model, 1) as one, pool_of(model, 2) as two:
        ways = {"one process, two threads": model.encode, "one worker": one.encode, "two workers": two.encode}
        expected = model.encode(given)
        worst = max(float(np.abs(encode(given) - expected).max()) for encode in (one.encode, two.encode))
        measured: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
        for _ in range(options.rounds):
            for name, encode in ways.items():
                measured[name].append(seconds(partial(encode, given), one, two))
        print(f"{'texts per second':26}{'by the clock':>15}{'by processor':>15}")
        for name, found in measured.items():
            rates = (options.texts / statistics.median(each) for each in zip(*found, strict=True))
            print(f"{name:26}" + "".join(f"{rate:15,.0f}" for rate in rates))
        process, single, double = ([clock for clock, _ in found] for found in measured.values())
        vectors, _ = killed(two, given, options.kills, statistics.median(double))
        worst = max(worst, float(np.abs(vectors - expected).max()))
        weights = sum(parameter.nbytes for parameter in model.parameters()) / MEGABYTE
        print(f"largest difference to one process: {worst:.1e}; weights {weights:.0f} MB")
        memory(two)
    gain = statistics.median(a / b for a, b in zip(single, double, strict=True))
    beside = statistics.median(a / b for a, b in zip(process, double, strict=True))
    print(f"two workers: {gain:.2f} times one worker, {beside:.2f} times one process with two threads")
    if worst > TOLERANCE or gain < RATIO or beside < 1:
        sys.exit("this falls short of what is claimed")


if __name__ == "__main__":
    main()
