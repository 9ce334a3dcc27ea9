"""The rows of files of every format: the one way in for all readers of texts, rows and data sets."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any

from sbert.data.formats import DAMAGE, FORMATS, Name, check_exists, choose_format, open_bytes, read_lines
from sbert.inputs.extras import require

# Rows with their locations, for errors.
Records = Iterator[tuple[str, dict[str, Any]]]
# The column of what has no columns: lines of plain text, and JSON values.
TEXT = "text"
# What is read of Parquet at once: rows, and bytes of each column.
_ROWS, _BYTES = 1024, 1 << 20


def read_records(path: Name, columns: Sequence[str] | None, file_format: str | None = None) -> Records:
    """The rows of a file, each with its location: the named columns and, of JSON objects, all other keys, too.

    Empty lines at the end are skipped, except those of plain text.

    Args:
        path: The file, compressed or not; ``"-"`` for standard input.
        columns: Column names in CSV, TSV and Parquet, or keys of JSON objects. None for plain text and for JSON values
            of any kind, whose one column is called ``"text"``.
        file_format: One of ``FORMATS``. Default: by the suffix of the file.

    Raises:
        ImportError: If the file is Parquet and pyarrow is not installed.
        OSError: If the file cannot be opened.
        ValueError: If a column is missing or occurs twice, or a line is invalid.
    """
    chosen = check_source(path, columns, file_format)
    if chosen == "text":
        return _read_text(path)
    if chosen == "parquet":
        return read_parquet(path, columns)
    return _read_objects(path, columns, chosen) if "json" in chosen else _read_table(path, columns or (), chosen)


def check_source(path: Name, columns: Sequence[str] | None, file_format: str | None = None) -> str:
    """The format of a file, after what can be checked before it is read: that it exists, and whether it has columns.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the format is unknown, has no columns, or needs their names.
    """
    chosen = choose_format(path, file_format)
    if chosen == "text" and columns is not None:
        others = ", ".join(name for name in FORMATS if name != "text")
        raise ValueError(f"{path} is plain text and has no column {columns[0]!r}; name none, or a format of {others}")
    if chosen in ("csv", "tsv", "parquet") and columns is None:
        raise ValueError(f"{path} has columns; name the one that holds the texts")
    check_exists(path)
    return chosen


def read_header(path: Name, file_format: str) -> list[str]:
    """The names in the first line of CSV and TSV, the columns of Parquet, or the keys of the first JSON object."""
    if file_format == "parquet":
        with open_parquet(path) as file:
            return list(file.schema_arrow.names)
    _, first = next(read_values(path, file_format), ("", []))
    return list(first) if isinstance(first, dict) or file_format in ("csv", "tsv") else []


def read_values(path: Name, file_format: str) -> Iterator[tuple[str, Any]]:
    """JSON values, or the lists of cells of CSV and TSV, the header among them, each with its location."""
    return _read_json(path, file_format) if file_format in ("json", "jsonl") else _read_cells(path, file_format)


def name_kind(value: object) -> str:
    """The JSON name of a value's type, for error messages."""
    names = {dict: "an object", list: "a list", bool: "true or false", type(None): "null", str: "a string"}
    return names.get(type(value), "a number" if isinstance(value, (int, float)) else f"a {type(value).__name__}")


def _read_text(path: Name) -> Records:
    for number, line in enumerate(read_lines(path), start=1):
        yield f"{path}, line {number}", {TEXT: _without_end(line)}


def _read_objects(path: Name, columns: Sequence[str] | None, file_format: str) -> Records:
    for where, value in _read_json(path, file_format):
        if columns is not None and not isinstance(value, dict):
            raise ValueError(f"{where}: {name_kind(value)}, not an object with the key {columns[0]!r}; name no column")
        if lacking := [column for column in columns or () if column not in value]:
            raise ValueError(f"{where}: no key {lacking[0]!r}; the keys are {', '.join(value) or 'none'}")
        yield where, {TEXT: value} if columns is None else value


def _read_json(path: Name, file_format: str) -> Iterator[tuple[str, Any]]:
    """JSON values: one per line, or the elements of an array for the format json, which is parsed in memory.

    A ``.json`` file without an array is read as JSONL, since many JSONL files have that suffix.
    """
    lines: Iterable[str] = read_lines(path)
    if file_format == "json":
        lines = list(lines)
        if (text := "".join(lines)).lstrip().startswith("["):
            for number, value in enumerate(_parse(text, path, 1), start=1):
                yield f"{path}, element {number}", value
            return
    for number, line in enumerate(_without_empty_end(lines), start=1):
        yield f"{path}, line {number}", _parse(_without_end(line), path, number)


