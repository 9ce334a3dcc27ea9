"""Pools of worker processes: the same vectors as one process, whatever happens to the workers and to their parent."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import re
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sbert import CrossEncoder, SentenceEncoder, StaticEmbedding
from sbert.evaluation import SimilarityEvaluator
from sbert.pipeline import pool as pools
from sbert.pipeline.pool import Pool, WorkerError
from sbert.storage.atomic import temporary_folder
from sbert.vector_files.manifest import Manifest, PartEntry
from tests import small
from tests.pipeline import orders

TEXTS = [f"{a} {b} {c}" for a in ("red fox", "lake") for b in ("one", "two", "three") for c in small.CORPUS[:2]] * 4
ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="workers are looked at in /proc")


@pytest.fixture(scope="module")
def pool(model: SentenceEncoder) -> Iterator[Pool]:
    with model.pool(["cpu", "cpu"]) as pool:
        yield pool


def ask(pool: Pool, function: Any, *arguments: Any, times: int = 1) -> list[Any]:
    futures = [pool.submit(function, arguments, f"rows[{row}]") for row in range(times)]
    return [future.result() for future in futures]


def is_alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def gone(ids: list[int], seconds: float = 10) -> bool:
    """Whether processes end within a time."""
    end = time.monotonic() + seconds
    while any(map(is_alive, ids)) and time.monotonic() < end:
        time.sleep(0.02)
    return not any(map(is_alive, ids))


# ------------------------------------------------------------------------------------------------- vectors and windows


def test_a_pool_is_used_in_place_of_its_model(model: SentenceEncoder, pool: Pool, tmp_path: Path) -> None:
    expected = model.encode(TEXTS)
    for given, size in ((TEXTS, None), (TEXTS, 1), (iter(TEXTS), 5), (TEXTS, 1000)):
        assert np.allclose(pool.encode(given, chunk_size=size), expected, atol=1e-6)
    assert pool.encode([]).shape == (0, 16)
    for given in (pool, None):
        assert np.allclose(pool.encode_query(TEXTS, pool=given), expected, atol=1e-6)
    assert np.allclose(model.encode_multi_process([TEXTS[0]], pool)[0], pool.encode(TEXTS[0]), atol=1e-6)
    tokens = pool.encode(TEXTS, chunk_size=2, output_value="token_embeddings")
    for mine, right in zip(tokens, model.encode(TEXTS, output_value="token_embeddings"), strict=True):
        torch.testing.assert_close(mine, right, atol=1e-6, rtol=0)
    assert np.array_equal(pool.encode(TEXTS, precision="ubinary"), model.encode(TEXTS, precision="ubinary"))
    assert pool.get_sentence_embedding_dimension() == 16
    evaluator = SimilarityEvaluator(TEXTS[:9], TEXTS[3:12], np.linspace(0, 1, 9))
    assert evaluator(pool) == pytest.approx(evaluator(model), abs=1e-5)
    assert np.allclose(pool.encode(iter(TEXTS), out=tmp_path / "vectors.npy"), expected, atol=1e-6)


def test_truncated_texts_are_one_warning(
    folder: Path, model: SentenceEncoder, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = ["one " * 100, "two", "three " * 100, "two", "one " * 100]
    with pytest.warns(UserWarning, match="3 of 5 sentences were truncated") as caught:
        pool.encode(long, chunk_size=1)
    assert len(caught) == 1
    with pytest.raises(ValueError, match=r"sentences\[[24]\] has more than"):
        pool.encode(long[1:2] * 2 + long, chunk_size=1, on_truncate="error")
    with pytest.raises(ValueError, match="made for another model"):
        SentenceEncoder(folder, device="cpu").encode(TEXTS, pool=pool)
    with pytest.raises(ValueError, match="devices is empty"):
        model.encode(TEXTS, device=[])
    monkeypatch.setattr(model, "max_seq_length", 5)
    found = pool.encode(TEXTS, on_truncate="ignore")
    assert np.allclose(found, model.encode(TEXTS, on_truncate="ignore"), atol=1e-6)


def test_what_a_pool_refuses(pool: Pool) -> None:
    for device in ("cpu", ["cpu", "cpu"]):
        with pytest.raises(ValueError, match=r"device=.*cpu.* and pool= were passed; pass one: a pool has"):
            pool.encode(TEXTS, device=device)
    for copied in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match=r"a pool cannot be pickled or copied; pass the model, and call its pool"):
            copied(pool)


def test_an_error_has_the_traceback_of_the_worker(pool: Pool) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        ask(pool, orders.private_bytes_of, "no such file")
    assert isinstance(caught.value.__cause__, WorkerError)
    assert re.search(r'orders.py", line \d+, in private_bytes_of', str(caught.value.__cause__))


def test_who_is_done_takes_the_next_window_and_order_is_kept(pool: Pool, tmp_path: Path) -> None:
    ask(pool, orders.pid, 0.2, times=2)
    done = ask(pool, orders.slow_for_one, str(tmp_path / "slow"), times=12)
    assert sorted(Counter(done).values()) == [1, 11]
    assert 1 in (done.count(done[0]), done.count(done[1]))  # What took longest was one of the first two, and still is.


def test_windows_are_read_as_far_ahead_as_workers_need(
    model: SentenceEncoder, pool: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sbert.vector_files.write._WINDOW", 1024)
    read = 0

    def texts() -> Iterator[str]:
        nonlocal read
        for row in range(20_000):
            read += 1
            yield f"{row} one two"

    add, ahead = Manifest.add, []

    def counted(self: Manifest, part: PartEntry) -> None:
        ahead.append(read - part.rows)
        add(self, part)

    monkeypatch.setattr(Manifest, "add", counted)
    vectors = pool.encode(texts(), out=tmp_path / "v.npy", chunk_size=64)
    assert np.allclose(vectors[::99], model.encode([f"{row} one two" for row in range(0, 20_000, 99)]), atol=1e-6)
    assert len(ahead) == 20
    assert max(ahead[:10]) <= 1024 * 5


def test_threads_share_a_pool(model: SentenceEncoder, pool: Pool) -> None:
    parts = [TEXTS[start : start + 20] for start in range(8)]
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda part: pool.encode(part, chunk_size=3), parts))
    for part, vectors in zip(parts, found, strict=True):
        assert np.allclose(vectors, model.encode(part), atol=1e-6)


@pytest.mark.slow  # Workers import torch.
def test_pairs_are_scored_by_a_pool(folder: Path) -> None:
    scorer = CrossEncoder(folder, device="cpu", classes=1)
    pairs = list(zip(TEXTS, reversed(TEXTS), strict=True))
    with scorer.pool(["cpu"]) as pool:
        assert np.allclose(pool.predict(pairs, chunk_size=7), scorer.predict(pairs), atol=1e-6)
        assert pool.predict(pairs[0]).shape == ()
        ranked = pool.rank("red fox", TEXTS, chunk_size=7)
    scores = {entry["corpus_id"]: entry["score"] for entry in scorer.rank("red fox", TEXTS)}
    assert [entry["score"] for entry in ranked] == pytest.approx([scores[entry["corpus_id"]] for entry in ranked])
    with pytest.raises(RuntimeError, match="the pool is closed"):
        pool.rank("red fox", TEXTS)


def test_each_worker_has_its_share_of_threads(pool: Pool) -> None:
    assert ask(pool, orders.threads) == [max(1, torch.get_num_threads() // 2)]


# ----------------------------------------------------------------------------------------------------- killed processes


def test_a_killed_worker_is_replaced(model: SentenceEncoder, pool: Pool, tmp_path: Path) -> None:
    expected = model.encode(TEXTS)
    for _ in range(5):
        os.kill(ask(pool, orders.pid)[0], signal.SIGKILL)
        assert np.allclose(pool.encode(TEXTS, chunk_size=2), expected, atol=1e-6)
    assert ask(pool, orders.die, str(tmp_path / "deaths"), 1)[0] > 0  # One death is not too many.
    with pytest.raises(RuntimeError, match=r"rows\[0\] ended 2 workers, .*smaller"):
        ask(pool, orders.die)
    assert np.allclose(pool.encode(TEXTS), expected, atol=1e-6)


@pytest.mark.slow  # Two pools of processes.
def test_weights_are_shared_and_workers_end_with_the_pool() -> None:
    """Workers share all that one process has loaded and prepared for this CPU, and most of the interpreter's memory."""
    tokenizer = small.wordpiece()
    weights = torch.zeros(tokenizer.get_vocab_size(), 1 << 19)
    model = SentenceEncoder(StaticEmbedding(tokenizer, weights), device="cpu")
    with model.pool(["cpu", "cpu"]) as own:
        own.encode(["one", "two"])
        private = ask(own, orders.private_bytes_of)[0]
        assert private < weights.nbytes / 3, f"{private:,} bytes of its own, {weights.nbytes:,} bytes of weights"
        ids = ask(own, orders.pid, 0.1, times=4)
        waiting = own.submit(orders.pid, (60,), "rows")
        threading.Timer(0.3, own.close).start()
        with pytest.raises(RuntimeError, match="the pool was closed while it was in use"):
            waiting.result()
    assert gone(ids)
    with pytest.raises(RuntimeError, match="the pool is closed"):
        own.encode(TEXTS)


