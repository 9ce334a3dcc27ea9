"""Parquet files encoded by two workers of one thread, one of which is killed: each engine beside one process.

python -m tests.benchmarks.engines [--texts 24000] [--files 24] [--model FOLDER] [--ways one,pool,shards,ray,dask]

Each way runs in a program of its own, without and with a kill -9 of a worker in the middle of its work, and must write
every row once, with the vectors of ``encode``. Ways whose package is not installed are left out. "in all" includes
imports and the start of the engine; "work" begins when the engine has started, and includes loading the model.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tests.benchmarks.texts import texts as captions

WORKERS = 2


class Way(NamedTuple):
    """How to encode the files of a folder to another one.

    Args:
        run: A function of the two folders and the model.
        package: What it needs.
        worker: A word of the command line of its workers; "" if there are none.
        again: Whether the same command is to be given again after a kill.
    """

    run: Callable[[Path, Path, str | None], None]
    package: str = "pyarrow"
    worker: str = ""
    again: bool = False


class Result(NamedTuple):
    """What a program has done: seconds, seconds of its work, rows lost, rows too many, largest difference."""

    seconds: float
    work: float
    lost: int
    twice: int
    difference: float


def begun() -> None:
    """Tell the parent that the work begins."""
    print("begun", flush=True)


def table(source: Path) -> Any:
    from pyarrow import parquet

    return parquet.read_table(source)


def write(out: Path, ids: Any, vectors: Any) -> None:
    """One Parquet file of ids and vectors."""
    from pyarrow import FixedSizeListArray, Table, array, parquet

    listed = FixedSizeListArray.from_arrays(array(vectors.reshape(-1)), vectors.shape[1])
    out.mkdir()
    parquet.write_table(Table.from_arrays([ids, listed], ["id", "vector"]), out / "all.parquet")


def one(source: Path, out: Path, model: str | None, devices: list[str] | None = None) -> None:
    """One process, or a pool of processes that share the model."""
    from sbert.integrations.loading import loaded

    begun()
    rows, encoder = table(source), loaded(model, device="cpu")
    if devices:
        with encoder.pool(devices) as pool:
            write(out, rows["id"], encoder.encode(rows["text"].to_pylist(), pool=pool))
    else:
        write(out, rows["id"], encoder.encode(rows["text"].to_pylist()))


def with_ray(source: Path, out: Path, model: str | None) -> None:
    """``encode_files``."""
    import ray

    from sbert.integrations.ray import encode_files

    ray.init(num_cpus=WORKERS, include_dashboard=False, object_store_memory=200 << 20, log_to_driver=False)
    begun()
    encode_files([str(source)], str(out), model, keep=["id"], actors=WORKERS)


def with_dask(source: Path, out: Path, model: str | None) -> None:
    """``map_partitions``."""
    import dask.dataframe
    from distributed import Client

    from sbert.integrations.dask import embed

    with Client(n_workers=WORKERS, threads_per_worker=1, dashboard_address=None):
        begun()
        frame = dask.dataframe.read_parquet(source)
        meta = embed(frame._meta, model, device="cpu")
        frame.map_partitions(embed, model, device="cpu", meta=meta).to_parquet(out)


def with_shards(source: Path, out: Path, model: str | None) -> None:
    """``sbert encode --shard`` by xargs; finished shards are skipped, and a killed one goes on where it was."""
    begun()
    out.mkdir(exist_ok=True)
    command = f"{sys.executable} -m sbert encode {model or 'sbert-mini'} {source} --column text --keep id --device cpu"
    command += f" --quiet -o {out}/vectors.parquet --shard {{}}/{WORKERS}"
    xargs = ["xargs", "-P", str(WORKERS), "-I", "{}", *command.split()]
    shards = "\n".join(map(str, range(WORKERS)))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "RAYON_NUM_THREADS": "1"}
    sys.exit(subprocess.run(xargs, input=shards, text=True, env=environment, check=False).returncode)


WAYS = {
    "one": Way(one),
    "pool": Way(partial(one, devices=["cpu"] * WORKERS), worker="sbert"),
    "shards": Way(with_shards, worker="--shard", again=True),
    "ray": Way(with_ray, "ray", "ray::MapWorker"),
    "dask": Way(with_dask, "distributed", "spawn_main"),
}


def processes(word: str, parent: int | None = None) -> list[int]:
    """The processes below a process that have a word in their command line and no processes of their own."""
    import psutil

    found = []
    for process in psutil.Process(parent).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if word in " ".join(process.cmdline()) and not process.children():
                found.append(process.pid)
    return found


def corpus(folder: Path, count: int, files: int) -> None:
    """Parquet files of ids and texts."""
    from pyarrow import parquet, table

    folder.mkdir()
    texts = captions(count)
    for number, rows in enumerate(np.array_split(np.arange(count), files)):
        written = table({"id": rows, "text": [texts[row] for row in rows]})
        parquet.write_table(written, folder / f"part-{number:05}.parquet")


def timed(name: str, source: Path, out: Path, model: str | None, kill_after: float | None) -> tuple[float, float]:
    """Seconds of a program from its start and from the start of its engine; a worker is killed after some seconds."""
    way, begin, work = WAYS[name], time.perf_counter(), 0.0
    command = [sys.executable, "-m", "tests.benchmarks.engines", "--run", name, str(source), str(out)]
    threads = str(WORKERS if name in ("one", "pool") else 1)
    environment = {**os.environ, "OMP_NUM_THREADS": threads, "RAYON_NUM_THREADS": threads, "PYTHONWARNINGS": "ignore"}
    while True:
        program = subprocess.Popen(
            [*command, *([model] if model else [])], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert program.stdout is not None
        started = next((time.perf_counter() for line in program.stdout if line == b"begun\n"), begin)
        killed = kill_after is not None
        if kill_after is not None:
            time.sleep(kill_after)
            os.kill(processes(way.worker, program.pid)[-1], signal.SIGKILL)
            kill_after = None
        _, errors = program.communicate()
        work += time.perf_counter() - started
        if program.returncode == 0:
            return time.perf_counter() - begin, work
        if not (way.again and killed):
            raise RuntimeError(f"{name} ended with {program.returncode}:\n{errors.decode()[-3000:]}")


def checked(seconds: tuple[float, float], out: Path, expected: Any) -> Result:
    """The rows in the output, compared with the vectors of ``encode``."""
    from pyarrow import concat_tables

    files = [file for file in sorted(out.rglob("*.parquet")) if file.name[0] not in "._"]
    rows = concat_tables([table(file).select(["id", "vector"]) for file in files])
    ids = rows["id"].to_numpy()
    chunks = [chunk for chunk in rows["vector"].chunks if len(chunk)]
    vectors = np.concatenate([chunk.flatten().to_numpy().reshape(len(chunk), -1) for chunk in chunks])
    once = len(np.unique(ids))
    return Result(*seconds, len(expected) - once, len(ids) - once, float(np.abs(vectors - expected[ids]).max()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=24_000)
    parser.add_argument("--files", type=int, default=24)
    parser.add_argument("--model", help="default: the model of the library")
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--run", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        name, source, out, *model = options.run
        WAYS[name].run(Path(source), Path(out), model[0] if model else None)
        return
    from sbert.integrations.loading import loaded

    expected = loaded(options.model, device="cpu").encode(captions(options.texts))
    print(f"{options.texts:,} texts in {options.files} files, {WORKERS} workers of one thread")
    print("| way | kill -9 | seconds in all | of work | lost | twice | max difference |\n|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "corpus"
        corpus(source, options.texts, options.files)
        for name in options.ways.split(","):
            if not find_spec(WAYS[name].package):
                print(f"| {name} | {WAYS[name].package} is not installed |")
                continue
            after = None
            for number in range(1 + bool(WAYS[name].worker)):
                out = Path(folder) / f"{name}-{number}"
                result = checked(timed(name, source, out, options.model, after), out, expected)
                print(f"| {name} | {number} | {result.seconds:.1f} | {result.work:.1f} | {result.lost} | {result.twice}"
                      f" | {result.difference:.1e} |", flush=True)  # fmt: skip
                assert result.lost == result.twice == 0, result
                assert result.difference < 1e-6, result
                after = 0.6 * result.work


if __name__ == "__main__":
    main()
