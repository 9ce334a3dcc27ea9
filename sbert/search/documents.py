"""Documents in an SQLite database: a change happens as a whole or not at all, and damage is noticed."""

from __future__ import annotations

import json
import os
import sqlite3
import weakref
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sbert.storage.atomic import creating
from sbert.storage.files import UnreadableError
from sbert.storage.folders import check_own, foreign

_FILE, _FORMAT, _VERSION = "documents.sqlite", "sbert.search.HybridIndex", 1
_SCHEMA = (
    "PRAGMA page_size = 16384",  # Vectors are long rows.
    "BEGIN",
    "CREATE TABLE about (content BLOB, crc INTEGER)",
    "CREATE TABLE documents (row INTEGER PRIMARY KEY, id BLOB, metadata BLOB, spans BLOB, vectors BLOB, text BLOB,"
    " crc INTEGER)",
    "CREATE INDEX keys ON documents (row)",  # All keys can be read without the documents.
)
# Seconds to wait for another process, which reads a large index or writes.
_PATIENCE = 120.0
# Documents that are read in one step.
_BLOCK = 256
_REMEDY = "restore the folder from a copy, or add the documents to a new one"


class Stored(NamedTuple):
    """A document in the database.

    Args:
        row: Its key, greater than those of all earlier documents.
        id: JSON.
        metadata: JSON.
        spans: (passages, 2) int32, the characters of each passage.
        vectors: (passages, dim) float32.
        text: UTF-8.
        crc: Checksum of the others.
    """

    row: int
    id: bytes
    metadata: bytes
    spans: bytes
    vectors: bytes
    text: bytes
    crc: int

    @classmethod
    def of(cls, row: int, *fields: bytes) -> Stored:
        """With the checksum."""
        return cls._make((row, *fields, _crc(row, *fields)))


def _crc(row: int, *fields: bytes) -> int:
    return zlib.crc32(b"\0".join(fields), row & 0xFFFFFFFF)


def encoded(text: str) -> bytes:
    """UTF-8 of any str, also of one that has half of a surrogate pair."""
    return text.encode("utf-8", "surrogatepass")


def decoded(text: bytes) -> str:
    """The inverse of ``encoded``."""
    return text.decode("utf-8", "surrogatepass")


