"""Two workers of a pool, of one thread each, beside one of them and beside one process with two threads.

python -m tests.benchmarks.workers [--texts 12000] [--rounds 5]

They alternate; a ratio is the median over the rounds. The program fails if two workers are not 1.8 times as fast as
one, or slower than one process with two threads, or if a vector differs from that of one process by more than 1e-6.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time

import numpy as np
import torch

from sbert import SentenceEncoder
from tests.benchmarks.compare import Measure

RATIO, TOLERANCE = 1.8, 1e-6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=12_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    texts, model = Measure(0).texts(options.texts), SentenceEncoder(device="cpu")
    torch.set_num_threads(1)
    single = model.pool(["cpu"])
    torch.set_num_threads(2)
    with single, model.pool(["cpu"] * 2) as double:
        encoders = {"two workers": double.encode, "one worker": single.encode, "one process": model.encode}
        expected = model.encode(texts)
        worst = max(float(np.abs(encode(texts) - expected).max()) for encode in (single.encode, double.encode))
        seconds: dict[str, list[float]] = {name: [] for name in encoders}
        for _ in range(options.rounds):
            for name, encode in encoders.items():
                begin = time.perf_counter()
                encode(texts)
                seconds[name].append(time.perf_counter() - begin)
    for name, times in seconds.items():
        print(f"{name:12}{options.texts / statistics.median(times):10,.0f} texts per second")
    workers, *others = seconds.values()
    worker, process = (statistics.median(a / b for a, b in zip(other, workers, strict=True)) for other in others)
    print(f"two workers: {worker:.2f} times one worker, {process:.2f} times one process with two threads")
    print(f"largest difference to one process: {worst:.1e}")
    if worst > TOLERANCE or worker < RATIO or process < 1:
        sys.exit("this falls short of what is claimed")


if __name__ == "__main__":
    main()
