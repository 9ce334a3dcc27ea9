"""The manifest of a file of vectors: which parts of it are on the disk, from which texts, model and settings.

Parts are appended to ``NAME.partial``; then a line of ``NAME.manifest`` says so. The first line describes the model and
the settings, each other line a part, and the last line the finished file. Each line has a checksum of itself and of
the lines before.
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
from sbert.storage.files import UnreadableError, checksum
from sbert.storage.folders import try_lock
from sbert.vector_files.reader import Shard

FORMAT = "vectors of sbert, version 3"
REMEDY = "pass overwrite=True to start from scratch"

Header = dict[str, Any]


@dataclass(frozen=True)
class PartEntry:
    """A part whose rows are on the disk.

    Args:
        rows: Number of rows of the output so far.
        end: Number of bytes of the partial file so far.
        crc32: Checksum of the bytes of this part.
        read: Number of texts of the input so far, those of other shards included.
        input: Hash of these texts and their columns.
        truncated: Number of truncated texts of this part.
    """

    rows: int
    end: int
    crc32: int
    read: int
    input: str
    truncated: int


@dataclass(frozen=True)
class Ending:
    """What a finished file holds.

    Args:
        read: Number of texts of the input, those of other shards included.
        input: Hash of these texts and their columns.
        size: Number of bytes of the file.
        crc32: Checksum of the file.
    """

    read: int
    input: str
    size: int
    crc32: int


def check_header(path: Path, result: Header, expected: Header, other: Path | None = None) -> None:
    """Raise a ValueError that names the first difference to what ``other``, or this call, has been written with."""
    remedy = "encode one of the two again, with overwrite=True" if other else f"make the same call, or {REMEDY}"
    for key in {**expected, **result}:
        if key not in result or key not in expected or result[key] != expected[key]:
            before, now = (repr(header.get(key))[:60] for header in (result, expected))
            reason = f"was written with {key}={before}, and {other.name if other else 'this call'} has {now}"
            raise UnreadableError(path, reason, remedy)


class Manifest:
    """The lines of a manifest, and the files that they describe.

    Args:
        output: The output.
        file: The manifest, open for reading and, unless it is only read, for writing.
    """

    def __init__(self, output: Path, file: BinaryIO) -> None:
        self.output: Path = output
        self.path, self.partial = beside(output, "manifest"), beside(output, "partial")
        self.header: Header = {}
        self.parts: list[PartEntry] = []
        self.ending: Ending | None = None
        self._file = file
        self._check = self._end = 0  # Checksum and number of bytes of the lines, without the last one.
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                break  # It was not completed.
            self._read(line, number)

    @property
    def rows(self) -> int:
        """Number of rows on the disk."""
        return self.parts[-1].rows if self.parts else 0

    def _read(self, line: bytes, number: int) -> None:
        try:
            value = json.loads(line)
            check = value.pop("check")
            if self.ending is not None or _checksum(value, self._check) != check:
                raise ValueError
            if "size" in value:
                self.ending = Ending(**value)
            elif self.header:
                self.parts.append(PartEntry(**value))
            else:
                self.header = value
        except (ValueError, AttributeError, KeyError, TypeError, RecursionError) as error:
            remedy = f"make the call again that wrote {self.output.name}, with overwrite=True"
            raise UnreadableError(self.path, f"is damaged: line {number} is not what was written", remedy) from error
        if self.ending is None:
            self._check, self._end = check, self._end + len(line)

    def begin(self, header: Header) -> None:
        """Write the first line, or compare it with that of the call before. An output that was deleted is made again.

        Raises:
            ValueError: If it was another model, or other settings.
        """
        if self.ending and not (self.output.exists() or self.partial.exists()):
            self.header, self.parts, self.ending, self._check, self._end = {}, [], None, 0, 0
        if self.header:
            check_header(self.output, self.header, header)
        elif self.partial.exists() and self.partial.stat().st_size:
            raise UnreadableError(self.partial, "has no manifest", REMEDY)
        else:
            self.header = header
            self._append(header)
            flush_entry(self.path.parent)

    def add(self, part: PartEntry) -> None:
        """Record a part that is on the disk."""
        self._append(asdict(part))
        self.parts.append(part)

    def finish(self, ending: Ending) -> None:
        """Record that the file is complete."""
        self._append(asdict(ending))
        self.ending = ending

    def _append(self, line: dict[str, Any]) -> None:
        """Write a line behind the first one and those of parts, in the place of an ending."""
        check = _checksum(line, self._check)
        self._file.seek(self._end)
        self._file.truncate()
        self._file.write(json.dumps({**line, "check": check}).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        if "last" not in line:
            self._check, self._end = check, self._file.tell()

    def verify_parts(self, start: int) -> None:
        """Compare the parts in the partial file, which begin at byte ``start``, with their checksums."""
        if self.ending and not self.partial.exists():
            raise self.damaged_output()
        if not self.partial.exists():
            raise UnreadableError(self.partial, "is missing", REMEDY)
        rows = 0
        with self.partial.open("rb") as file:
            file.seek(start)
            for part in self.parts:
                # A part was in memory when it was written.
                if zlib.crc32(file.read(part.end - file.tell())) != part.crc32:
                    reason = f"is {'damaged' if file.tell() == part.end else 'truncated'}: rows {rows} to"
                    raise UnreadableError(self.partial, f"{reason} {part.rows - 1} are not as written", REMEDY)
                rows = part.rows

    def damaged_output(self) -> UnreadableError:
        """The error that the output is not the file that was finished."""
        remedy = "delete it, and make the call again that wrote it"
        return UnreadableError(self.output, "is missing or damaged: it is not what was written", remedy)

    def is_finished(self) -> bool:
        """Whether the output is the file that was finished."""
        end, path = self.ending, self.output
        return bool(end and path.is_file() and path.stat().st_size == end.size and checksum(path) == end.crc32)

    def clean(self) -> None:
        """Delete what is not needed any more: the files of what is finished, or the manifest of nothing."""
        self._file.close()  # Windows deletes no open file.
        if self.header:  # Without a header, it belongs to another call.
            self.partial.unlink(missing_ok=True)
        if not self.ending:
            self.path.unlink(missing_ok=True)


def _checksum(line: dict[str, Any], before: int) -> int:
    """The checksum of a line and of the lines with the checksum ``before``."""
    return zlib.crc32(json.dumps(line, sort_keys=True).encode(), before)


def read_manifest(output: Path) -> Manifest:
    """The manifest of an output, to look at."""
    with beside(output, "manifest").open("rb") as file:
        return Manifest(output, file)


@contextmanager
def open_manifest(output: Path, overwrite: bool) -> Iterator[Manifest]:
    """The manifest of an output, which no other process may write meanwhile; with ``overwrite``, a new one.

    It is deleted if nothing was stored.

    Raises:
        OSError: If the disk is full.
        RuntimeError: If another process or thread writes this output.
        ValueError: If the manifest is damaged, or if there is none and the output exists.
    """
    name = beside(output, "manifest")
    remedy = "what was encoded is kept: free some space and make the same call again, which goes on with that"
    with explain_disk_full(output, remedy), _lock(name) as held:
        if held is False:
            raise RuntimeError(f"{output} is being written by another process; wait until it ends, or write elsewhere")
        with name.open("r+b") as file:
            if overwrite:
                beside(output, "partial").unlink(missing_ok=True)
                file.truncate(0)
            manifest = Manifest(output, file)
            try:
                if not (overwrite or manifest.header) and output.exists():
                    raise ValueError(f"{output} has no manifest, and may be yours; move it, or {REMEDY}")
                yield manifest
            finally:
                if not (file.closed or manifest.parts or manifest.ending):
                    manifest.clean()


@contextmanager
def _lock(name: Path) -> Iterator[bool | None]:
    """Create and lock a manifest; wait a moment if it is locked: another process may just look whether it is."""
    for last in (False, True):
        name.open("ab").close()
        with try_lock(name) as held:
            if last or held is not False:
                yield held
                return
        time.sleep(0.1)


@contextmanager
def explain_disk_full(path: Path, remedy: str) -> Iterator[None]:
    """Say how to go on when the disk of a file is full."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise OSError(error.errno, f"the disk of {path} is full; {remedy}") from error


# -------------------------------------------------------------------------------------------------- names


def beside(path: Path, ending: str) -> Path:
    """The file ``NAME.ending`` of an output."""
    return path.with_name(f"{path.name}.{ending}")


def output_of(out: str | os.PathLike[str]) -> Path:
    """The file that an output is named after, where links lead to."""
    return Path(os.path.realpath(out))


def shard_of(path: Path, shard: Shard) -> Path:
    """The file of a shard.

    Example:
        >>> from pathlib import Path
        >>> from sbert.vector_files.manifest import shard_of
        >>> shard_of(Path("vectors.npy"), (3, 16)).name
        'vectors-00003-of-00016.npy'
    """
    return path.with_name(f"{path.stem}-{shard[0]:05d}-of-{shard[1]:05d}{path.suffix}")