def _parse(text: str, path: Name, first: int) -> Any:
    """Parse JSON that begins at the line ``first`` of a file."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        line, column = first + getattr(error, "lineno", 1) - 1, getattr(error, "colno", 1)
        reason = str(getattr(error, "msg", error)).removesuffix(" at")
        raise ValueError(
            f"{path}, line {line}: not valid JSON ({reason} at character {column}); fix or remove the line"
        ) from error


def _read_table(path: Name, columns: Sequence[str], file_format: str) -> Records:
    rows = _read_cells(path, file_format)
    _, header = next(rows, ("", []))
    check_columns(path, columns, header)
    positions = {column: header.index(column) for column in columns}
    for where, row in rows:
        if len(row) != len(header):
            raise ValueError(f"{where}: {len(row)} cells where the header has {len(header)}; fix or remove the line")
        yield where, {column: row[position] for column, position in positions.items()}


def _read_cells(path: Name, file_format: str) -> Iterator[tuple[str, list[str]]]:
    """The cells of each row of CSV or TSV, with the location of its last line. CSV may have empty lines."""
    lines = read_lines(path)
    if file_format == "tsv":
        for number, line in enumerate(_without_empty_end(lines), start=1):
            yield f"{path}, line {number}", _without_end(line).split("\t")
        return
    csv.field_size_limit(2**31 - 1)  # The default limit is 131,072 characters per cell.
    reader = csv.reader(lines, strict=True)
    try:
        for row in filter(None, reader):
            yield f"{path}, line {reader.line_num}", row
    except csv.Error as error:
        raise ValueError(f"{path}, line {reader.line_num}: {error}; fix the quotes there or before") from error


def _without_end(line: str) -> str:
    """A line without its line feed, or carriage return and line feed."""
    return line[:-2] if line.endswith("\r\n") else line.removesuffix("\n")


def _without_empty_end(lines: Iterable[str]) -> Iterator[str]:
    """The lines without the empty lines at the end."""
    empty: list[str] = []
    for line in lines:
        if not _without_end(line):
            empty.append(line)
            continue
        yield from empty
        yield line
        empty.clear()


def check_columns(path: Name, columns: Sequence[str], header: Sequence[str]) -> None:
    """Raise a ValueError if a column does not occur in the header exactly once."""
    for column in columns:
        if (count := list(header).count(column)) != 1:
            known = ", ".join(header) or "none"
            raise ValueError(f"{path}: {count or 'no'} columns {column!r}; name one that occurs once, of {known}")


# ----------------------------------------------------------------------------------------------- Parquet


@contextmanager
def open_parquet(path: Name) -> Iterator[Any]:
    """Open a file as a ``pyarrow.parquet.ParquetFile``; whatever is damaged in the block is a ValueError with its name.

    Args:
        path: The file, compressed as a whole or not; ``"-"`` for standard input.

    Raises:
        ImportError: If pyarrow is not installed.
        ValueError: If the file is damaged.
    """
    with require(f"reading {path}", "pyarrow", "parquet"):
        from pyarrow import ArrowException, BufferReader
        from pyarrow.parquet import ParquetFile
    try:
        source: Any = os.fspath(path)
        if source == "-" or source.lower().endswith((".gz", ".zst")):  # Parquet needs random access.
            with open_bytes(path) as lines:
                source = BufferReader(b"".join(lines))
        # Row groups may be large, so they are read in parts.
        with ParquetFile(source, buffer_size=_BYTES, pre_buffer=False, page_checksum_verification=True) as file:
            yield file
    except (ArrowException, UnicodeDecodeError, *DAMAGE) as error:
        if getattr(error, "errno", None) is not None:
            raise
        raise ValueError(f"{path}: not a valid Parquet file ({error}); download it again") from error


def read_parquet(path: Name, columns: Sequence[str] | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rows of a file, each with its location.

    Args:
        path: As in ``open_parquet``.
        columns: The columns to read. Default: all.

    Raises:
        ValueError: If a column is missing, or the file is damaged.
    """
    with open_parquet(path) as file:
        if columns is not None:
            check_columns(path, columns, file.schema_arrow.names)
        batches = file.iter_batches(_ROWS, columns=None if columns is None else list(columns))
        for number, row in enumerate(chain.from_iterable(batch.to_pylist() for batch in batches), start=1):
            yield f"{path}, row {number}", row
