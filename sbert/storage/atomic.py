"""Writing files and folders that others find whole or not at all."""

from __future__ import annotations

import ctypes
import os
import re
import secrets
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from sbert.storage.processes import umask

# What is written stands under a hidden name with one of these words. A folder is being written, or takes the place of
# another and then holds the old one, or is an old one that has been checked and goes.
_WRITING, _REPLACING, _REMOVING = "saving", "replacing", "removing"
# Seconds for which a save waits for those who are reading the folder that it is to replace.
_PATIENCE = 10.0
_STREAM = re.compile(r"/dev/(stdin|stdout|stderr|fd/)")


# ---------------------------------------------------------------------------------------------------- files


def write_text(path: Path, text: str) -> None:
    """Write a text file that appears under its name once it is complete; one that is there is replaced whole.

    What is no plain file, such as a device or a pipe, is written to as it is.
    """
    if os.path.lexists(path) and not _is_plain(path):
        with path.open("a", encoding="utf-8", newline="\n") as file:  # Standard output may be a file with a beginning.
            file.write(text)
        return
    with replacing_file(path) as whole:
        whole.write(text.encode("utf-8"))


def _is_plain(path: Path) -> bool:
    """Whether this is a file of its own; /dev/stdout is none, even where it leads to one."""
    names = [Path(os.path.abspath(path)), Path(os.path.realpath(path.parent), path.name)]
    return path.is_file() and not any(name.parts[1:2] == ("proc",) or _STREAM.match(str(name)) for name in names)


@contextmanager
def replacing_file(path: Path) -> Iterator[BinaryIO]:
    """A new file to write to, which takes the place of ``path`` when the block ends without an error.

    What a killed process has left of such a file is removed with the next one of the same name.
    """
    path = Path(os.path.realpath(path))
    remove_left(path)
    with _new(path, _file_at) as work:
        try:
            with work.open("w+b") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            _publish(work)
            os.replace(work, path)
            with suppress(OSError):
                flush_entry(path.parent)
        finally:
            work.unlink(missing_ok=True)  # It bears its own name now, or is of no use.


# ---------------------------------------------------------------------------------------------------- folders


