"""Atomic writes: other processes see a file or folder either complete or not at all."""

from __future__ import annotations

import ctypes
import os
import re
import secrets
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from sbert.storage.folders import check_local, try_lock, wait_for_readers
from sbert.storage.processes import umask

# Words in the hidden names of work in progress: a new file or folder that is being written; a folder that is exchanged
# with another, and then holds the old one; an old folder that has been checked and is being deleted.
_WRITING, _REPLACING, _REMOVING = "saving", "replacing", "removing"
_STREAM = re.compile(r"/dev/(stdin|stdout|stderr|fd/)")


# ---------------------------------------------------------------------------------------------------- files


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically; an existing file is replaced.

    A device or a pipe is written to directly.
    """
    if os.path.lexists(path) and not _is_plain(path):
        with path.open("a", encoding="utf-8", newline="\n") as file:  # Append: stdout may be a file with content.
            file.write(text)
        return
    with replacing_file(path) as whole:
        whole.write(text.encode("utf-8"))


def _is_plain(path: Path) -> bool:
    """Whether this is a regular file, not a stream such as /dev/stdout, even if that leads to a regular file."""
    names = [Path(os.path.abspath(path)), Path(os.path.realpath(path.parent), path.name)]
    return path.is_file() and not any(name.parts[1:2] == ("proc",) or _STREAM.match(str(name)) for name in names)


@contextmanager
def replacing_file(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file for writing, which replaces ``path`` when the block ends without an error.

    Temporary files that killed processes left behind are removed at the next write to the same path.
    """
    path = Path(os.path.realpath(path))
    remove_left(path)
    with _new(path, folder=False) as work:
        try:
            with work.open("w+b") as file:
                yield file
            _publish(work)
            os.replace(work, path)
            with suppress(OSError):
                flush_entry(path.parent)
        finally:
            work.unlink(missing_ok=True)  # Does nothing after a successful replace.


# ---------------------------------------------------------------------------------------------------- folders


