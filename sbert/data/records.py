"""The rows of files, one after another: the code shared by all readers of texts and rows."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain, islice
from typing import Any

from sbert.data.files import DAMAGED, Name, lines_of, open_bytes, without_ending
from sbert.inputs.extras import needed

# What is read of Parquet at once: rows, and bytes of each column.
_PARQUET_ROWS, _PARQUET_BYTES = 1024, 1 << 20


def _without_empty_end(lines: Iterable[str]) -> Iterator[str]:
    """The lines without the empty lines at the end."""
    empty: list[str] = []
    for line in lines:
        if not without_ending(line):
            empty.append(line)
            continue
        yield from empty
        yield line
        empty.clear()


def values(lines: Iterator[str], path: Name, file_format: str = "jsonl") -> Iterator[tuple[str, Any]]:
    """JSON values with their locations: one per line, or the elements of an array for the format json.

    A ``.json`` file without an array is read as JSONL, since many JSONL files have that suffix.
    """
    if file_format == "json":
        head = []
        for line in lines:
            head.append(line)
            if line.strip():
                break
        lines = chain(head, lines)
        if head and head[-1].lstrip().startswith("["):  # An array is parsed in memory as a whole.
            listed = _parsed("".join(lines), path, None, "a JSON array", "fix it, or pass the format jsonl")
            for number, value in enumerate(listed, start=1):
                yield f"{path}, element {number}", value
            return
    for number, line in enumerate(_without_empty_end(lines), start=1):
        value = _parsed(line, path, number, "valid JSON", "fix or remove the line")
        yield f"{path}, line {number}", value


def _parsed(text: str, path: Name, number: int | None, what: str, remedy: str) -> Any:
    """Parse JSON: one line, with its number; or several lines, if ``number`` is None."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        reason = str(error)
        if isinstance(error, json.JSONDecodeError):
            number, reason = number or error.lineno, f"{error.msg.removesuffix(' at')} at character {error.colno}"
        raise ValueError(f"{path}, line {number or 1}: not {what} ({reason}); {remedy}") from error


def kind(value: object) -> str:
    """The JSON name of a value's type, for error messages."""
    names = {dict: "an object", list: "a list", bool: "true or false", type(None): "null", str: "a string"}
    return names.get(type(value), "a number" if isinstance(value, (int, float)) else f"a {type(value).__name__}")


Rows = Iterator[tuple[str, Any]]


def open_rows(path: Name, file_format: str | None) -> tuple[str, list[str], Rows]:
    """The format of a file, its column names, and its rows with their locations, the header among them.

    Args:
        path: The file.
        file_format: One of ``FORMATS``, except ``"text"``; None to decide by the first line. The names are then those
            of the header, or the keys of the first JSON object, or "names" that are data, which match nothing.
    """
    if file_format == "parquet":
        with _parquet(path) as file:
            return file_format, list(file.schema_arrow.names), iter(())
    lines = lines_of(path)
    if file_format is None:
        first = next(lines, "")
        file_format, lines = _detected(first), chain([first], lines)
    is_json = file_format in ("json", "jsonl")
    rows: Rows = values(lines, path, file_format) if is_json else _cells(lines, path, file_format)
    head = list(islice(rows, 1))
    names = [list(row) for _, row in head if isinstance(row, dict if is_json else list)]
    return file_format, names[0] if names else [], chain(head, rows)


def _detected(line: str) -> str:
    """The format of a file by its first line."""
    begins = line.lstrip().startswith(("{", "["))
    if "\t" not in line:
        return "jsonl" if begins else "csv"
    with suppress(ValueError, RecursionError):
        if begins:  # As a sentence in a TSV file may, too.
            json.loads(line)
            return "jsonl"
    return "tsv"


