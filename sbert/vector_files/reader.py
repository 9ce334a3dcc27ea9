"""Texts as they are read: stripes, which are dealt to shards; windows, which are encoded at once; hashes; columns."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sbert.inputs.arguments import whole
from sbert.inputs.texts import rows_of

# Rows of a stripe: stripe k belongs to shard k mod n.
STRIPE = 1024
# Characters after which a piece of a stripe, or a window, ends before it has all its rows.
_PIECE_CHARACTERS, _WINDOW_CHARACTERS = 1 << 22, 1 << 24

Shard = tuple[int, int]
Row = tuple[str, dict[str, Any]]


def check_shard(shard: Shard | None) -> Shard:
    """The shard, (0, 1) for None; a ValueError if it is none."""
    with suppress(TypeError, ValueError):
        index, number = (whole("shard", number) for number in ((0, 1) if shard is None else shard))
        if 0 <= index < number:
            return index, number
    raise ValueError(f"shard={shard!r:.60} is not a valid shard; pass (i, n) with i from 0 to n - 1")


def rows_of_shard(rows: int, shard: Shard, stripe: int = STRIPE) -> int:
    """Number of rows of a shard.

    Example:
        >>> from sbert.vector_files.reader import rows_of_shard
        >>> [rows_of_shard(5000, (part, 3)) for part in range(3)]
        [2048, 1928, 1024]
    """
    index, number = shard
    rounds, rest = divmod(rows, stripe * number)
    return rounds * stripe + min(stripe, max(0, rest - stripe * index))


@dataclass
class InputWindow:
    """Texts that are encoded and stored at once.

    Args:
        texts: The texts.
        columns: Tables of Arrow that together have a row for each, if the texts have columns.
        characters: Number of characters of the texts and of the values of their columns.
        read: Number of texts up to the last of these, those of other shards included.
        input: A hash of these texts and their columns.
    """

    texts: list[str] = field(default_factory=list)
    columns: list[Any] = field(default_factory=list)
    characters: int = 0
    read: int = 0
    input: str = ""

    def __add__(self, other: InputWindow) -> InputWindow:
        texts, columns = self.texts + other.texts, self.columns + other.columns
        return InputWindow(texts, columns, self.characters + other.characters, other.read, other.input)


class Reader:
    """Reads texts once, in order, and gives those of a shard in windows. Their borders depend on the texts alone.

    Args:
        sentences: As in ``encode``; columns are those of ``keep`` of a ``Texts``.
        size: Number of rows from which a window ends.
        shard: The shard (i, n).

    After the last window, ``read`` and ``input`` are those of the whole input.
    """

    def __init__(self, sentences: Any, size: int, shard: Shard = (0, 1)) -> None:
        self._size, self._shard = size, shard
        self.read: int = 0
        self.input: str = ""
        keep = getattr(sentences, "keep", ())
        self._columns = Columns(getattr(sentences, "types", dict)() if keep else {})
        self._pieces = self._read(sentences.rows() if keep else ((text, {}) for text in rows_of(sentences)))

    def windows(self) -> Iterator[InputWindow]:
        """The windows up to the end of the texts."""
        index, number = self._shard
        window = InputWindow()
        for piece in self._pieces:
            self.read, self.input = piece.read, piece.input
            if (piece.read - 1) // STRIPE % number != index:
                continue
            window += piece
            if len(window.texts) >= self._size or window.characters >= _WINDOW_CHARACTERS:
                yield window
                window = InputWindow()
        if window.texts:
            yield window

    def _read(self, rows: Iterator[Row]) -> Iterator[InputWindow]:
        """Stripes, in several pieces if their texts are very long."""
        read, digest, characters = 0, "", 0
        piece: list[Row] = []
        for row in rows:
            piece.append(row)
            read += 1
            characters += len(row[0]) + sum(len(value) for value in row[1].values() if isinstance(value, (str, bytes)))
            if read % STRIPE == 0 or characters >= _PIECE_CHARACTERS:
                yield (last := self._piece(piece, characters, read, digest))
                digest, piece, characters = last.input, [], 0
        if piece:
            yield self._piece(piece, characters, read, digest)

    def _piece(self, rows: list[Row], characters: int, read: int, digest: str) -> InputWindow:
        texts = [text for text, _ in rows]
        columns = [self._columns.table([values for _, values in rows])] if rows[0][1] else []
        return InputWindow(texts, columns, characters, read, _digest(digest, texts, columns))


def _digest(before: str, texts: list[str], columns: list[Any]) -> str:
    """The hash of texts and their columns behind those with the hash ``before``."""
    digest = hashlib.sha256(before.encode())
    digest.update(np.fromiter(map(len, texts), "<i8", len(texts)).tobytes())
    digest.update("".join(texts).encode("utf-8", "surrogatepass"))
    for table in columns:
        digest.update(f"{table.schema.types} {table.to_pydict()}".encode())
    return digest.hexdigest()


# --------------------------------------------------------------------------------------------- columns of Arrow


class Columns:
    """Makes tables of rows, one after another. All values of a column must fit one type, and keep their values in it.

    Args:
        types: The types of columns whose source knows them.

    Raises:
        ValueError: If Python has no values for one of these types.
    """

    def __init__(self, types: dict[str, Any]) -> None:
        # Values of dictionaries are copied: Parquet makes its own.
        self._given = {name: kind.value_type if hasattr(kind, "index_type") else kind for name, kind in types.items()}
        self._types: dict[str, Any] = {}
        self._large: set[str] = set()  # Columns of integers that a float would round.
        for name, kind in self._given.items():
            if not _is_exact(kind):
                raise ValueError(f"the column {name!r} has the type {kind}, which cannot be copied; convert it first")

    def table(self, rows: list[dict[str, Any]]) -> Any:
        """A table of rows.

        Raises:
            ValueError: If a value does not fit the type of its column here or in the rows before.
        """
        from pyarrow import table

        arrays = {}
        for name in rows[0]:
            with one_type(f"the column {name!r}"):
                arrays[name] = self._array(name, [row[name] for row in rows])
        return table(arrays)

    def _array(self, name: str, values: list[Any]) -> Any:
        from pyarrow import array, compute, schema, types, unify_schemas

        if name in self._given:
            return array(values, self._given[name])
        result = array(values)
        if getattr(result.type, "unit", "") == "us":
            lost = [value for value in values if getattr(value, "nanosecond", getattr(value, "nanoseconds", 0))]
            if lost:
                raise ValueError(f"{lost[0]!r} has nanoseconds; pass an array of NumPy")
        kind = self._types.get(name, result.type)
        if name not in self._large:
            schemas = [schema([(name, type_)]) for type_ in (kind, result.type)]
            kind = unify_schemas(schemas, promote_options="permissive").field(name).type
        result = result.cast(kind)
        if types.is_integer(kind):
            limits = compute.min_max(result).as_py().values()
            self._large |= {name} if any(abs(limit or 0) > 1 << 53 for limit in limits) else set()
        self._types[name] = kind
        return result


@contextmanager
def one_type(column: str) -> Iterator[None]:
    """Errors of Arrow where values of a column, such as large integers and floats within lists, fit no common type."""
    try:
        yield
    except (ValueError, TypeError, OverflowError, NotImplementedError) as error:
        raise ValueError(f"the values of {column} do not fit one type of Arrow: {error}") from error


def _is_exact(kind: Any) -> bool:
    """Whether Python has values for a type of Arrow, and Arrow makes the same of them."""
    from pyarrow import array

    try:
        array([None], kind)
    except NotImplementedError:
        return False
    return "time64[ns]" not in str(kind)
