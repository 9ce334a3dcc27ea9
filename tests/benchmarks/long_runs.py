"""Long calls of ``encode(out=)``: memory, speed, kills, interrupts and full disks.

python -m tests.benchmarks.long_runs [--texts 5000000] [--kills 30] [--interrupts 10] [--full 10] [--rounds 9]

The model is a random BERT of two layers and a layer to 384 dimensions, which encodes 5,000,000 texts of some words in
minutes. ``--model`` names another one. A part whose number is 0 is left out.

- Memory: the peak of a process that writes ``--texts`` texts, beside that of one for 50,000; at most 300 MB more.
- Speed: ``--sample`` texts in memory and to a file, in turn; the median of the ratios, at least 0.95.
- Kills: a process is killed at random moments and started again, SIGKILL and SIGINT in turn by chance, for .npy and
  Parquet; then the file must equal one that was never interrupted, to the last byte. Texts that were encoded without
  getting to the disk are counted for each kill.
- Full disks: a file system in memory that is full ``--full`` times, and is made larger by a part each time.
"""

from __future__ import annotations

import argparse
import filecmp
import multiprocessing
import os
import random
import resource
import signal
import statistics
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from typing import Any

import torch

from sbert import Dense, Pooling, SentenceEncoder, Transformer
from sbert.data import Texts
from sbert.pipeline.progress import Report
from sbert.vector_files import writing
from sbert.vector_files.shards import status
from tests import small

FEW, MORE_MB, LEAST_RATIO = 50_000, 300, 0.95


def texts(number: int) -> Iterator[str]:
    """Texts of 3 to 12 words, no two of them equal."""
    chance, words = random.Random(0), [word for word in small.words() if len(word) > 1]
    for row in range(number):
        yield " ".join(chance.choices(words, k=2 + row % 10)) + f" {row}"


def load(name: str | None) -> SentenceEncoder:
    """The model of that name, or a random one."""
    if name:
        return SentenceEncoder(name, device="cpu")
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        return SentenceEncoder(
            Transformer(small.bert(Path(folder))),
            Pooling("mean"),
            Dense(16, 384),
            device="cpu",
        )


def write(model: SentenceEncoder, out: Path, number: int) -> None:
    """Encode texts from an iterator to a file; a Parquet file gets their numbers as a column."""
    source: Any = texts(number)
    if out.suffix == ".parquet":
        source = Texts.of(source, id=range(number))
    model.encode(source, out=out, show_progress_bar=False)


# ------------------------------------------------------------------------------------------ memory and speed


