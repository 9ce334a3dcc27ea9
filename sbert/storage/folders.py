"""Checks of a folder's contents, and consistent reads of a folder that another process may replace.

A lock is released when its process ends; for readers, saves wait. On systems without such locks (Windows, some network
drives), nothing waits.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from sbert.storage.files import UnreadableError, is_failure

_Result = TypeVar("_Result")

# Maximum number of reads of a folder that is replaced in the meantime. Saves wait for readers, so 2 usually suffice.
_TRIES = 30
# Seconds that a save waits for readers of the folder it replaces.
_PATIENCE = 10.0


def user_cache() -> Path:
    """The folder of files that can be computed again, of the environment or in ~/.cache."""
    base = os.environ.get("LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME")
    try:
        return (Path(base) if base else Path.home() / ".cache") / "sbert"
    except RuntimeError:  # A user without a home, as in some containers.
        return Path(tempfile.gettempdir(), f"sbert-{getattr(os, 'getuid', int)()}")


def check_local(name: str, path: str | os.PathLike[str]) -> None:
    """Raise a ValueError for an address such as ``s3://bucket/file``, which here would be a folder ``s3:``.

    Args:
        name: The caller's argument, for errors.
        path: Its value; a ``Path`` has lost one of the slashes.
    """
    if re.match(r"[A-Za-z][\w+.-]+:/", os.fsdecode(path)):
        remedy = "pass a path on a mounted drive, or read and write there with Ray, Dask or Spark: sbert.integrations"
        raise ValueError(f"{name}={os.fsdecode(path)!r:.90} is an address, not a path on this machine; {remedy}")


def find_foreign(folder: Path, is_known: Callable[[str], bool], folders: Collection[str] = ()) -> str | None:
    """The first path below a folder that is neither a known file nor a known folder; None if there is none.

    Args:
        folder: The folder to check.
        is_known: Whether a file is known, by its path relative to ``folder``, with slashes.
        folders: Paths of the known folders.
    """
    waiting = [""]
    while waiting:
        parent = waiting.pop()
        with os.scandir(folder / parent) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                path = f"{parent}{entry.name}"
                if entry.is_dir(follow_symlinks=False) and path in folders:
                    waiting.append(f"{path}/")
                elif not (entry.is_file(follow_symlinks=False) and is_known(path)):
                    return path
    return None


def check_own(target: Path, what: str, find: Callable[[Path], str | None]) -> None:
    """Raise a ValueError if ``what`` cannot be saved to ``target``: it is a file, or contains what ``find`` returns."""
    if not os.path.lexists(target):
        return
    if not target.is_dir():
        raise ValueError(f"{target} is a file; name a folder to save to")
    name = find(target)
    if name is not None:
        what = "which is a link" if (target / name).is_symlink() else f"which is not part of {what}"
        raise ValueError(f"{target} contains {name!r}, {what}, and saving would delete it; save to another folder")


def read_whole(folder: Path, read: Callable[[], _Result]) -> _Result:
    """The result of ``read``, which reads files of ``folder``; it is called again if a save replaced the folder.

    Raises:
        ValueError: If the folder was replaced during every read.
    """
    for _ in range(_TRIES):
        with _hold_open(folder) as is_same:
            try:
                result = read()
            except BaseException as error:
                if not is_failure(error) or is_same():
                    raise
            else:
                if is_same():
                    return result
    reason = f"was replaced {_TRIES} times while it was read"
    raise UnreadableError(folder, reason, "load it while no other process keeps saving to it")


@contextmanager
def _hold_open(folder: Path) -> Iterator[Callable[[], bool]]:
    """Keep a folder open; yields a function that tells whether its path still leads to the same folder.

    While it is open, its inode number cannot be reused, even if it is deleted, and saves wait for a while.
    """
    descriptor: int | None = None
    with suppress(ImportError, OSError):  # The system has no such locks; or the folder is just being replaced.
        descriptor = os.open(folder, os.O_RDONLY)  # Which Windows cannot.
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)  # Saves wait with replacing it until it is closed.
    before = _stat(folder if descriptor is None else descriptor)
    try:
        yield lambda: _stat(folder) == before
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _stat(path: Path | int) -> tuple[int, int] | None:
    """Device and inode, which identify a folder; None if it does not exist."""
    with suppress(OSError):
        status = os.stat(path)
        return status.st_dev, status.st_ino
    return None


# ------------------------------------------------------------------------------------------------- locks


@contextmanager
def wait_for_readers(folder: Path) -> Iterator[None]:
    """Wait until a folder is not being read, or at most ``_PATIENCE``: readers notice a replacement and read again."""
    until = time.monotonic() + _PATIENCE
    while True:
        with try_lock(folder) as held:
            if held is not False or not folder.exists() or time.monotonic() > until:
                yield
                return
        time.sleep(0.002)


@contextmanager
def try_lock(path: Path) -> Iterator[bool | None]:
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
            with suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_UN)  # A process that was forked meanwhile has the descriptor, too.
            os.close(descriptor)
