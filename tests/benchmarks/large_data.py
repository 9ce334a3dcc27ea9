"""Training on data that does not fit in memory: resident memory of generated pairs, and a stream that is killed.

python -m tests.benchmarks.large_data [--pairs 10000000] [--rows 200000] [--steps 50] [--limit 600] [--folder DIR]

Memory: the pairs are generated as Arrow and Parquet, and trained on as a memory-mapped ``datasets.Dataset`` and as a
stream of row groups, each in a process of its own. "anonymous" is what the process has allocated, "file" what is mapped
from files and can be dropped at any time; both at most, and anonymous also before the data is opened. Kill: two epochs
over the rows as a stream, with a kill -9 in each, give the same weights as rows in memory. The model is a tiny random
BERT, so that the data counts.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import torch
from torch import Tensor

from sbert import Pooling, SentenceEncoder, Trainer, TrainingConfig, Transformer
from sbert.training import Callback, ParquetRows, Progress
from tests import small

WORDS = np.array("boat lake fox hills winter small quiet red seven green one two three four five six".split())
_GROUP = 100_000


def ranking(anchor: Tensor, positive: Tensor) -> Tensor:
    """A loss that needs no other column."""
    return 1 - torch.cosine_similarity(anchor, positive).mean()


def tables(pairs: int) -> Iterator[pa.Table]:
    """Pairs of eight words, in tables of 100,000."""
    for start in range(0, pairs, _GROUP):
        generator, count = np.random.default_rng(start), min(_GROUP, pairs - start)
        texts = [[" ".join(row) for row in WORDS[generator.integers(0, 16, (count, 8))]] for _ in range(2)]
        yield pa.table({"anchor": texts[0], "positive": texts[1]})


def generate(folder: Path, pairs: int) -> None:
    """Write ``pairs.arrow`` and ``parquet/*.parquet``, unless they are there."""
    if (folder / "pairs.arrow").exists():
        return
    (folder / "parquet").mkdir(parents=True, exist_ok=True)
    schema = pa.schema({"anchor": pa.string(), "positive": pa.string()})
    with pa.OSFile(str(folder / "part.arrow"), "wb") as file, pa.ipc.new_stream(file, schema) as writer:
        for number, table in enumerate(tables(pairs)):
            writer.write_table(table, max_chunksize=1000)
            pyarrow.parquet.write_table(table, folder / "parquet" / f"{number:05}.parquet", row_group_size=10_000)
    (folder / "part.arrow").rename(folder / "pairs.arrow")


def encoder(folder: Path) -> SentenceEncoder:
    """A tiny random BERT, the same in every process."""
    if not (folder / "bert").exists():
        small.bert(folder / "bert")
    return SentenceEncoder(Transformer(folder / "bert"), Pooling("mean"), device="cpu")


def resident() -> tuple[float, float]:
    """Anonymous and file-backed resident memory of this process, in MB."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text("utf-8").splitlines())
    return int(status["RssAnon"].split()[0]) / 1024, int(status["RssFile"].split()[0]) / 1024


def measure(folder: Path, form: str, steps: int) -> None:
    """Train on the pairs in one form, and print the memory and the seconds until the first step and of all."""
    model = encoder(folder)
    before, peak, ended = resident()[0], [0.0, 0.0], threading.Event()

    def watch() -> None:
        while not ended.wait(0.05):
            peak[:] = map(max, peak, resident())

    threading.Thread(target=watch, daemon=True).start()
    started = time.perf_counter()
    if form == "mapped":
        from datasets import Dataset

        data: Any = Dataset.from_file(str(folder / "pairs.arrow"))
    else:
        data = ParquetRows(folder / "parquet")
    Trainer(model, data, ranking, TrainingConfig(steps=steps, batch_size=64)).fit(show_progress_bar=False)
    seconds = time.perf_counter() - started
    ended.set()
    print(json.dumps([before, *map(max, peak, resident()), seconds]))


class Kill(Callback):
    """Kills its process after a step."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step(self, progress: Progress) -> None:
        if progress.step == self.step:
            os.kill(os.getpid(), signal.SIGKILL)


def run(folder: Path, form: str, steps: int, kill: int) -> None:
    """Two epochs in ``steps`` steps over the Parquet files, as a stream or in memory; killed after a step."""
    data: Any = ParquetRows(folder / "parquet")
    order: dict[str, Any] = {"shuffle_buffer": 1} if form == "stream" else {"sampler": "in_order"}
    config = TrainingConfig(
        output=folder / form, steps=steps, batch_size=64, checkpoint_every=max(1, steps // 10), **order
    )
    model, rows = encoder(folder), data if form == "stream" else list(data)
    Trainer(model, rows, ranking, config, callbacks=[Kill(kill)]).fit(resume=True, show_progress_bar=False)


def child(*arguments: object) -> subprocess.CompletedProcess[str]:
    """This program in a process of its own."""
    command = [sys.executable, "-m", "tests.benchmarks.large_data", *map(str, arguments)]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)


def killed(folder: Path, rows: int) -> bool:
    """Whether a stream that is killed in each of two epochs ends with the weights of rows in memory."""
    generate(folder, rows)
    steps = 2 * -(-rows // 64)
    first, second = steps // 4 + 1, 3 * steps // 4 + 1
    codes = [
        child("--run", "stream", "--folder", folder, "--steps", steps, "--kill", kill).returncode
        for kill in (first, second, -1)
    ]
    codes.append(child("--run", "memory", "--folder", folder, "--steps", steps, "--kill", -1).returncode)
    assert codes == [-signal.SIGKILL, -signal.SIGKILL, 0, 0], codes
    one, two = (SentenceEncoder(folder / form / "final", device="cpu").state_dict() for form in ("stream", "memory"))
    same = all(torch.equal(one[name], two[name]) for name in one)
    print(f"{rows:,} rows, {steps:,} steps, killed after steps {first:,} and {second:,}: same weights: {same}")
    return same


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=10_000_000)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--limit", type=float, default=600, help="anonymous MB of a process")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--measure", choices=["mapped", "stream"], help=argparse.SUPPRESS)
    parser.add_argument("--run", choices=["stream", "memory"], help=argparse.SUPPRESS)
    parser.add_argument("--kill", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        return measure(options.folder, options.measure, options.steps)
    if options.run:
        return run(options.folder, options.run, options.steps, options.kill)
    with tempfile.TemporaryDirectory() as made:
        folder = options.folder or Path(made)
        generate(folder / "large", options.pairs)
        good = True
        print(f"{options.pairs:,} pairs, {options.steps} steps of 64, MB resident at most:")
        for form in ("mapped", "stream"):
            done = child("--measure", form, "--folder", folder / "large", "--steps", options.steps)
            before, anonymous, files, seconds = json.loads(done.stdout.splitlines()[-1])
            print(f"{form}: anonymous {anonymous:.0f} ({before:.0f} before), file {files:.0f}; {seconds:.1f} s")
            good = good and anonymous <= options.limit
        good = killed(folder / "small", options.rows) and good
    sys.exit(not good)


if __name__ == "__main__":
    main()
