"""Calls of ``encode(out=)`` that are killed at random moments: the bytes of the file, and the work that is done twice.

python -m tests.benchmarks.kills [--kills 30] [--texts 20000] [--model FOLDER] [--seconds 20] [--shortest 3]

A program of its own encodes to a file of each format, is killed by SIGKILL some seconds after it has begun, between
``--shortest`` and ``--seconds``, and is started again, until it has ended. The file must equal, to the last byte, that
of a call that was never killed. What was encoded without being kept is printed in seconds per kill: all but a batch of
the last five seconds is kept, whatever the speed of the model (``--slow 0.5`` sleeps as long in each batch).
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sbert import SentenceEncoder
from sbert.data import Texts
from sbert.pipeline.encode import Encoding
from tests.benchmarks.texts import texts

FORMATS: dict[str, dict[str, Any]] = {
    "float32.npy": {},
    "float16.npy": {"precision": "float16"},
    "bits.npy": {"precision": "ubinary"},
    "int8.npy": {"precision": "int8"},
    "vectors.parquet": {},
    "folder/": {},
}


class Slow(torch.nn.Module):
    """Sleeps, and gives the vectors back."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        time.sleep(self.seconds)
        return vectors


def write(options: argparse.Namespace, name: str, folder: Path) -> None:
    """Encode to a file; a line of the log says when each batch was done, and how many rows it has."""
    torch.set_num_threads(1)
    model = SentenceEncoder(options.model, device="cpu")
    if options.slow:
        model.append(Slow(options.slow))
    given: Any = texts(options.texts)
    settings = dict(FORMATS[name])
    if name == "int8.npy":
        settings["ranges"] = np.array([[-0.2], [0.2]], np.float32).repeat(model.get_sentence_embedding_dimension(), 1)
    if name.endswith(".parquet"):
        given = Texts.of(given, id=range(options.texts))
    finish = Encoding.finish

    with (folder / "log").open("a") as log:

        def logged(self: Encoding, output: torch.Tensor) -> torch.Tensor:
            log.write(f"{time.monotonic()} {len(output)}\n")
            log.flush()
            return finish(self, output)

        Encoding.finish = logged  # type: ignore[method-assign]
        print("begun", flush=True)
        model.encode(given, out=f"{folder}/{name}", show_progress_bar=False, **settings)


def run(options: argparse.Namespace, name: str, folder: Path, after: float | None) -> bool:
    """Whether a program has come to its end, and was not killed some seconds after it began."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.benchmarks.kills", "--run", name, str(folder)]
    for option in ("model", "texts", "slow"):
        command += [f"--{option}", str(getattr(options, option))]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        program.stdout.readline()
        try:
            code = program.wait(after)
        except subprocess.TimeoutExpired:
            os.kill(program.pid, signal.SIGKILL)
            return False
    assert code == 0, code
    return True


def logged_seconds(folder: Path) -> tuple[int, float]:
    """The rows of all programs so far, and the seconds of a row."""
    lines = [line.split() for line in (folder / "log").read_text().splitlines()]
    times, rows = [float(line[0]) for line in lines], [int(line[1]) for line in lines]
    gaps = [min(60.0, later - time) for time, later in pairwise(times)]
    return sum(rows), sum(gaps) / max(1, sum(rows[1:]))


def contents(folder: Path) -> dict[str, bytes]:
    """All files but those that say how long it took."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {path.name: path.read_bytes() for path in files if path.suffix != ".manifest" and path.name != "log"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=30, help="at most, in each format")
    parser.add_argument("--texts", type=int, default=20_000)
    parser.add_argument("--model", default="sbert-mini")
    parser.add_argument("--shortest", type=float, default=3.0)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--slow", type=float, default=0.0)
    parser.add_argument("--formats", default=",".join(FORMATS))
    parser.add_argument("--run", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        write(options, options.run[0], Path(options.run[1]))
        return
    chance = random.Random(0)
    print("| file | kills | same bytes | seconds done twice per kill |\n|---|---|---|---|")
    for name in options.formats.split(","):
        with tempfile.TemporaryDirectory() as whole, tempfile.TemporaryDirectory() as killed:
            assert run(options, name, Path(whole), None)
            kills = 0
            while kills < options.kills:
                if run(options, name, Path(killed), chance.uniform(options.shortest, options.seconds)):
                    break
                kills += 1
            else:
                assert run(options, name, Path(killed), None)
            (rows, seconds), (needed, _) = logged_seconds(Path(killed)), logged_seconds(Path(whole))
            twice = max(0.0, rows - needed) * seconds / max(1, kills)
            same = contents(Path(whole)) == contents(Path(killed))
            print(f"| {name} | {kills} | {'yes' if same else 'NO'} | {twice:.1f} |", flush=True)
            assert same, name


if __name__ == "__main__":
    main()