class Documents:
    """The database of an index, in a folder or in memory.

    Args:
        folder: The folder; it is created if it does not exist. None for memory.
        about: What a new database says about itself.

    Raises:
        OSError: If the folder cannot be written.
        ValueError: If the folder contains anything else, or is damaged.
    """

    def __init__(self, folder: Path | None, about: dict[str, Any]) -> None:
        self.path: Path | None = None if folder is None else folder / _FILE
        if folder is not None and self.path is not None and not self.path.exists():
            check_own(folder, "an index", partial(foreign, is_known=set[str]().__contains__))
            with creating(folder) as work, self._translated():
                connection = sqlite3.connect(work / _FILE, isolation_level=None)
                try:
                    _create(connection, about)
                finally:
                    connection.close()
        self._connect()
        if folder is None:
            _create(self._connection, about)

    def _connect(self) -> None:
        with self._translated():
            address = ":memory:" if self.path is None else f"{self.path.absolute().as_uri()}?mode=rw"
            self._connection = sqlite3.connect(
                address, _PATIENCE, isolation_level=None, check_same_thread=False, uri=self.path is not None
            )
            self.close = weakref.finalize(self, self._connection.close)
            self._connection.execute("PRAGMA secure_delete = ON")  # Removed texts do not stay in the file.
        self._process, self._place = os.getpid(), _place_of(self.path)

    @contextmanager
    def transaction(self, way: str = "") -> Iterator[None]:
        """All changes of the block, or none after an error; with no ``way``, the block only reads.

        Args:
            way: ``"IMMEDIATE"`` to exclude other writers from the beginning.
        """
        if self.path is not None and self._process != os.getpid():
            self._connect()  # A forked child must not use a connection of its parent.
        if _place_of(self.path) != self._place:
            raise FileNotFoundError(f"{self.path} was deleted or replaced since it was opened; open the index again")
        with self._translated():
            self._connection.execute(f"BEGIN {way}")
            try:
                yield
                self._connection.execute("COMMIT")
            finally:
                if self._connection.in_transaction:
                    with suppress(sqlite3.Error):
                        self._connection.execute("ROLLBACK")

    def about(self) -> dict[str, Any]:
        """What the database says about itself."""
        found = self._connection.execute("SELECT content, crc FROM about").fetchall()
        if len(found) != 1 or not isinstance(found[0][0], bytes) or _crc(0, found[0][0]) != found[0][1]:
            raise self._damaged("its description is not what was written")
        about: dict[str, Any] = json.loads(found[0][0])
        if (about["format"], about["version"]) != (_FORMAT, _VERSION):
            raise self._damaged(f"it is of version {about['version']}, and this library reads {_VERSION}")
        return about

    def write(self, about: dict[str, Any], removed: Iterable[int], new: Iterable[Stored]) -> None:
        """Remove and add documents, inside a transaction."""
        self._connection.executemany("DELETE FROM documents WHERE row = ?", ([row] for row in removed))
        self._connection.executemany("INSERT INTO documents VALUES (?, ?, ?, ?, ?, ?, ?)", new)
        self._connection.execute("UPDATE about SET content = ?, crc = ?", _described(about))

    def rows(self) -> npt.NDArray[np.int64]:
        """The keys of all documents, in ascending order."""
        found = self._connection.execute("SELECT row FROM documents INDEXED BY keys ORDER BY row")
        return np.fromiter((row for (row,) in found), np.int64)

    def after(self, row: int) -> Iterator[list[Stored]]:
        """The documents with greater keys, block by block."""
        found = self._connection.execute("SELECT * FROM documents WHERE row > ? ORDER BY row", [row])
        while block := found.fetchmany(_BLOCK):
            yield [self._checked(each) for each in block]

    def texts(self, rows: Iterable[int]) -> dict[int, str]:
        """The texts of some documents by their keys, without those that another process has removed."""
        found = (self._connection.execute("SELECT * FROM documents WHERE row = ?", [row]).fetchone() for row in rows)
        checked = [self._checked(each) for each in found if each]
        return {each.row: decoded(each.text) for each in checked}

    def _checked(self, found: Sequence[Any]) -> Stored:
        stored = Stored(*found)
        if not all(isinstance(field, bytes) for field in stored[1:-1]) or _crc(*stored[:-1]) != stored.crc:
            raise self._damaged(f"document {stored.row} is not what was written")
        return stored

    def check(self, same: bool) -> None:
        """Raise an error unless the documents are those that the description counts."""
        if not same:
            raise self._damaged("documents are missing, or are not those that were written")

    def _damaged(self, reason: str) -> UnreadableError:
        return UnreadableError(self.path or Path(":memory:"), f"is damaged: {reason}", _REMEDY)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Errors of SQLite as those of the library: an OSError if the disk or another process is the reason."""
        try:
            yield
        except sqlite3.ProgrammingError as error:
            raise ValueError(f"{self.path or 'the index'} is closed; open it again ({error})") from error
        except sqlite3.DatabaseError as error:
            if type(error) is sqlite3.DatabaseError or str(error).startswith("no such"):
                raise self._damaged(str(error)) from error
            raise OSError(f"{self.path or 'the index'}: {error}; nothing was changed") from error


def _place_of(path: Path | None) -> tuple[int, int] | None:
    """Which file this is, even if another has its name later."""
    if path is None or not path.exists():
        return None
    status = path.stat()
    return status.st_dev, status.st_ino


def _create(connection: sqlite3.Connection, about: dict[str, Any]) -> None:
    for statement in _SCHEMA:
        connection.execute(statement)
    connection.execute("INSERT INTO about VALUES (?, ?)", _described(about))
    connection.execute("COMMIT")


def _described(about: dict[str, Any]) -> tuple[bytes, int]:
    content = json.dumps({**about, "format": _FORMAT, "version": _VERSION}).encode()
    return content, _crc(0, content)


def as_json(value: object) -> bytes:
    """JSON, the same for equal dicts."""
    return json.dumps(value, sort_keys=True, allow_nan=False).encode()


def metadata_json(metadata: Iterable[Mapping[str, Any]], count: int) -> list[bytes]:
    """Metadata as JSON; an error unless reading it gives the same."""
    if isinstance(metadata, (str, Mapping)) or not isinstance(metadata, Iterable):
        raise TypeError(f"metadata is of type {type(metadata).__name__}; pass a list with one dict per document")
    notes = []
    for row, each in enumerate(metadata):
        try:
            notes.append(as_json(each))
            same = isinstance(each, dict) and json.loads(notes[-1]) == each
        except (TypeError, ValueError, RecursionError):
            same = False
        if not same:
            raise ValueError(
                f"metadata[{row}]={each!r:.60} is not a dict that JSON can hold; pass str as keys, and str, finite"
                " numbers, bool, None, lists and dicts as values"
            )
    if len(notes) != count:
        raise ValueError(f"{len(notes)} metadata and {count} documents were given; pass one dict for each document")
    return notes
