"""Texts from files, one after the other."""

from __future__ import annotations

import codecs
import csv
import gzip
import json
import os
import sys
import zlib
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

FORMATS = ("text", "jsonl", "csv", "tsv")
_SUFFIXES = {".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".tsv": "tsv"}


def read_texts(
    path: str | os.PathLike[str], column: str | None = None, file_format: str | None = None
) -> Iterator[str]:
    r"""The texts of a UTF-8 file in order, read as they are asked for.

    Text: one text a line, empty lines included. JSONL: one JSON string a line, or with ``column`` one object.
    CSV and TSV: a header line, and the column of that name; TSV knows no quotes, CSV does.

    Args:
        path: The file, gzipped where it ends in ``.gz``; ``"-"`` for standard input.
        column: Name of the column, or of the object's key.
        file_format: ``"text"``, ``"jsonl"``, ``"csv"`` or ``"tsv"``; by the file's ending where it is not given.

    Raises:
        OSError: If the file cannot be opened.
        ValueError: If a line does not fit, with its number.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder) / "texts.tsv"
        ...     _ = file.write_text("id\ttext\n1\tA 5\" nail.\n", encoding="utf-8")
        ...     list(read_texts(file, column="text"))
        ['A 5" nail.']
    """
    chosen = file_format or _format_of(Path(path))
    if chosen not in FORMATS:
        raise ValueError(f"file format {chosen!r} is unknown; pass one of {', '.join(FORMATS)}")
    if column is None and chosen in ("csv", "tsv"):
        raise ValueError(f"{path} is {chosen.upper()}; name the column that holds the texts")
    if column is not None and chosen == "text":
        raise ValueError(f"{path} is plain text and has no column {column!r}; name another format")
    # Said at once, not when the first text is asked for: a model may be loaded in between.
    if os.fspath(path) != "-" and not Path(path).exists():
        raise FileNotFoundError(f"{path} does not exist; name a file, or - for standard input")
    return _texts(path, column, chosen)


def _format_of(path: Path) -> str:
    name = path.name.lower().removesuffix(".gz")
    return _SUFFIXES.get(Path(name).suffix, "text")


def _texts(path: str | os.PathLike[str], column: str | None, file_format: str) -> Iterator[str]:
    with _open(path) as file:
        lines = _lines(file, path)
        if file_format == "text":
            yield from map(_without_ending, lines)
        elif file_format == "jsonl":
            yield from _json_texts(lines, path, column)
        else:
            yield from _table_texts(lines, path, str(column), file_format)


def _open(path: str | os.PathLike[str]) -> AbstractContextManager[Iterable[bytes]]:
    if os.fspath(path) == "-":
        return nullcontext(sys.stdin.buffer)
    if Path(path).suffix.lower() == ".gz":
        return gzip.open(path)
    return Path(path).open("rb")


def _lines(file: Iterable[bytes], path: str | os.PathLike[str]) -> Iterator[str]:
    """Lines with their endings; only a line feed ends one, since other breaks, of which Unicode has many, are text."""
    number = 0
    try:
        for number, line in enumerate(file, start=1):
            yield (line.removeprefix(codecs.BOM_UTF8) if number == 1 else line).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}, line {number}: not UTF-8 ({error.reason}); convert the file to UTF-8") from error
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path}, after line {number}: {error}; the file is damaged, get it again") from error


def _without_ending(line: str) -> str:
    return line[:-2] if line.endswith("\r\n") else line.removesuffix("\n")


def _json_texts(lines: Iterator[str], path: str | os.PathLike[str], column: str | None) -> Iterator[str]:
    for number, line in enumerate(lines, start=1):
        where = f"{path}, line {number}"
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            reason: object = error
            if isinstance(error, json.JSONDecodeError):
                reason = f"{error.msg.removesuffix(' at')} at character {error.colno}"
            raise ValueError(f"{where}: no JSON ({reason}); mend or remove the line") from error
        if column is not None:
            if not isinstance(value, dict):
                raise ValueError(f"{where}: {_kind(value)}, not an object with the key {column!r}; name no column")
            if column not in value:
                raise ValueError(f"{where}: no key {column!r}; the keys are {', '.join(value) or 'none'}")
            value = value[column]
        if not isinstance(value, str):
            remedy = "name the column that holds the texts" if column is None else "put a string there"
            raise ValueError(f"{where}: {_kind(value)} where a text is expected; {remedy}")
        yield value


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", bool: "true or false", type(None): "null", str: "a string"}
    return names.get(type(value), "a number")


def _table_texts(lines: Iterator[str], path: str | os.PathLike[str], column: str, file_format: str) -> Iterator[str]:
    rows = _csv_rows(lines, path) if file_format == "csv" else _tsv_rows(lines)
    _, header = next(rows, (1, []))
    found = header.count(column)
    if found != 1:
        known = ", ".join(header) or "none"
        raise ValueError(f"{path}: {found or 'no'} columns {column!r}; name one that is there once, of {known}")
    place = header.index(column)
    for number, row in rows:
        if len(row) != len(header):
            raise ValueError(
                f"{path}, line {number}: {len(row)} cells where the header has {len(header)}; mend or remove the line"
            )
        yield row[place]


def _tsv_rows(lines: Iterator[str]) -> Iterator[tuple[int, list[str]]]:
    """Rows with the number of their line."""
    for number, line in enumerate(lines, start=1):
        yield number, _without_ending(line).split("\t")


def _csv_rows(lines: Iterator[str], path: str | os.PathLike[str]) -> Iterator[tuple[int, list[str]]]:
    """Rows with the number of their last line; empty lines are none."""
    csv.field_size_limit(2**31 - 1)  # The default refuses documents of more than 131,072 characters.
    reader = csv.reader(lines, strict=True)
    try:
        for row in reader:
            if row:
                yield reader.line_num, row
    except csv.Error as error:
        raise ValueError(f"{path}, line {reader.line_num}: {error}; mend the quotes there or before") from error
