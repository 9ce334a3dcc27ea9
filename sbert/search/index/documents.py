"""Documents in an SQLite database: a change happens as a whole or not at all, and damage is noticed."""

from __future__ import annotations

import json
import os
import reprlib
import sqlite3
import weakref
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sbert.storage.atomic import replacing
from sbert.storage.files import UnreadableError
from sbert.storage.folders import check_own, find_foreign

_FILE, _FORMAT, _VERSION = "documents.sqlite", "sbert.search.HybridIndex", 3
_TABLES = (
    "CREATE TABLE documents (row INTEGER PRIMARY KEY, id BLOB, metadata BLOB, spans BLOB, vectors BLOB, terms BLOB,"
    " sparse BLOB, text BLOB, crc INTEGER)",
    "CREATE TABLE terms (number INTEGER PRIMARY KEY, term BLOB, crc INTEGER)",  # Those of all documents.
    "CREATE TABLE removals (number INTEGER PRIMARY KEY, row INTEGER)",  # The last ones.
)
_CODES = (  # Of an index with vectors of tokens: codes disappear with their documents.
    "CREATE TABLE IF NOT EXISTS codes (row INTEGER PRIMARY KEY, codes BLOB, crc INTEGER)",
    "CREATE TRIGGER IF NOT EXISTS removal DELETE ON documents BEGIN DELETE FROM codes WHERE row = OLD.row; END",
)
_INSERT = "INSERT INTO documents VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
# The numbers of new terms, and those of terms that no document has any more.
Terms = tuple[dict[str, int], Iterable[int]]
# Removals that other processes can follow; if there were more, they read all documents again.
RECENT_REMOVALS = 1 << 14
# Seconds to wait for another process, which reads a large index or writes.
_PATIENCE = 120.0
# Documents that are read in one step.
_BLOCK = 256
# Levels of lists and dicts in metadata: a copy takes two or three calls for each, of the 1,000 that Python allows.
DEPTH = 100
_REMEDY = "restore the folder from a copy, or add the documents to a new one"


class DocumentRecord(NamedTuple):
    """A document in the database.

    Args:
        row: Its key, greater than those of all earlier documents.
        id: JSON.
        metadata: JSON.
        spans: (passages, 2) int32, the characters of each passage.
        vectors: (passages, dim) float32.
        terms: (terms,) int32, the numbers of the terms of the text, in order.
        sparse: (active,) int32 and (active,) float32, the dimensions and values of the sparse vector.
        text: UTF-8, with ``"surrogatepass"``: a str may have half of a surrogate pair.
        crc: Checksum of the others.
    """

    row: int
    id: bytes
    metadata: bytes
    spans: bytes
    vectors: bytes
    terms: bytes
    sparse: bytes
    text: bytes
    crc: int