def records(path: Name, columns: Sequence[str], file_format: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rows of a file, each with its location: the named columns and, of JSON objects, all other keys, too.

    Empty lines at the end are skipped.

    Args:
        path: The file.
        columns: Column names in CSV, TSV and Parquet, or keys of JSON objects.
        file_format: One of ``FORMATS``, except ``"text"``.

    Raises:
        ImportError: If the file is Parquet and pyarrow is not installed.
        ValueError: If a column is missing or occurs twice, or a line is invalid.
    """
    if file_format == "parquet":  # Opened once: standard input cannot be read twice.
        yield from _parquet_rows(path, columns)
    else:
        yield from select_columns(path, columns, *open_rows(path, file_format))


def select_columns(
    path: Name, columns: Sequence[str], file_format: str, header: list[str], rows: Rows
) -> Iterator[tuple[str, dict[str, Any]]]:
    """As ``records``, from a file that is opened."""
    if file_format == "parquet":
        yield from _parquet_rows(path, columns)
        return
    if file_format in ("json", "jsonl"):
        yield from _objects(rows, columns)
        return
    check_columns(path, columns, header)
    places = {column: header.index(column) for column in columns}
    for where, row in islice(rows, 1, None):
        if len(row) != len(header):
            raise ValueError(f"{where}: {len(row)} cells where the header has {len(header)}; fix or remove the line")
        yield where, {column: row[place] for column, place in places.items()}


def check_columns(path: Name, columns: Sequence[str], header: list[str]) -> None:
    """Raise a ValueError if a column does not occur in the header exactly once."""
    for column in columns:
        if (found := header.count(column)) != 1:
            known = ", ".join(header) or "none"
            raise ValueError(f"{path}: {found or 'no'} columns {column!r}; name one that occurs once, of {known}")


def _objects(found: Rows, columns: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    for where, value in found:
        for column in columns:
            if not isinstance(value, dict):
                raise ValueError(f"{where}: {kind(value)}, not an object with the key {column!r}; name no column")
            if column not in value:
                raise ValueError(f"{where}: no key {column!r}; the keys are {', '.join(value) or 'none'}")
        yield where, value


def _parquet_rows(path: Name, columns: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    with _parquet(path) as file:
        check_columns(path, columns, list(file.schema_arrow.names))
        batches = file.iter_batches(_PARQUET_ROWS, columns=list(columns))
        for number, row in enumerate(chain.from_iterable(batch.to_pylist() for batch in batches), start=1):
            yield f"{path}, row {number}", row


def parquet_length(path: Name) -> int:
    """The number of rows of a Parquet file."""
    with _parquet(path) as file:
        return int(file.metadata.num_rows)


def parquet_types(paths: Sequence[Name], columns: Sequence[str]) -> dict[str, Any]:
    """The types of columns of Parquet files that fit the values of all of them.

    Raises:
        ValueError: If a column is missing, or has types of different kinds.
    """
    import pyarrow

    schemas, found = [], {}
    for path in paths:
        with _parquet(path) as file:
            check_columns(path, columns, list(file.schema_arrow.names))
            schemas.append(file.schema_arrow)
    for column in columns:
        try:
            kinds = [pyarrow.schema([schema.field(column)]) for schema in schemas]
            found[column] = pyarrow.unify_schemas(kinds, promote_options="permissive").field(column).type
        except pyarrow.ArrowException as error:
            raise ValueError(
                f"the files have different types in the column {column!r} ({error}); convert them"
            ) from error
    return found


@contextmanager
def _parquet(path: Name) -> Iterator[Any]:
    with needed(f"reading {path}", "pyarrow", "parquet"):
        from pyarrow import ArrowException, BufferReader
        from pyarrow.parquet import ParquetFile
    try:
        source: Any = os.fspath(path)
        if source == "-" or source.lower().endswith((".gz", ".zst")):  # Parquet needs random access.
            with open_bytes(path) as lines:
                source = BufferReader(b"".join(lines))
        # Row groups may be large, so they are read in pieces.
        options = {"buffer_size": _PARQUET_BYTES, "pre_buffer": False, "page_checksum_verification": True}
        with ParquetFile(source, **options) as file:
            yield file
    except (ArrowException, UnicodeDecodeError, *DAMAGED) as error:
        if getattr(error, "errno", None) is not None:
            raise
        raise ValueError(
            f"{path}: not a valid Parquet file ({error}); the file is damaged or has another format, download it again"
        ) from error


def _cells(lines: Iterable[str], path: Name, file_format: str) -> Iterator[tuple[str, list[str]]]:
    """The cells of each row of CSV or TSV, with the location of its last line. CSV may have empty lines."""
    if file_format == "tsv":
        for number, line in enumerate(_without_empty_end(lines), start=1):
            yield f"{path}, line {number}", without_ending(line).split("\t")
        return
    csv.field_size_limit(2**31 - 1)  # The default limit is 131,072 characters per cell.
    reader = csv.reader(lines, strict=True)
    try:
        for row in filter(None, reader):
            yield f"{path}, line {reader.line_num}", row
    except csv.Error as error:
        raise ValueError(f"{path}, line {reader.line_num}: {error}; fix the quotes there or before") from error
