"""Files as lines, and lines as records: what readers of texts and of rows have in common."""

from __future__ import annotations

import codecs
import csv
import gzip
import json
import os
import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

Name = str | os.PathLike[str]

FORMATS = ("text", "jsonl", "csv", "tsv")
_SUFFIXES = {".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".tsv": "tsv"}


def format_of(path: Name, file_format: str | None) -> str:
    """The format that was given, or that the file's ending says; plain text where it says nothing.

    Raises:
        ValueError: If the format is unknown.
    """
    name = Path(path).name.lower().removesuffix(".gz")
    chosen = file_format or _SUFFIXES.get(Path(name).suffix, "text")
    if chosen not in FORMATS:
        raise ValueError(f"file format {chosen!r} is unknown; pass one of {', '.join(FORMATS)}")
    return chosen


def check_there(path: Name) -> None:
    """Raise a FileNotFoundError at once, not when the first line is asked for: a model may be loaded in between."""
    if os.fspath(path) != "-" and not Path(path).exists():
        raise FileNotFoundError(f"{path} does not exist; name a file, or - for standard input")


def open_bytes(path: Name) -> AbstractContextManager[Iterable[bytes]]:
    """The lines of a file, gzipped or not, or of standard input."""
    if os.fspath(path) == "-":
        return nullcontext(sys.stdin.buffer)
    if Path(path).suffix.lower() == ".gz":
        return gzip.open(path)
    return Path(path).open("rb")


def decoded(file: Iterable[bytes], path: Name) -> Iterator[str]:
    """Lines with their endings; only a line feed ends one, since other breaks, of which Unicode has many, are text."""
    number = 0
    try:
        for number, line in enumerate(file, start=1):
            yield (line.removeprefix(codecs.BOM_UTF8) if number == 1 else line).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}, line {number}: not UTF-8 ({error.reason}); convert the file to UTF-8") from error
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path}, after line {number}: {error}; the file is damaged, get it again") from error


def without_ending(line: str) -> str:
    """A line without its line feed, or carriage return and line feed."""
    return line[:-2] if line.endswith("\r\n") else line.removesuffix("\n")


def _without_empty_end(lines: Iterable[str]) -> Iterator[str]:
    """The lines up to the last one that is not empty."""
    empty: list[str] = []
    for line in lines:
        if not without_ending(line):
            empty.append(line)
            continue
        yield from empty
        yield line
        empty.clear()


def values(lines: Iterable[str], path: Name) -> Iterator[tuple[str, Any]]:
    """The JSON value of each line, and where it stands."""
    for number, line in enumerate(_without_empty_end(lines), start=1):
        where = f"{path}, line {number}"
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            reason: object = error
            if isinstance(error, json.JSONDecodeError):
                reason = f"{error.msg.removesuffix(' at')} at character {error.colno}"
            raise ValueError(f"{where}: no JSON ({reason}); mend or remove the line") from error
        yield where, value


def kind(value: object) -> str:
    """What JSON calls a value."""
    names = {dict: "an object", list: "a list", bool: "true or false", type(None): "null", str: "a string"}
    return names.get(type(value), "a number")


def records(
    lines: Iterator[str], path: Name, columns: Sequence[str], file_format: str
) -> Iterator[tuple[str, list[Any]]]:
    """The values of the named columns, line by line, and where they stand; empty lines at the end are none.

    Args:
        lines: Of the file.
        path: Of the file, for errors.
        columns: Names in the header of CSV and TSV, or keys of JSONL's objects.
        file_format: ``"jsonl"``, ``"csv"`` or ``"tsv"``.

    Raises:
        ValueError: If a column is not there once, or a line does not fit.
    """
    if file_format == "jsonl":
        return _objects(lines, path, columns)
    return _table(lines, path, columns, file_format)


def _objects(lines: Iterator[str], path: Name, columns: Sequence[str]) -> Iterator[tuple[str, list[Any]]]:
    for where, value in values(lines, path):
        for column in columns:
            if not isinstance(value, dict):
                raise ValueError(f"{where}: {kind(value)}, not an object with the key {column!r}; name no column")
            if column not in value:
                raise ValueError(f"{where}: no key {column!r}; the keys are {', '.join(value) or 'none'}")
        yield where, [value[column] for column in columns]


def _table(
    lines: Iterator[str], path: Name, columns: Sequence[str], file_format: str
) -> Iterator[tuple[str, list[Any]]]:
    rows = _csv_rows(lines, path) if file_format == "csv" else tsv_rows(lines)
    _, header = next(rows, (1, []))
    for column in columns:
        found = header.count(column)
        if found != 1:
            known = ", ".join(header) or "none"
            raise ValueError(f"{path}: {found or 'no'} columns {column!r}; name one that is there once, of {known}")
    places = [header.index(column) for column in columns]
    for number, row in rows:
        where = f"{path}, line {number}"
        if len(row) != len(header):
            raise ValueError(f"{where}: {len(row)} cells where the header has {len(header)}; mend or remove the line")
        yield where, [row[place] for place in places]


def tsv_rows(lines: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
    """Rows with the number of their line."""
    for number, line in enumerate(_without_empty_end(lines), start=1):
        yield number, without_ending(line).split("\t")


def _csv_rows(lines: Iterator[str], path: Name) -> Iterator[tuple[int, list[str]]]:
    """Rows with the number of their last line; empty lines are none."""
    csv.field_size_limit(2**31 - 1)  # The default refuses documents of more than 131,072 characters.
    reader = csv.reader(lines, strict=True)
    try:
        for row in reader:
            if row:
                yield reader.line_num, row
    except csv.Error as error:
        raise ValueError(f"{path}, line {reader.line_num}: {error}; mend the quotes there or before") from error