def document_checksum(row: int, *fields: bytes) -> int:
    """The checksum of a document."""
    return zlib.crc32(b"\0".join(fields), row & 0xFFFFFFFF)


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
        if folder is not None and not (folder / _FILE).exists():
            check_own(folder, "an index", partial(find_foreign, is_known=set[str]().__contains__))
            with replacing(folder, None) as work:
                try:
                    with closing(sqlite3.connect(work / _FILE, isolation_level=None)) as connection:
                        _create(connection, about)
                except sqlite3.DatabaseError as error:
                    raise self._explain(error) from error
        self._connect()
        if folder is None:
            _create(self._connection, about)

    def _connect(self) -> None:
        address = ":memory:" if self.path is None else f"{self.path.absolute().as_uri()}?mode=rw"
        try:
            self._connection = sqlite3.connect(
                address, timeout=_PATIENCE, isolation_level=None, check_same_thread=False, uri=self.path is not None
            )
            self.close = weakref.finalize(self, self._connection.close)
            self._connection.execute("PRAGMA secure_delete = ON")  # Removed texts do not stay in the file.
        except sqlite3.DatabaseError as error:
            raise self._explain(error) from error
        self._process, self._file = os.getpid(), self.path and _identify(self.path)

    @contextmanager
    def transaction(self, mode: str = "") -> Iterator[None]:
        """All changes of the block, or none after an error; without a ``mode``, the block only reads.

        Args:
            mode: ``"IMMEDIATE"`` to exclude other writers from the beginning.
        """
        if self.path is not None and self._process != os.getpid():
            self._connect()  # A forked child must not use a connection of its parent.
        if self.path is not None and _identify(self.path) != self._file:
            raise FileNotFoundError(f"{self.path} was deleted or replaced since it was opened; open the index again")
        try:
            with self._connection:  # It commits at the end, or rolls back.
                self._connection.execute(f"BEGIN {mode}")
                yield
        except sqlite3.DatabaseError as error:
            raise self._explain(error) from error

    def about(self) -> dict[str, Any]:
        """What the database says about itself."""
        content, crc = self._connection.execute("SELECT content, crc FROM about").fetchone() or (None, 0)
        if not isinstance(content, bytes) or document_checksum(0, content) != crc:
            raise self.damage("its description is not what was written")
        about: dict[str, Any] = json.loads(content)
        if (about["format"], about["version"]) != (_FORMAT, _VERSION):
            reason = f"is {about['format']} of version {about['version']}, where {_FORMAT} of {_VERSION} is read"
            raise UnreadableError(self.path or Path(":memory:"), reason, "add the documents to a new folder")
        return about

    def write(self, about: dict[str, Any], removed: list[int], new: Iterable[DocumentRecord], terms: Terms) -> None:
        """Remove and add documents, inside a transaction.

        Args:
            about: What the database says about itself.
            removed: Keys of documents.
            new: Documents.
            terms: The numbers of new terms, and those of terms that no document has any more.
        """
        write, last = self._connection.executemany, about["removals"]
        write("DELETE FROM documents WHERE row = ?", ([row] for row in removed))
        write(_INSERT, new)
        write("DELETE FROM terms WHERE number = ?", ([number] for number in terms[1]))
        encoded = ((number, term.encode()) for term, number in terms[0].items())
        write("INSERT INTO terms VALUES (?, ?, ?)", ((*entry, document_checksum(*entry)) for entry in encoded))
        write("INSERT INTO removals VALUES (?, ?)", enumerate(removed, last - len(removed) + 1))
        write("DELETE FROM removals WHERE number <= ?", [[last - RECENT_REMOVALS]])
        write("UPDATE about SET content = ?, crc = ?", [_describe(about)])

    def write_codes(self, new: Iterable[tuple[int, bytes]]) -> None:
        """Add the codes of the tokens of documents by their keys, inside a transaction."""
        for statement in _CODES:
            self._connection.execute(statement)
        rows = ((*entry, document_checksum(*entry)) for entry in new)
        self._connection.executemany("INSERT INTO codes VALUES (?, ?, ?)", rows)

    def codes(self, row: int) -> bytes:
        """The codes of the tokens of a document by its key."""
        fields = self._connection.execute("SELECT * FROM codes WHERE row = ?", [row]).fetchone()
        return self._check(fields or (row, None))[1]  # type: ignore[no-any-return]

    def removed_after(self, number: int) -> npt.NDArray[np.int64]:
        """The keys of the documents that were removed after so many others."""
        rows = self._connection.execute("SELECT row FROM removals WHERE number > ?", [number]).fetchall()
        return np.array(rows, np.int64).reshape(-1)

    def terms_from(self, number: int) -> dict[str, int]:
        """The numbers of terms, from this one on."""
        rows = self._connection.execute("SELECT * FROM terms WHERE number >= ? ORDER BY number", [number])
        return {term.decode(): number for number, term, _ in map(self._check, rows)}

    def after(self, row: int) -> Iterator[list[DocumentRecord]]:
        """The documents with greater keys, block by block."""
        cursor = self._connection.execute("SELECT * FROM documents WHERE row > ? ORDER BY row", [row])
        while block := cursor.fetchmany(_BLOCK):
            yield [DocumentRecord(*self._check(fields)) for fields in block]

    def texts(self, rows: Iterable[int]) -> dict[int, str]:
        """The texts of some documents by their keys."""
        texts = {}
        for row in rows:
            fields = self._connection.execute("SELECT * FROM documents WHERE row = ?", [row]).fetchone()
            if fields is None:
                raise self.damage("documents are missing")
            texts[row] = DocumentRecord(*self._check(fields)).text.decode("utf-8", "surrogatepass")
        return texts

    def _check(self, fields: Sequence[Any]) -> Sequence[Any]:
        """The same fields, of which the first is a key and the last a checksum, unless they are damaged."""
        with suppress(TypeError):  # A field is not bytes.
            if document_checksum(*fields[:-1]) == fields[-1]:
                return fields
        raise self.damage(f"row {fields[0]} is not what was written")

    def damage(self, reason: str) -> UnreadableError:
        """The error that says what is wrong with the database."""
        return UnreadableError(self.path or Path(":memory:"), f"is damaged: {reason}", _REMEDY)

    def _explain(self, error: sqlite3.DatabaseError) -> Exception:
        """An error of SQLite as one of the library: an OSError if the disk or another process is the reason."""
        if isinstance(error, sqlite3.ProgrammingError):
            return ValueError(f"{self.path or 'the index'} is closed; open it again ({error})")
        if type(error) is sqlite3.DatabaseError or str(error).startswith("no such"):
            return self.damage(str(error))
        return OSError(f"{self.path or 'the index'}: {error}; nothing was changed")


