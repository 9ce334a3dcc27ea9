"""Process-wide state: locks, the umask, and how both survive a fork.

A fork copies the memory of a process, but only one of its threads. In the child, a lock held by another thread is never
released. GNU OpenMP (used by torch) and tokenizers wait for threads that exist only in the parent. Without the
functions below, the first ``encode`` in a child process would hang. A fork while other threads compute in torch remains
unsafe, because the locks of torch itself may be held.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


def in_child(function: Callable[[], object]) -> None:
    """Register a function to be called in each forked child. Does nothing on Windows, which cannot fork."""
    if sys.platform != "win32":
        os.register_at_fork(after_in_child=function)


# Options of glibc's mallopt.
_M_MMAP_MAX, _M_TRIM_THRESHOLD = -4, -1


class Lock:
    """A reentrant lock that is released in a forked child if another thread of the parent held it.

    Args:
        delays_forks: Whether a fork waits until no other thread holds the lock.

    Example:
        >>> from sbert.storage.processes import Lock
        >>> lock = Lock()
        >>> with lock, lock:
        ...     print("held")
        held
    """

    def __init__(self, delays_forks: bool = False) -> None:
        self._lock = threading.RLock()
        self.delays_forks: bool = delays_forks
        _locks.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


_locks: weakref.WeakSet[Lock] = weakref.WeakSet()


def _release_locks_of_others() -> None:
    for lock in list(_locks):
        if lock._lock.acquire(blocking=False):  # It was free, or held by the forking thread.
            lock._lock.release()
        else:
            lock._lock = threading.RLock()


def _acquire_locks() -> None:
    _forking.locks = [lock._lock for lock in list(_locks) if lock.delays_forks]
    for lock in _forking.locks:
        lock.acquire()


def _release_locks() -> None:
    for lock in _forking.locks:
        lock.release()


_forking = threading.local()
in_child(_release_locks_of_others)  # Once for all: what is registered stays alive until the process ends.
if sys.platform != "win32":
    os.register_at_fork(before=_acquire_locks, after_in_parent=_release_locks, after_in_child=_release_locks)
_asking = Lock()


@contextmanager
def keeping_freed_memory() -> Iterator[None]:
    """Within the block, glibc keeps freed memory for later use instead of returning it to the system.

    Else a step of training on a CPU waits for new pages: MiniLM with 16 rows took 1.1 times as long on Zen 4.
    """
    libc: Any = ctypes.CDLL(None) if sys.platform == "linux" else None
    if not hasattr(libc, "mallopt"):
        yield
        return
    libc.mallopt(_M_MMAP_MAX, 0)
    libc.mallopt(_M_TRIM_THRESHOLD, (1 << 31) - 1)
    try:
        yield
    finally:
        libc.mallopt(_M_MMAP_MAX, 1 << 16)
        libc.mallopt(_M_TRIM_THRESHOLD, 1 << 17)
        libc.malloc_trim(0)


def umask() -> int:
    """The umask of this process. It can only be read by setting it, so a lock keeps two threads from interfering."""
    with _asking:
        mask = os.umask(0o077)
        os.umask(mask)
    return mask


_ended = True


def _end_threads() -> None:
    """End the OpenMP threads of the forking thread; parent and child start new ones when needed."""
    global _ended
    torch = sys.modules.get("torch")
    if torch is not None:
        try:  # An OpenMP 5 function, found in the libraries that torch is linked with; 1 is omp_pause_soft.
            _ended = ctypes.CDLL(torch._C.__file__).omp_pause_resource_all(1) == 0
        except (OSError, AttributeError):
            _ended = False


def _use_one_thread() -> None:
    """If the threads could not be ended, use one thread in the child, as the worker processes of torch do."""
    if not _ended:
        sys.modules["torch"].set_num_threads(1)


def _tokenize_with_one_thread() -> None:
    """Set one thread explicitly: a child of tokenizers uses several if the environment asks for that."""
    if "TOKENIZERS_PARALLELISM" in os.environ and "tokenizers" in sys.modules:
        os.environ["TOKENIZERS_PARALLELISM"] = "false"


in_child(_tokenize_with_one_thread)
if sys.platform == "linux":
    os.register_at_fork(before=_end_threads, after_in_child=_use_one_thread)