@contextmanager
def replacing(target: Path, check: Callable[[Path], None] | None) -> Iterator[Path]:
    """Create a temporary folder for writing, which replaces ``target`` when the block ends without an error.

    At any moment, also after a crash, ``target`` is either the old folder or the new one. Temporary folders that killed
    processes left behind are removed at the next write to the same target.

    Args:
        target: The folder to create or replace.
        check: Raises an error if an existing folder must not be replaced. It is called again with the old folder after
            the exchange: files added to it in the meantime are kept beside ``target``, with a warning. None: nothing is
            replaced; if there is a folder that is not empty, since another process was first, the new one is deleted.

    Raises:
        ValueError: If ``check`` refuses to replace ``target``.
    """
    check_local("path", target)
    target, old = Path(os.path.realpath(target)), None
    if check is not None:
        check(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    remove_left(target, check)
    with _new(target, folder=True) as work:
        try:
            yield work
            _publish(work)
            if check is not None:
                old = _put(work, target)
            else:
                with suppress(OSError):
                    os.rename(work, target)
        finally:
            shutil.rmtree(work, ignore_errors=True)  # Does nothing after the rename.
        with suppress(OSError):
            flush_entry(target.parent)
        if old is not None and check is not None:
            _discard(old, target, check)


def flush_entry(path: Path) -> None:
    """Flush one file, or the directory entries of one folder, to disk (fsync)."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _exchange(first: Path, second: Path) -> bool:
    """Swap two folders in one atomic step; false if the system does not support it."""
    here, swap = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of linux/fs.h; RENAME_SWAP of macOS is 2, too.
    paths = os.fsencode(first), os.fsencode(second)
    try:
        if sys.platform == "linux":
            return bool(ctypes.CDLL(None).renameat2(here, paths[0], here, paths[1], swap) == 0)
        if sys.platform == "darwin":
            return bool(ctypes.CDLL(None).renamex_np(*paths, swap) == 0)
    except AttributeError:  # A C library from before 2018.
        pass
    return False


def _put(work: Path, target: Path) -> Path | None:
    """Rename ``work`` to ``target``; return the path where the old folder is now, or None if there was none."""
    if not target.exists():
        os.replace(work, target)
        return None
    old = target.with_name(f".{target.name}.{_REPLACING}{work.name[-9:]}")
    os.replace(work, old)
    try:
        with wait_for_readers(target):
            if not _exchange(old, target):
                _swap(old, target)
    except OSError:
        os.replace(old, work)
        raise
    return old


def _swap(first: Path, second: Path) -> None:
    """Swap two folders in several steps, for systems without an atomic exchange."""
    aside = first.with_name(first.name + ".old")
    os.replace(second, aside)
    try:
        os.replace(first, second)
    except BaseException:
        os.replace(aside, second)
        raise
    os.replace(aside, first)


def _discard(old: Path, target: Path, check: Callable[[Path], None]) -> None:
    """Delete a replaced folder. If files were added that ``check`` refuses, keep it under a visible name and warn."""
    number = old.name[-9:]
    rest = removing = old.with_name(f".{target.name}.{_REMOVING}{number}")
    try:
        seen = sorted((path.relative_to(old) for path in old.rglob("*")), reverse=True)  # Contents before folders.
        try:
            check(old)
        except (ValueError, OSError):
            rest = old
        else:
            os.replace(old, removing)
            with try_lock(removing):  # Without the lock, another save would delete it as a leftover.
                for path in (*(removing / name for name in seen), removing):
                    with suppress(OSError):  # Files added after the check keep their folder from being deleted.
                        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
            if not any(path.relative_to(removing) not in seen for path in removing.rglob("*")):
                return
        rescued = target.with_name(f"{target.name}.replaced{number}")
        os.replace(rest, rescued)
    except FileNotFoundError:  # Another process deleted it first.
        return
    problem = f"{rescued} contains files that were added to {target} while it was being replaced"
    warnings.warn(f"{problem}; move them where they belong", stacklevel=2)


def remove(target: Path, check: Callable[[Path], None]) -> None:
    """Delete a folder atomically: at any moment, it is complete or gone.

    Raises:
        ValueError: If ``check`` refuses to delete it.
    """
    check(target)
    old = target.with_name(f".{target.name}.{_REPLACING}-{secrets.token_hex(4)}")
    os.replace(target, old)
    _discard(old, target, check)


@contextmanager
def temporary_folder(name: str) -> Iterator[Path]:
    """A folder among the temporary files of the system; those that killed processes have left are removed first."""
    target, owner = Path(tempfile.gettempdir(), name), os.getpid()
    remove_left(target)
    with _new(target, folder=True) as work:
        try:
            yield work
        finally:
            if os.getpid() == owner:  # A forked process that ends leaves it to its parent.
                shutil.rmtree(work, ignore_errors=True)


# ------------------------------------------------------------------------------- leftovers of killed processes
# A writer locks the file or folder it writes. The operating system releases the lock when the writer ends.


@contextmanager
def _new(target: Path, folder: bool) -> Iterator[Path]:
    """Create a temporary folder or file beside ``target``, locked if the system supports locks."""
    prefix = f".{target.name}.{_WRITING}-"
    while True:
        if folder:
            work = Path(tempfile.mkdtemp(prefix=prefix, dir=target.parent))
        else:
            descriptor, name = tempfile.mkstemp(prefix=prefix, dir=target.parent)
            os.close(descriptor)
            work = Path(name)
        with try_lock(work) as held:
            if held or held is None:
                yield work
                return
        # Before it was locked, another process deleted it as a leftover: try again.


def remove_left(target: Path, check: Callable[[Path], None] | None = None) -> None:
    """Remove the temporary files and folders of killed writers of ``target``."""
    words = "|".join((_WRITING, _REPLACING, _REMOVING))
    pattern = re.compile(re.escape(f".{target.name}.") + rf"({words})-\w{{8}}")
    for path in sorted(target.parent.glob(".*")):
        match = pattern.fullmatch(path.name)
        if not match:
            continue
        with try_lock(path) as held:
            if held and path.is_file():
                path.unlink(missing_ok=True)
            elif held and match[1] != _REPLACING:
                shutil.rmtree(path, ignore_errors=True)
            elif held and check is not None:
                _discard(path, target, check)


def _publish(work: Path) -> None:
    """Give a file, or a folder and its contents, ordinary permissions (safetensors' are the owner's), and flush it."""
    mask = umask()
    for path in (*work.rglob("*"), work):
        path.chmod((0o777 if path.is_dir() else 0o666) & ~mask)
        with suppress(PermissionError):  # Windows cannot open folders.
            flush_entry(path)
