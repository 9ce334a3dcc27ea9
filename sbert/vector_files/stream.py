"""Texts as they are read: stripes, which are dealt to shards; windows, which are encoded and stored at once; a hash."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np

from sbert.inputs.texts import rows_of
from sbert.vector_files.columns import Columns

# Rows of a stripe: stripe k belongs to shard k mod n.
STRIPE = 1024
# Characters after which a piece of a stripe, or a window, ends before it has all its rows.
_PIECE_CHARACTERS, _WINDOW_CHARACTERS = 1 << 22, 1 << 24

Shard = tuple[int, int]
Row = tuple[str, dict[str, Any]]


@dataclass(frozen=True)
class Rows:
    """Texts with the values of the columns that go with them, and the types of Arrow of these, as far as known."""

    rows: Iterator[Row]
    types: dict[str, Any]


def rows_with_columns(sentences: Any) -> Rows:
    """Texts with the values of the columns that go with them: those of ``keep`` of a ``Texts``, else none."""
    if getattr(sentences, "keep", ()):
        return Rows(sentences.rows(), getattr(sentences, "types", dict)())
    return Rows(((text, {}) for text in rows_of(sentences)), {})


def check_shard(shard: Shard | None) -> Shard:
    """The shard, (0, 1) for None; a ValueError if it is none."""
    if shard is None:
        return 0, 1
    if (
        not isinstance(shard, (tuple, list))
        or len(shard) != 2
        or not all(isinstance(number, Integral) and not isinstance(number, bool) for number in shard)
        or not 0 <= shard[0] < shard[1]
    ):
        raise ValueError(f"shard={shard!r:.60} is no shard; pass (i, n) with i from 0 to n - 1")
    return int(shard[0]), int(shard[1])


def rows_of_shard(rows: int, shard: Shard, stripe: int = STRIPE) -> int:
    """Number of rows of a shard.

    Example:
        >>> [rows_of_shard(5000, (part, 3)) for part in range(3)]
        [2048, 1928, 1024]
    """
    index, number = shard
    rounds, rest = divmod(rows, stripe * number)
    return rounds * stripe + min(stripe, max(0, rest - stripe * index))


@dataclass
class Window:
    """Texts that are encoded and stored at once.

    Args:
        texts: The texts.
        columns: Tables of Arrow that together have a row for each, if the texts have columns.
        read: Number of texts up to the last of these, those of other shards included.
        digest: A hash of these texts and their columns.
    """

    texts: list[str]
    columns: list[Any]
    read: int
    digest: str


@dataclass
class _Piece(Window):
    stripe: int
    characters: int


class Reader:
    """Reads texts once, in order, and gives those of a shard in windows. Their borders depend on the texts alone.

    Args:
        rows: The texts with their columns.
        size: Number of rows from which a window ends.
        shard: The shard (i, n).

    After the last window, ``read`` and ``digest`` are those of the whole input.
    """

    def __init__(self, rows: Rows, size: int, shard: Shard = (0, 1)) -> None:
        self._size, self._shard = size, shard
        self.read: int = 0
        self.digest: str = ""
        self._columns = Columns(rows.types)
        self._pieces = self._read(rows.rows)
        self._next = next(self._pieces, None)

    @property
    def ended(self) -> bool:
        """Whether all texts were given."""
        return self._next is None

    def windows(self, most: int | None = None) -> Iterator[Window]:
        """The windows up to the end of the texts, or of ``most`` rows, a multiple of a stripe."""
        given, window, characters = 0, Window([], [], 0, ""), 0
        while self._next is not None and (most is None or given < most):
            piece, self._next = self._next, next(self._pieces, None)
            self.read, self.digest = piece.read, piece.digest
            if piece.stripe % self._shard[1] != self._shard[0]:
                continue
            given += len(piece.texts)
            characters += piece.characters
            texts, columns = window.texts + piece.texts, window.columns + piece.columns
            window = Window(texts, columns, piece.read, piece.digest)
            full = len(window.texts) >= self._size or characters >= _WINDOW_CHARACTERS
            if full or given == most:
                yield window
                window, characters = Window([], [], 0, ""), 0
        if window.texts:
            yield window

    def _read(self, rows: Iterator[Row]) -> Iterator[_Piece]:
        """Stripes, in several pieces if their texts are very long."""
        read, digest = 0, ""
        piece: list[Row] = []
        characters = 0
        for row in rows:
            piece.append(row)
            characters += len(row[0]) + sum(len(value) for value in row[1].values() if isinstance(value, (str, bytes)))
            if (read + len(piece)) % STRIPE and characters < _PIECE_CHARACTERS:
                continue
            last = self._piece(piece, read, digest, characters)
            yield last
            read, digest, piece, characters = last.read, last.digest, [], 0
        if piece:
            yield self._piece(piece, read, digest, characters)

    def _piece(self, rows: list[Row], before: int, digest: str, characters: int) -> _Piece:
        texts, read = [text for text, _ in rows], before + len(rows)
        columns = [self._columns.table([values for _, values in rows])] if rows[0][1] else []
        return _Piece(texts, columns, read, _digest(digest, texts, columns), (read - 1) // STRIPE, characters)


def _digest(before: str, texts: list[str], columns: list[Any]) -> str:
    """The hash of texts and their columns behind those with the hash ``before``."""
    digest = hashlib.sha256(before.encode())
    digest.update(np.fromiter(map(len, texts), "<i8", len(texts)).tobytes())
    digest.update("".join(texts).encode("utf-8", "surrogatepass"))
    for table in columns:
        digest.update(f"{table.schema.types} {table.to_pydict()}".encode())
    return digest.hexdigest()
