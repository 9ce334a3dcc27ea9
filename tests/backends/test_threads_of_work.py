"""How many threads compute small work, by what the machine says about its cores."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from sbert import SentenceEncoder, TokenBatch
from sbert.backends import state, threads

QUOTAS = [("max 100000", 8), ("150000 100000", 2), ("50000 100000", 1), ("what", 8)]


class Machine:
    """Files of a machine with eight cores, of which this process may use all."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        monkeypatch.setattr(os, "cpu_count", lambda: 8)
        for name, file in {"_LOAD": "loadavg", "_TASKS": "task", "_QUOTA": "quota"}.items():
            monkeypatch.setattr(threads, name, folder / file)
        (folder / "task").mkdir()
        self.runs(1)

    def runs(self, everywhere: int, here: int = 1, quota: str = "max 100000") -> None:
        (self.folder / "loadavg").write_text(f"0.50 0.20 1.00 {everywhere}/300 4711\n")
        (self.folder / "quota").write_text(quota)
        for number in range(12):
            task = self.folder / "task" / str(number)
            task.mkdir(exist_ok=True)
            (task / "stat").write_text(f"{number} (a) R (name) {'R' if number < here else 'S'} 1 1\n")
        threads._read.clear()
        threads._quota.cache_clear()


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)), raising=False)
    yield Machine(tmp_path, monkeypatch)
    threads._quota.cache_clear()
    threads._read.clear()


@pytest.mark.parametrize(
    ("load", "affinity", "wanted", "expected"),
    [
        ({"everywhere": 1}, 8, 8, 8),  # This thread alone.
        ({"everywhere": 8, "here": 8}, 8, 8, 8),  # Threads of OpenMP that still run after their work.
        ({"everywhere": 9, "here": 8}, 8, 8, 7),  # Another process.
        ({"everywhere": 5}, 8, 4, 4),  # Enough cores for both.
        ({"everywhere": 7}, 8, 4, 2),
        ({"everywhere": 40, "here": 4}, 8, 4, 1),
        ({"everywhere": 12, "here": 12}, 8, 4, 1),  # Calls of other threads of this process.
        ({"everywhere": 0, "here": 0}, 8, 4, 4),
        ({"everywhere": 1}, 3, 8, 3),  # A container has fewer cores, or less of their time.
        *(({"everywhere": 1, "quota": quota}, 8, 8, cores) for quota, cores in QUOTAS),
    ],
)
def test_as_many_as_find_a_core(
    load: dict[str, Any], affinity: int, wanted: int, expected: int, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(affinity)), raising=False)
    machine.runs(**load)
    assert threads.available_threads(wanted) == expected


def test_the_load_is_read_now_and_then(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("sbert.backends.threads.time.monotonic", lambda: now)
    read = threads._read
    assert threads.available_threads(8) == 8
    (machine.folder / "loadavg").write_text("0 0 0 20/300 1\n")
    assert threads.available_threads(8) == 8
    now += 0.06
    assert threads.available_threads(8) == 1
    assert len(read) == 1
    (machine.folder / "loadavg").write_text("nothing\n")
    now += 0.06
    assert threads.available_threads(8) == 8


@pytest.mark.skipif(threads.own_number_of_threads() is None, reason="the threads of one thread cannot be set here")
@pytest.mark.parametrize("tokens", [3, 600])
def test_only_the_calling_thread_has_fewer(tokens: int, machine: Machine) -> None:
    machine.runs(20)
    before, here, there = torch.get_num_threads(), [], []
    batch = TokenBatch.from_rows([[1] * tokens])

    def work(_: TokenBatch) -> None:
        here.append(torch.get_num_threads())
        other = threading.Thread(target=lambda: there.append(torch.get_num_threads()))
        other.start()
        other.join()
        raise KeyError

    torch.set_num_threads(3)
    try:
        with pytest.raises(KeyError):
            threads.with_available_threads(work, batch)
        assert (here, there, torch.get_num_threads()) == ([1 if tokens == 3 else 3], [3], 3)
    finally:
        torch.set_num_threads(before)


def test_vectors_are_the_same(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what was chosen for the caller's number of threads stays."""
    model, before = SentenceEncoder(device="cpu"), torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        expected = model.encode("the quiet lake")
        known = state.state_of(model[0].network, state.ModelState)
        cached = known.cached
        machine.runs(20)
        assert abs(model.encode("the quiet lake") - expected).max() <= 1e-6
        assert known.cached is cached
    finally:
        torch.set_num_threads(before)