def _identify(path: Path) -> tuple[int, int] | None:
    """Device and inode of a file, which tell it from another that has its name later."""
    status = path.stat() if path.exists() else None
    return None if status is None else (status.st_dev, status.st_ino)


def _create(connection: sqlite3.Connection, about: dict[str, Any]) -> None:
    # Vectors are long rows.
    for statement in ("PRAGMA page_size = 16384", "BEGIN", "CREATE TABLE about (content BLOB, crc INTEGER)", *_TABLES):
        connection.execute(statement)
    connection.execute("INSERT INTO about VALUES (?, ?)", _describe(about))
    connection.execute("COMMIT")


def _describe(about: dict[str, Any]) -> tuple[bytes, int]:
    content = json.dumps({**about, "format": _FORMAT, "version": _VERSION}).encode()
    return content, document_checksum(0, content)


def as_json(value: object) -> bytes:
    """JSON, the same for equal dicts."""
    return json.dumps(value, sort_keys=True, allow_nan=False).encode()


def metadata_json(metadata: Iterable[Mapping[str, Any]], count: int) -> list[bytes]:
    """Metadata as JSON; an error unless reading it gives the same."""
    if isinstance(metadata, (str, Mapping)) or not isinstance(metadata, Iterable):
        raise TypeError(f"metadata is of type {type(metadata).__name__}; pass a list with one dict per document")
    notes = []
    for row, entry in enumerate(metadata):
        same = False
        with suppress(TypeError, ValueError, RecursionError):
            notes.append(as_json(entry))
            same = isinstance(entry, dict) and not is_deep(entry) and json.loads(notes[-1]) == entry
        if not same:
            reason = f"is not a dict that JSON can hold, of at most {DEPTH} levels; pass str as keys, and flatten it"
            raise ValueError(f"metadata[{row}]={reprlib.repr(entry):.60} {reason}")
        if marked := [key for key in entry if key.startswith("$")]:
            raise ValueError(f"metadata[{row}] has the key {marked[0]!r}, which where= reads as an operator; rename it")
    if len(notes) != count:
        raise ValueError(f"{len(notes)} metadata and {count} documents were given; pass one dict for each document")
    return notes


def is_deep(value: object, levels: int = DEPTH) -> bool:
    """Whether lists and dicts are nested deeper than so many levels."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else None
    return inner is not None and (not levels or any(is_deep(part, levels - 1) for part in inner))
