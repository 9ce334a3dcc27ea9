"""Locks on files and folders: of writers, released when their process ends, and of readers, for whom saves wait.

On systems without such locks (Windows, some network drives), nothing waits.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

# Seconds that a save waits for readers of the folder it replaces.
_PATIENCE = 10.0


@contextmanager
def wait_for_readers(folder: Path) -> Iterator[None]:
    """Wait until a folder is not being read, or at most ``_PATIENCE``: readers notice a replacement and read again."""
    until = time.monotonic() + _PATIENCE
    while True:
        with locked(folder) as held:
            if held is not False or not folder.exists() or time.monotonic() > until:
                yield
                return
        time.sleep(0.002)


def lock_for_reading(descriptor: int) -> None:
    """Take a shared lock on an open folder: saves wait with replacing it until it is closed."""
    with suppress(ImportError, OSError):  # The system has no such locks; or the folder is just being replaced.
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)


@contextmanager
def locked(path: Path) -> Iterator[bool | None]:
    """Try to lock a file or folder; yields whether it succeeded, None if the system has no such locks."""
    try:
        import fcntl
    except ImportError:  # Windows.
        yield None
        return
    descriptor: int | None = None
    held: bool | None
    try:
        descriptor = os.open(path, os.O_RDONLY)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        held = os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except (BlockingIOError, FileNotFoundError):
        held = False
    except OSError:  # Some network drives.
        held = None
    try:
        yield held
    finally:
        if descriptor is not None:
            os.close(descriptor)
