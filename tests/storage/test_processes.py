"""Threads that import, load and save at the same time, and forked processes that encode."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from sbert import SentenceEncoder
from sbert.backends import huggingface
from sbert.storage import processes
from tests.children import python

ROOT = Path(__file__).parent.parent.parent


def together(*calls: Callable[[], object]) -> None:
    """Call each in a thread, 20 ms after the one before it."""
    with ThreadPoolExecutor(len(calls)) as threads:
        results = []
        for call in calls:
            results.append(threads.submit(call))
            time.sleep(0.02)
    for result in results:
        result.result()


# ---------------------------------------------------------------------------------------- switches of the process


def switches() -> tuple[Any, ...]:
    logging = huggingface.import_from("logging", "transformers.utils")
    return logging.get_verbosity(), logging.is_progress_bar_enabled(), torch.get_default_dtype(), processes.umask()


def test_concurrent_saves_change_nothing(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a switch of the process nor the limit of the tokenizer, which a folder states otherwise."""
    model = SentenceEncoder(folder, device="cpu")
    model.max_seq_length = 20
    model.tokenizer.model_max_length = 64
    before, save, umask = switches(), type(model.tokenizer).save_pretrained, os.umask

    def save_slowly(*arguments: Any) -> None:
        time.sleep(0.03)
        save(*arguments)

    def umask_slowly(mask: int) -> int:
        previous = umask(mask)
        time.sleep(0.01)
        return previous

    monkeypatch.setattr(type(model.tokenizer), "save_pretrained", save_slowly)
    monkeypatch.setattr(os, "umask", umask_slowly)
    together(*(lambda number=number: model.save(tmp_path / str(number)) for number in range(4)))  # type: ignore[misc]
    monkeypatch.undo()
    assert switches() == before
    assert model.tokenizer.model_max_length == 64
    configs = list(tmp_path.rglob("tokenizer_config.json"))
    assert [json.loads(path.read_text())["model_max_length"] for path in configs] == [20] * 4
    assert {path.stat().st_mode & 0o777 for path in configs} == {0o666 & ~before[-1]}


# ------------------------------------------------------------------------------------------------------- forking

FORKING = """
import json, os, signal, sys, threading, time
import numpy as np, torch
from sbert import SentenceEncoder
from sbert.backends import huggingface, state
from sbert.pipeline import run


model = SentenceEncoder(sys.argv[1], device="cpu")
texts = [f"a small boat number {i} of {i * i} on the quiet lake" for i in range(600)]
expected = model.encode(texts)
locks = lambda: [huggingface.lock, state._lock, run._lock]

def same(found):
    return bool(np.abs(found - expected).max() <= 1e-6)

def child(work):
    # What a forked child makes of the work; None if it does not end within 20 s.
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(writer, json.dumps(work()).encode())
        finally:
            os._exit(0)
    os.close(writer)
    end = time.monotonic() + 20
    while time.monotonic() < end:
        if os.waitpid(pid, os.WNOHANG)[0]:
            return json.loads(os.read(reader, 10000) or "null")
        time.sleep(0.02)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)

def locked():
    for lock in locks():
        with lock:
            pass
    return "free"

def held():
    # Another thread encodes and holds all locks while this one forks.
    holding, done = threading.Event(), threading.Event()

    def hold():
        held = locks()
        with run.evaluating(model), held[0], held[1], held[2]:
            holding.set()
            done.wait()

    model.training = True
    thread = threading.Thread(target=hold)
    thread.start()
    assert holding.wait(30)
    found = child(lambda: [locked(), model.training, same(model.encode(texts)), model.training])
    done.set()
    thread.join()
    return [found, model.training]

results = {
    "fork": child(lambda: [same(model.encode(texts)), torch.get_num_threads()]),
    "parent": [same(model.encode(texts)), torch.get_num_threads()],
    "held": held(),
}
print(json.dumps(results))
"""


@pytest.mark.slow  # Only a new process forks with two threads.
def test_forked_processes_encode(folder: Path) -> None:
    """Children have as many threads as their parent, which goes on as before, and find no lock held.

    Nor does a call that goes on in the parent alone keep the child's model in eval mode.
    """
    environment = {**os.environ, "OMP_NUM_THREADS": "2", "TOKENIZERS_PARALLELISM": "true"}
    command = [sys.executable, "-W", "ignore", "-c", FORKING, str(folder)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    forked = json.loads(done.stdout.splitlines()[-1])
    assert forked["fork"] == forked["parent"] == [True, 2]
    assert forked["held"] == [["free", True, True, True], True]


@pytest.mark.skipif(sys.platform != "linux", reason="glibc alone keeps memory on request")
def test_freed_memory_is_kept_within_the_block_alone() -> None:
    code = """
import numpy as np
from sbert.storage.processes import keeping_freed_memory
def resident(): return int(open("/proc/self/statm").read().split()[1]) * 4096
def use(): np.ones(5_000_000); return resident() - before
before = resident()
with keeping_freed_memory():
    kept = use()
print(kept > 30e6, use() < 10e6)
"""
    assert python("-c", code).stdout.split() == ["True", "True"]
