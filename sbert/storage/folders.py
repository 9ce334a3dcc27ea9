"""What stands in a folder, and whether it is still the same folder."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from sbert.storage.atomic import lock_for_reading
from sbert.storage.files import UnreadableError, is_failure

T = TypeVar("T")

# How often a folder is read that others replace meanwhile. Saves wait for readers, so two are nearly always enough.
_TRIES = 30


def foreign(folder: Path, is_known: Callable[[str], bool], folders: Collection[str] = ()) -> str | None:
    """The first path below a folder that is no known file, and no known folder of such files; None for none.

    Args:
        folder: Where to look.
        is_known: Whether a file belongs there, by its path relative to ``folder``, with slashes.
        folders: Paths of the folders that belong there.
    """
    waiting = [""]
    while waiting:
        parent = waiting.pop()
        with os.scandir(folder / parent) as entries:
            for entry in sorted(entries, key=lambda each: each.name):
                path = f"{parent}{entry.name}"
                if entry.is_dir(follow_symlinks=False) and path in folders:
                    waiting.append(f"{path}/")
                elif not (entry.is_file(follow_symlinks=False) and is_known(path)):
                    return path
    return None


def check_own(target: Path, what: str, find: Callable[[Path], str | None]) -> None:
    """Raise a ValueError where a folder cannot be replaced by ``what``, as it is a file or ``find`` finds something."""
    if not os.path.lexists(target):
        return
    if not target.is_dir():
        raise ValueError(f"{target} is a file; name a folder to save to")
    name = find(target)
    if name is not None:
        what = "a link" if (target / name).is_symlink() else f"no part of {what}"
        raise ValueError(
            f"{target} holds {name!r}, which is {what}, and saving would delete it; save to another folder"
        )


def read_whole(folder: Path, read: Callable[[], T]) -> T:
    """What ``read`` makes of the files of one folder; it is called again where a save has replaced that meanwhile.

    Raises:
        ValueError: If the folder was replaced again and again.
    """
    for _ in range(_TRIES):
        with _held(folder) as is_same:
            try:
                found = read()
            except BaseException as error:
                if not is_failure(error) or is_same():
                    raise
            else:
                if is_same():
                    return found
    reason = f"was replaced {_TRIES} times while it was read"
    raise UnreadableError(folder, reason, "load it when no other process saves to it all the time")


@contextmanager
def _held(folder: Path) -> Iterator[Callable[[], bool]]:
    """Whether a name still stands for the folder that it stands for now.

    While that is held open, no other folder can be given its number, even if it is deleted, and saves wait a little.
    """
    descriptor: int | None = None
    with suppress(OSError):  # Windows opens no folders.
        descriptor = os.open(folder, os.O_RDONLY)
        lock_for_reading(descriptor)
    before = _stat(folder if descriptor is None else descriptor)
    try:
        yield lambda: _stat(folder) == before
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _stat(path: Path | int) -> tuple[int, int] | None:
    """What tells a folder from another one of its name; None where there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
