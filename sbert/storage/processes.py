"""What belongs to the whole process: locks, the umask, and what a forked child inherits of it.

A fork copies one thread of a process and the memory of all. In the child, a lock that another thread held is never
released, and GNU's OpenMP, with which torch computes on several cores, waits for threads that only the parent has, as
do tokenizers: without the functions below, the first ``encode`` of a child would never return. What they cannot mend is
a fork while other threads compute in torch, whose own locks the child may find held.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable


def in_child(function: Callable[[], object]) -> None:
    """Have a function called in each forked child; Windows knows none."""
    if sys.platform != "win32":
        os.register_at_fork(after_in_child=function)


class Lock:
    """A lock of a module's: a thread may take it several times, and in a forked child no other thread holds it.

    Example:
        >>> lock = Lock()
        >>> with lock, lock:
        ...     print("held")
        held
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        in_child(self._release_of_others)

    def _release_of_others(self) -> None:
        if self._lock.acquire(blocking=False):  # It was free, or held by the thread that forked.
            self._lock.release()
        else:
            self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


_asking = Lock()


def umask() -> int:
    """The modes that this process withholds from new files, which can be read by setting them alone.

    Two threads that do so at once would put back what the other has set.
    """
    with _asking:
        mask = os.umask(0o077)
        os.umask(mask)
    return mask


_ended = True


def _end_threads() -> None:
    """End the threads with which OpenMP serves the one that is about to fork; parent and child then start new ones."""
    global _ended
    torch = sys.modules.get("torch")
    if torch is not None:
        from ctypes import CDLL

        try:  # A function of OpenMP 5, looked up in the libraries that torch is linked with; 1 is omp_pause_soft.
            _ended = CDLL(torch._C.__file__).omp_pause_resource_all(1) == 0
        except (OSError, AttributeError):
            _ended = False


def _use_one_thread() -> None:
    """Where the threads could not be ended, compute with one in the child, as torch's own worker processes do."""
    if not _ended:
        sys.modules["torch"].set_num_threads(1)


def _tokenize_with_one_thread() -> None:
    """In a child, tokenizers does so by itself, unless it was told to use several."""
    if "TOKENIZERS_PARALLELISM" in os.environ and "tokenizers" in sys.modules:
        os.environ["TOKENIZERS_PARALLELISM"] = "false"


in_child(_tokenize_with_one_thread)
if sys.platform == "linux":
    os.register_at_fork(before=_end_threads, after_in_child=_use_one_thread)