@pytest.mark.slow  # Workers that import all anew.
def test_processes_that_are_no_forks(model: SentenceEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on an accelerator, and on systems that cannot fork."""
    monkeypatch.setattr(pools, "FORKS", False)
    with model.pool(["cpu"]) as own:
        ids = ask(own, orders.pid)
        os.kill(ids[0], signal.SIGKILL)
        ask(own, print)  # What is printed is no reply.
        assert np.allclose(own.encode(TEXTS, chunk_size=3), model.encode(TEXTS), atol=1e-6)
        ids += ask(own, orders.pid)
    assert gone(ids)


def test_a_forked_process_leaves_the_pool_to_its_parent(pool: Pool) -> None:
    expected = pool.encode(TEXTS)
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # It would wait for ever.
        with pytest.raises(RuntimeError, match="make one in this process"):
            pool.encode(TEXTS)
        pool.close()
        weakref.finalize._exitfunc()  # type: ignore[attr-defined]  # As sys.exit() does.
        os._exit(3)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    os.kill(ask(pool, orders.pid)[0], signal.SIGKILL)
    assert np.allclose(pool.encode(TEXTS), expected, atol=1e-6)


# --------------------------------------------------------------------------------------------------- what goes to them


class Word(str):
    """A class that workers cannot import, as one of a script is."""


def test_texts_and_orders_of_classes_that_workers_do_not_have(
    model: SentenceEncoder, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool.encode(TEXTS)  # Workers are forks, and start before the class is there.
    monkeypatch.setattr(Word, "__module__", "__main__")
    monkeypatch.setattr(sys.modules["__main__"], "Word", Word, raising=False)
    assert np.allclose(pool.encode([Word("one"), "two"]), model.encode(["one", "two"]), atol=1e-6)
    with pytest.raises(RuntimeError, match="put classes and functions of your own into a module"):
        ask(pool, orders.pid, Word("one"))
    with pytest.raises((AttributeError, pickle.PicklingError), match="local object"):
        ask(pool, orders.not_picklable)
    assert len(ask(pool, orders.pid, times=2)) == 2


def test_changes_of_the_model(folder: Path) -> None:
    model = SentenceEncoder(folder, device="cpu")
    with model.pool(["cpu"]) as pool:
        with pytest.raises(AttributeError, match="set it on the model"):
            pool.max_seq_length = 3
        with torch.no_grad():
            next(model.parameters()).mul_(2)
        with pytest.raises(ValueError, match="weights have changed since the pool was made; make a new one"):
            pool.encode(TEXTS)


@pytest.mark.slow  # A pool of its own.
def test_a_pool_that_is_not_closed_is_freed(model: SentenceEncoder) -> None:
    pool = model.pool(["cpu"])
    ids = ask(pool, orders.pid)
    del pool
    gc.collect()
    assert gone(ids)


def test_a_full_disk(model: SentenceEncoder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(pools, "FORKS", False)
    _, before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before))
    try:
        with pytest.raises(OSError, match="set TMPDIR to another folder"):
            model.pool(["cpu"])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, before))
        signal.signal(signal.SIGXFSZ, handler)
    assert not list(tmp_path.iterdir())


# ----------------------------------------------------------------------------------------------------------- programs

_PROGRAM = """
import os, signal, sys, threading, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # A shell lets what it runs in the background ignore it.
print("started")
sys.path.insert(0, {root!r})
from sbert import SentenceEncoder
from tests.pipeline import orders
model = SentenceEncoder({folder!r}, device="cpu")
"""
_BUSY = """
from sbert.pipeline import pool as pools
pools.FORKS = {forks}
pool = model.pool(["cpu", "cpu"])
ids = [future.result() for future in [pool.submit(orders.pid, (0.3,), "rows") for _ in range(2)]]
print(*ids, flush=True)
pool.submit(orders.pid, (600,), "rows").result()
"""
_UNGUARDED = """
print(model.encode(["one", "two"] * 5, device=["cpu", "cpu"]).shape)
class Mine(type(model[1])): pass
own = SentenceEncoder(model[0], Mine("mean"), device="cpu")
print(own.encode(["one"], device=["cpu"]).shape)
from sbert.pipeline import pool as pools
pools.FORKS = False
print(model.encode(["one", "two"] * 5, device=["cpu"]).shape)
try:
    own.encode(["one"], device=["cpu"])
except RuntimeError as error:
    print(error)
"""


def started(folder: Path, code: str, *command: str) -> subprocess.Popen[str]:
    """A program in a process group of its own; ``command`` is what Python gets."""
    whole = _PROGRAM.format(root=str(ROOT), folder=str(folder)) + code
    if command[0] == "-c":
        command = ("-c", whole)
    else:
        Path(command[0]).write_text(whole)
    return subprocess.Popen(
        [sys.executable, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


@pytest.mark.slow  # Only programs of their own can be killed, and each imports torch.
@pytest.mark.parametrize(("number", "forks"), [(signal.SIGKILL, False), (signal.SIGKILL, True), (signal.SIGINT, True)])
def test_workers_end_with_their_parent(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, forks: bool
) -> None:
    """A program without a file, as a notebook is; an interrupt reaches its whole group, as that of the keyboard."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    program = started(folder, _BUSY.format(forks=forks), "-c")
    assert program.stdout is not None
    assert program.stdout.readline() == "started\n"
    ids = list(map(int, program.stdout.readline().split()))
    time.sleep(0.2)
    assert all(map(is_alive, ids))
    if number == signal.SIGINT:
        os.killpg(program.pid, number)
    else:
        os.kill(program.pid, number)
    _, errors = program.communicate(timeout=20)
    assert gone(ids)
    assert errors.count("Traceback") == errors.count("KeyboardInterrupt") == (number == signal.SIGINT)
    assert len(os.listdir(tmp_path)) == (not forks)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with temporary_folder("sbert-pool") as next_pools:
        assert os.listdir(tmp_path) == [next_pools.name], "the copy of the model is removed by the next pool"


@pytest.mark.slow  # A program and its workers import torch.
def test_a_script_without_a_guard(folder: Path, tmp_path: Path) -> None:
    output, errors = started(folder, _UNGUARDED, str(tmp_path / "script.py")).communicate(timeout=60)
    lines = output.splitlines()
    assert lines[:4] == ["started", "(10, 16)", "(1, 16)", "(10, 16)"], errors
    assert "put classes and functions of your own into a module that can be imported" in lines[4]
    assert "Mine" in lines[4]