def peak(name: str | None, number: int) -> tuple[float, float]:
    """MB at most of a new process that writes a file, and texts per second."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_peak, (name, number))


def _peak(name: str | None, number: int) -> tuple[float, float]:
    warnings.simplefilter("ignore")
    model = load(name)
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        write(model, Path(folder) / "vectors.npy", number)
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, number / (time.perf_counter() - start)


def memory(name: str | None, number: int) -> None:
    """Compare the peaks."""
    few, _ = peak(name, FEW)
    many, rate = peak(name, number)
    print(f"| memory at most | {FEW:,} texts: {few:.0f} MB; {number:,}: {many:.0f} MB, {rate:,.0f} texts/s |")
    assert many < few + MORE_MB


def speed(model: SentenceEncoder, number: int, rounds: int) -> None:
    """Compare the rates."""
    given = list(texts(number))
    model.encode(given[:2000])
    ratios, rates, work = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(rounds):
            start, before = time.perf_counter(), time.process_time()
            model.encode(given, show_progress_bar=False)
            middle, half = time.perf_counter(), time.process_time()
            model.encode(given, out=Path(folder) / "vectors.npy", show_progress_bar=False)
            end, after = time.perf_counter(), time.process_time()
            ratios.append((middle - start) / (end - middle))
            work.append((after - half) / (half - before))
            rates.append(number / (end - middle))
    ratio = statistics.median(ratios)
    print(
        f"| rate to a file | {statistics.median(rates):,.0f} texts/s, {ratio:.3f} of that in memory;"
        f" {statistics.median(work):.3f} times the processor time |"
    )
    assert ratio > LEAST_RATIO


# ------------------------------------------------------------------------------------------------ kills


def forked(work: Callable[[], None]) -> int:
    """The id of a forked process; it ends with 0 if it came to its end."""
    child = os.fork()
    if not child:
        code = 1
        try:
            work()
            code = 0
        except KeyboardInterrupt:
            code = 130
        finally:
            os._exit(code)
    return child


def kills(model: SentenceEncoder, suffix: str, number: int, kinds: list[signal.Signals]) -> None:
    """Kill a process at random moments, and start it again."""
    chance = random.Random(0)
    chance.shuffle(kinds)
    encoded: Synchronized[int] = multiprocessing.Value("q", 0)
    advance = Report.done

    def counted(self: Report, sentences: int) -> None:
        encoded.value += sentences if self.warned is not None else 0  # Not the text that tells the dimension.
        advance(self, sentences)

    Report.done = counted  # type: ignore[method-assign]
    with tempfile.TemporaryDirectory() as name:
        whole, out = Path(name) / f"whole{suffix}", Path(name) / f"vectors{suffix}"
        start = time.perf_counter()
        write(model, whole, number)
        taken = time.perf_counter() - start
        again = []
        for kind in kinds:
            before, encoded.value = sum(part.rows for part in status(out)), 0
            child = forked(lambda: write(model, out, number))
            time.sleep(chance.uniform(0, 3 * taken / len(kinds)))
            os.kill(child, kind)
            _, code = os.waitpid(child, 0)
            assert code in (kind, 130 << 8, 0), code
            if not code:
                out.unlink()
                again.append(0)
                continue
            again.append(encoded.value - (sum(part.rows for part in status(out)) - before))
        write(model, out, number)
        assert filecmp.cmp(whole, out, shallow=False), "another file than without kills"
        assert len(os.listdir(name)) == 2, os.listdir(name)
    Report.done = advance  # type: ignore[method-assign]
    window = writing._WINDOW
    over = sum(texts > window for texts in again)
    print(
        f"| {len(kinds)} kills, {suffix} | {number:,} texts: the same file; encoded again per kill: median"
        f" {statistics.median(again):,.0f}, at most {max(again):,} of windows of {window:,}; {over} times over one |"
    )
    assert max(again) <= 2 * window


# -------------------------------------------------------------------------------------------- full disks


def full(model: SentenceEncoder, suffix: str, number: int, times: int) -> None:
    """Fill a file system, which is made larger each time."""
    with tempfile.TemporaryDirectory() as name:
        whole, small_disk = Path(name) / f"whole{suffix}", Path(name) / "disk"
        write(model, whole, number)
        small_disk.mkdir()
        need = whole.stat().st_size * (1 if suffix == ".npy" else 2)
        mount = ["mount", "-t", "tmpfs", "tmpfs", str(small_disk), "-o"]
        subprocess.run([*mount, f"size={need // (times + 1)}"], check=True)
        try:
            for attempt in range(times):
                subprocess.run([*mount, f"remount,size={need * (attempt + 1) // (times + 1)}"], check=True)
                try:
                    write(model, small_disk / whole.name, number)
                except OSError as error:
                    assert "is full; what was encoded is kept" in str(error)
                else:
                    raise AssertionError("the disk was not full")
            rows = status(small_disk / whole.name)[0].rows
            subprocess.run([*mount, f"remount,size={2 * need + 2**20}"], check=True)
            write(model, small_disk / whole.name, number)
            assert filecmp.cmp(whole, small_disk / whole.name, shallow=False), "another file than with room"
            assert os.listdir(small_disk) == [whole.name]
        finally:
            subprocess.run(["umount", "-l", str(small_disk)], check=True)
    print(
        f"| {times} full disks, {suffix} | the same file; {rows:,} of {number:,} rows were kept before the last call |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=5_000_000)
    parser.add_argument("--sample", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--interrupts", type=int, default=10)
    parser.add_argument("--full", type=int, default=10)
    parser.add_argument("--interrupted", type=int, default=300_000, help="texts of the calls that are interrupted")
    parser.add_argument("--window", type=int, default=4096, help="rows of their windows")
    parser.add_argument("--model")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| what | figure |\n|---|---|")
    if given.texts:
        memory(given.model, given.texts)
    model = load(given.model)
    if given.rounds:
        speed(model, given.sample, given.rounds)
    writing._WINDOW = given.window
    for suffix in (".npy", ".parquet"):
        if given.kills + given.interrupts:
            kinds = [signal.SIGKILL] * given.kills + [signal.SIGINT] * given.interrupts
            kills(model, suffix, given.interrupted, kinds)
        if given.full:
            full(model, suffix, given.interrupted, given.full)


if __name__ == "__main__":
    main()
