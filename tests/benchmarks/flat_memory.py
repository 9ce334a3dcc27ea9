"""Resident memory during many calls of ever new lengths, and during one call of many texts; a text of 10 MB.

python -m tests.benchmarks.flat_memory [--calls 10000] [--texts 1000000] [--megabytes 10]

A cache of views, shapes or reports that is never emptied shows as growth. The second half of the calls, and of the
texts, may add 2 % to the memory after the first. The model is a random BERT of two layers, so that ten thousand calls
take a minute; the text of 10 MB is for the model that comes with the library.
"""

from __future__ import annotations

import argparse
import gc
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import numpy as np

from sbert import Pooling, SentenceEncoder, Transformer
from sbert.pipeline import beginnings
from tests import small
from tests.memory import STATUS

PARTS = 10
GROWTH = 1.02


def resident(name: str = "VmRSS") -> float:
    """MB of this process in memory, or at most so far (``VmHWM``)."""
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) / 1024


def check(what: str, course: list[float]) -> None:
    """Print the course of the memory; it must not grow in its second half."""
    print(f"{what}: {' '.join(f'{size:.0f}' for size in course)} MB")
    half, end = course[len(course) // 2 - 1], course[-1]
    assert end < GROWTH * half, f"{what}: {half:.0f} MB after the first half, {end:.0f} at the end"


def words(generator: np.random.Generator, number: int) -> str:
    return " ".join(generator.choice(small.words(), number))


def calls(model: SentenceEncoder, number: int, deterministic: bool) -> None:
    """Calls of one to four texts of 1 to 60 words, so that hardly any two have the same shapes."""
    generator, course = np.random.default_rng(0), []
    for call in range(number):
        model.encode(
            [words(generator, size) for size in generator.integers(1, 60, generator.integers(1, 5))],
            deterministic=deterministic,
        )
        if (call + 1) % (number // PARTS) == 0:
            gc.collect()
            course.append(resident())
    check(f"{number} calls{', deterministic' * deterministic}", course)


def many(model: SentenceEncoder, number: int) -> None:
    """One call, from an iterator to a file."""
    generator, course = np.random.default_rng(1), []
    known = [words(generator, size) for size in generator.integers(1, 20, 1000)]

    def texts() -> Iterator[str]:
        for row in range(number):
            if (row + 1) % (number // PARTS) == 0:
                course.append(resident())
            yield f"{known[row % 1000]} {row}"

    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        model.encode(texts(), out=Path(folder) / "vectors.npy", show_progress_bar=False)
        print(f"{number / (time.perf_counter() - start):.0f} texts/s")
    check(f"{number} texts to a file", course)


def measured(call: Callable[[], object]) -> str:
    """Seconds and the growth of the peak."""
    Path("/proc/self/clear_refs").write_text("5")  # Resets the peak.
    before, start = resident(), time.perf_counter()
    call()
    return f"{time.perf_counter() - start:.3f} s, {max(0, resident('VmHWM') - before):.0f} MB more"


def one_text(megabytes: int) -> None:
    """With a beginning of the text tokenized, as it is, and with all of it, as it was."""
    model = SentenceEncoder(device="cpu")
    text = "a small boat lies on the quiet lake " * (megabytes * 10**6 // 36)
    expected = model.encode(text[:100_000])
    print(f"{megabytes} MB of text: {measured(lambda: model.encode(text))}")
    assert (model.encode(text) == expected).all()
    with mock.patch.object(beginnings, "_LEAST", 10**12):
        print(f"tokenized as a whole: {measured(lambda: model.encode(text))}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--texts", type=int, default=1_000_000)
    parser.add_argument("--megabytes", type=int, default=10)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        transformer = Transformer(small.bert(Path(folder) / "bert"))
    model = SentenceEncoder(transformer, Pooling("mean"), device="cpu")
    for deterministic in (False, True):
        calls(model, given.calls, deterministic)
    many(model, given.texts)
    one_text(given.megabytes)


if __name__ == "__main__":
    main()
