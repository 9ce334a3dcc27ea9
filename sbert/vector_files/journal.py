"""The journal of a file that is being written: what is on the disk, so that a killed call goes on where it was.

Vectors are appended to ``NAME.partial``; then a line of ``NAME.journal`` says so. The first line describes the model
and the settings, each other line a window. Each line has a checksum of itself and the lines before.
"""

from __future__ import annotations

import errno
import json
import os
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

from sbert.storage.atomic import flush_entry
from sbert.storage.file_locks import locked

FORMAT = "vectors of sbert, version 1"
REMEDY = "to start anew, pass resume=False, or delete the journal and the partial file"
_BLOCK = 1 << 20

Header = dict[str, Any]


@dataclass(frozen=True)
class Stored:
    """A window whose rows are on the disk.

    Args:
        rows: Number of rows of the output so far.
        end: Number of bytes of the partial file so far.
        crc32: Checksum of the bytes of this window.
        read: Number of texts of the input so far.
        input: Hash of these texts.
        truncated: Number of truncated texts of this window.
        seconds: Time since the window before.
    """

    rows: int
    end: int
    crc32: int
    read: int
    input: str
    truncated: int
    seconds: float


def beside(path: Path, ending: str) -> Path:
    """The file ``NAME.ending`` of an output."""
    return path.with_name(f"{path.name}.{ending}")


class DamagedError(ValueError):
    """A journal, a partial file or a manifest is damaged."""

    def __init__(self, path: Path, reason: str, remedy: str = REMEDY) -> None:
        super().__init__(f"{path} {reason}; {remedy}")


def sealed(line: dict[str, Any], before: int = 0) -> dict[str, Any]:
    """The line with a checksum of itself and of the lines with the checksum ``before``."""
    return {**line, "check": zlib.crc32(json.dumps(line, sort_keys=True).encode(), before)}


def unsealed(path: Path, text: bytes, what: str, before: int = 0) -> tuple[dict[str, Any], int]:
    """The object that ``sealed`` has completed, and its checksum; an error if it is damaged."""
    try:
        line = json.loads(text)
        check = line.pop("check")
        if sealed(line, before)["check"] == check:
            return line, check
    except (ValueError, AttributeError, KeyError, TypeError, RecursionError):
        pass
    raise DamagedError(path, f"is damaged: {what} is not what was written")


def check_header(path: Path, found: Header, expected: Header) -> None:
    """Raise a ValueError that names the first difference between what a file was written with and this call."""
    for key in {**expected, **found}:
        if key not in found or key not in expected or found[key] != expected[key]:
            before, now = (repr(each.get(key))[:60] for each in (found, expected))
            raise ValueError(
                f"{path} was written with {key}={before}, and this call has {now}; make the same call, or {REMEDY}"
            )


class Journal:
    """The lines of a journal, and the partial file that they describe.

    Args:
        path: The output.
        file: The journal, open for reading and writing.
    """

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self.output: Path = path
        self.path: Path = beside(path, "journal")
        self.partial: Path = beside(path, "partial")
        self.removed: bool = False
        self._file = file
        self.header, self.windows, self._check, self._end = read_lines(self.path, file)

    def begin(self, header: Header) -> None:
        """Write the first line, or compare it with that of the call before.

        Raises:
            ValueError: If it was another model, or other settings.
        """
        if self.header:
            check_header(self.path, self.header, header)
            if self.output.suffix == ".parquet" and self.output.exists() and not self.partial.exists():
                # The call was killed in its last moment, and it is not known whether the output is still what it wrote.
                self.header, self.windows, self._check, self._end = {}, [], 0, 0
        elif self.partial.exists() and self.partial.stat().st_size:
            raise DamagedError(self.partial, "has no journal")
        self._file.seek(self._end)
        self._file.truncate()  # A line that was not completed.
        if not self.header:
            self.header = header
            self._append(header)
            flush_entry(self.path.parent)

    def add(self, window: Stored) -> None:
        """Record a window that is on the disk."""
        self._append(asdict(window))
        self.windows.append(window)

    def _append(self, line: dict[str, Any]) -> None:
        line = sealed(line, self._check)
        self._file.write(json.dumps(line).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        self._check = line["check"]

    def verify(self, path: Path, start: int) -> None:
        """Compare the windows of the partial file, which begin at byte ``start``, with their checksums."""
        with path.open("rb") as file:
            for number, window in enumerate(self.windows):
                file.seek(start)
                value, left = 0, window.end - start
                while left and (block := file.read(min(left, _BLOCK))):
                    value, left = zlib.crc32(block, value), left - len(block)
                if left or value != window.crc32:
                    reason = "is truncated" if left else "is damaged"
                    first = self.windows[number - 1].rows if number else 0
                    raise DamagedError(path, f"{reason}: rows {first} to {window.rows - 1} are not what was written")
                start = window.end

    def remove(self) -> None:
        """Delete the journal and the partial file."""
        self._file.close()  # Windows deletes no open file.
        self.partial.unlink(missing_ok=True)
        self.path.unlink(missing_ok=True)
        self.removed = True


def read_lines(path: Path, file: BinaryIO) -> tuple[Header, list[Stored], int, int]:
    """The header, the windows, the checksum of the lines, and the number of their bytes."""
    header: Header = {}
    windows: list[Stored] = []
    check = end = 0
    for number, text in enumerate(file, start=1):
        if not text.endswith(b"\n"):
            break
        line, check = unsealed(path, text, f"line {number}", check)
        if not header:
            header = line
        else:
            windows.append(_stored(path, line, number))
        end += len(text)
    return header, windows, check, end


def _stored(path: Path, line: dict[str, Any], number: int) -> Stored:
    try:
        return Stored(**line)
    except TypeError as error:
        raise DamagedError(path, f"is damaged: line {number} describes no window") from error


@contextmanager
def _lock(name: Path) -> Iterator[bool | None]:
    """Create and lock a journal; wait a moment if it is locked: another process may just look whether it is."""
    for last in (False, True):
        name.open("ab").close()
        with locked(name) as held:
            if last or held is not False:
                yield held
                return
        time.sleep(0.1)


@contextmanager
def open_journal(path: Path, resume: bool) -> Iterator[Journal]:
    """The journal of an output, which no other process may write meanwhile; without ``resume``, a new one.

    It is deleted if no window was stored.

    Raises:
        RuntimeError: If another process or thread writes this output.
        ValueError: If the journal is damaged.
    """
    name = beside(path, "journal")
    with _lock(name) as held:
        if held is False:
            raise RuntimeError(f"{path} is being written by another process; wait until it ends, or write elsewhere")
        with name.open("r+b") as file:
            if not resume:
                beside(path, "partial").unlink(missing_ok=True)
                file.truncate(0)
            journal = Journal(path, file)
            try:
                yield journal
            finally:
                if journal.header and not journal.windows and not journal.removed:
                    journal.remove()
                elif not journal.removed and not name.stat().st_size:
                    file.close()
                    name.unlink()


@contextmanager
def telling_a_full_disk(path: Path, remedy: str) -> Iterator[None]:
    """Say how to go on when the disk of a file is full."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise OSError(error.errno, f"the disk of {path} is full; {remedy}") from error
