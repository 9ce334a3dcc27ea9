"""How many threads compute small work: fewer where other processes want the cores.

The threads of OpenMP wait for each other after every operation. If one of them waits for a core, all do, and a sentence
of a hundred short operations takes many times as long as with one thread.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable
from functools import cache
from math import ceil, inf
from pathlib import Path
from typing import TypeVar

import torch

from sbert.batch import TokenBatch

Output = TypeVar("Output")
# Batches of more tokens take so long that all threads get their turn.
_SMALL = 512
# Seconds after which the load is read again.
_CURRENT = 0.05
_LOAD, _TASKS = Path("/proc/loadavg"), Path("/proc/self/task")
_QUOTA = Path("/sys/fs/cgroup/cpu.max")
# When the load was read, and the number of cores that it leaves to this process, by the number of its threads.
_read: dict[int, tuple[float, int]] = {}


def with_available_threads(forward: Callable[[TokenBatch], Output], batch: TokenBatch) -> Output:
    """``forward(batch)``; of a small batch on a CPU, with no more threads than there are free cores.

    Only the calling thread is affected, and its number of threads is restored. On other systems than Linux, nothing
    happens.
    """
    wanted, change = torch.get_num_threads(), own_number_of_threads()
    if change is None or len(batch.values) > _SMALL or batch.values.device.type != "cpu":
        return forward(batch)
    change(available_threads(wanted))
    try:
        return forward(batch)
    finally:
        change(wanted)


def available_threads(wanted: int) -> int:
    """How many of the wanted threads find a free core."""
    now = time.monotonic()
    before, free = _read.get(wanted, (-_CURRENT, 0))
    if not 0 <= now - before < _CURRENT:
        try:
            free = int(min(len(os.sched_getaffinity(0)), _quota(), (os.cpu_count() or 1) - _others(wanted)))
        except (OSError, ValueError, IndexError):  # Not readable here.
            free = wanted
        _read[wanted] = now, free
    return max(1, min(wanted, free))


def _others(own: int) -> int:
    """Number of threads on this machine that run or wait for a core, without ``own`` of this process.

    OpenMP's threads run for a while after their work. Those of other calls in this process count as others.
    """
    running = int(_LOAD.read_text().split()[3].partition("/")[0])
    if running <= (os.cpu_count() or 1) - own + 1:  # The calling thread runs.
        return running - 1
    return running - min(own, sum(map(_is_running, _TASKS.iterdir())))


def _is_running(task: Path) -> bool:
    try:
        return (task / "stat").read_text().rpartition(") ")[2].startswith("R")
    except OSError:  # It has ended.
        return False


@cache
def _quota() -> float:
    """Number of cores whose time a container may use."""
    try:
        quota, period = _QUOTA.read_text().split()
        return inf if quota == "max" else ceil(int(quota) / int(period))
    except (OSError, ValueError):
        return inf


@cache
def own_number_of_threads() -> Callable[[int], object] | None:
    """OpenMP's function that sets the number of threads of the calling thread alone; torch's also sets the default.

    It is found in the libraries that torch is linked with.
    """
    try:
        _LOAD.read_text()
        change: Callable[[int], object] = ctypes.CDLL(torch._C.__file__).omp_set_num_threads
    except (OSError, AttributeError):
        return None
    before = torch.get_num_threads()
    change(1)
    works = torch.get_num_threads() == 1
    change(before)
    return change if works else None