@contextmanager
def replacing(target: Path, check: Callable[[Path], None]) -> Iterator[Path]:
    """A new folder to write to, which takes the place of ``target`` when the block ends without an error.

    Whoever looks, or a crash at any moment, finds the old folder or the new one. What a killed process has left of
    such a new folder is removed with the next one of the same name.

    Args:
        target: The folder.
        check: Raises an error where ``target`` is there and must stay. It is asked once more about the old folder when
            the new one stands in its place: what has come into it meanwhile is kept beside it, with a warning.

    Raises:
        ValueError: If ``target`` is there and must stay.
    """
    target = Path(os.path.realpath(target))
    check(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    remove_left(target, check)
    with _new(target, _folder_at) as work:
        try:
            yield work
            _publish(work)
            flush(work)
            old = _put(work, target)
        except BaseException:
            shutil.rmtree(work, ignore_errors=True)
            raise
        with suppress(OSError):
            flush_entry(target.parent)
        if old is not None:
            _discard(old, target, check)


def flush(folder: Path) -> None:
    """Have the disk hold every file below ``folder``, and the folders themselves."""
    for root, _, names in os.walk(folder):
        for path in [*(Path(root) / name for name in names), Path(root)]:
            with suppress(PermissionError):  # Windows opens no folders.
                flush_entry(path)


def flush_entry(path: Path) -> None:
    """Have the disk hold a file, or the names in a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _exchange(first: Path, second: Path) -> bool:
    """Swap two folders in one step; false where the system cannot."""
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
    """Give ``work`` the name ``target``; where the folder is now that bore it before, if one did."""
    if not target.exists():
        os.replace(work, target)
        return None
    old = target.with_name(f".{target.name}.{_REPLACING}{work.name[-9:]}")
    os.replace(work, old)
    try:
        with _unread(target):
            if not target.exists():  # It was removed meanwhile.
                os.replace(old, target)
                return None
            if not _exchange(old, target):
                _swap(old, target)
    except OSError:
        os.replace(old, work)
        raise
    return old


def _swap(first: Path, second: Path) -> None:
    """Swap two folders in several steps, where the system has no one for it."""
    aside = first.with_name(first.name + ".old")
    os.replace(second, aside)
    try:
        os.replace(first, second)
    except BaseException:
        os.replace(aside, second)
        raise
    os.replace(aside, first)


def _discard(old: Path, target: Path, check: Callable[[Path], None]) -> None:
    """Remove a folder that was replaced; where something has come into it that ``check`` refuses, keep it by name."""
    number = old.name[-9:]
    left = gone = old.with_name(f".{target.name}.{_REMOVING}{number}")
    try:
        seen = sorted((path.relative_to(old) for path in old.rglob("*")), reverse=True)  # Contents before folders.
        try:
            check(old)
        except (ValueError, OSError):
            left = old
        else:
            os.replace(old, gone)
            with _locked(gone):  # Another save would take it for one that was left.
                for path in (*(gone / name for name in seen), gone):
                    with suppress(OSError):  # What has come into a folder since it was checked keeps it there.
                        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
            if not any(path.relative_to(gone) not in seen for path in gone.rglob("*")):
                return
        kept = target.with_name(f"{target.name}.replaced{number}")
        os.replace(left, kept)
    except FileNotFoundError:  # Another process was faster.
        return
    warnings.warn(
        f"{kept} holds what came into {target} while that was replaced; move it to where it belongs", stacklevel=2
    )


def remove(target: Path, check: Callable[[Path], None]) -> None:
    """Remove a folder, which stands under its name whole or not at all.

    Raises:
        ValueError: If ``check`` says that it must stay.
    """
    check(target)
    old = target.with_name(f".{target.name}.{_REPLACING}-{secrets.token_hex(4)}")
    os.replace(target, old)
    _discard(old, target, check)


# ------------------------------------------------------------------------------- what killed writers have left
# What is being written is locked by its writer, and the lock ends with the writer, however that ends.


@contextmanager
def _new(target: Path, make: Callable[[str, Path], str]) -> Iterator[Path]:
    """A new file or folder beside ``target``, locked where the system has locks."""
    while True:
        work = Path(make(f".{target.name}.{_WRITING}-", target.parent))
        with _locked(work) as held:
            if held or held is None:
                yield work
                return
        # Another process took it for one that was left, before it was locked.


def _folder_at(prefix: str, parent: Path) -> str:
    return tempfile.mkdtemp(prefix=prefix, dir=parent)


def _file_at(prefix: str, parent: Path) -> str:
    descriptor, name = tempfile.mkstemp(prefix=prefix, dir=parent)
    os.close(descriptor)
    return name


def remove_left(target: Path, check: Callable[[Path], None] | None = None) -> None:
    """Remove what writers of ``target`` have left that were killed."""
    words = "|".join((_WRITING, _REPLACING, _REMOVING))
    pattern = re.compile(re.escape(f".{target.name}.") + rf"({words})-\w{{8}}")
    for path in sorted(target.parent.glob(".*")):
        found = pattern.fullmatch(path.name)
        if not found:
            continue
        with _locked(path) as held:
            if held and path.is_file():
                path.unlink(missing_ok=True)
            elif held and found[1] != _REPLACING:
                shutil.rmtree(path, ignore_errors=True)
            elif held and check is not None:
                _discard(path, target, check)


@contextmanager
def _unread(folder: Path) -> Iterator[None]:
    """Wait while a folder is being read, but not for ever: readers notice where it was replaced, and begin again."""
    until = time.monotonic() + _PATIENCE
    while True:
        with _locked(folder) as held:
            if held is not False or not folder.exists() or time.monotonic() > until:
                yield
                return
        time.sleep(0.002)


def lock_for_reading(descriptor: int) -> None:
    """Have saves wait before they replace an open folder, until it is closed. Any number of readers may ask for it."""
    with suppress(ImportError, OSError):  # No such locks; or the folder takes another's place just now.
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)


@contextmanager
def _locked(path: Path) -> Iterator[bool | None]:
    """Whether this process holds the lock of a file or a folder; None where the system has no such locks."""
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


def _publish(folder: Path) -> None:
    """Give a file, or a folder and what is in it, ordinary modes: safetensors leaves weights to their owner alone."""
    mask = umask()
    for path in (folder, *folder.rglob("*")):
        path.chmod((0o777 if path.is_dir() else 0o666) & ~mask)
