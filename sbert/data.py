"""Texts from files, one after the other."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

FORMATS = ("text", "jsonl", "csv", "tsv")
_SUFFIXES = {".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".tsv": "tsv"}


def read_texts(path: str | os.PathLike[str], column: str | None = None, form: str | None = None) -> Iterator[str]:
    r"""The texts of a file in order, read as they are asked for.

    Text: one text a line, empty lines included. JSONL: one JSON string a line, or with ``column`` one object.
    CSV and TSV: a header line, and the column of that name; TSV knows no quotes, CSV does.

    Args:
        path: The file, gzipped where it ends in ``.gz``; ``"-"`` for standard input.
        column: Name of the column, or of the object's key.
        form: ``"text"``, ``"jsonl"``, ``"csv"`` or ``"tsv"``; by the file's ending where it is not given.

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
    suffixes = Path(path).suffixes
    ending = suffixes[-2] if suffixes[-1:] == [".gz"] and len(suffixes) > 1 else "".join(suffixes[-1:])
    form = form or _SUFFIXES.get(ending.lower(), "text")
    if form not in FORMATS:
        raise ValueError(f"format {form!r} is unknown; pass one of {', '.join(FORMATS)}")
    if column is None and form in ("csv", "tsv"):
        raise ValueError(f"{path} is {form.upper()}; name the column that holds the texts")
    if column is not None and form == "text":
        raise ValueError(f"{path} is plain text and has no column {column!r}; name another format")
    with _open(path) as file:
        if form == "text":
            yield from _lines(file, path)
        elif form == "jsonl":
            yield from _json_lines(_lines(file, path), path, column)
        else:
            yield from _table(file, path, str(column), form)


def _open(path: str | os.PathLike[str]) -> IO[str]:
    # Only "\n" ends a line: other line breaks, which Python knows many of, stand within texts.
    if os.fspath(path) == "-":
        return io.TextIOWrapper(sys.stdin.buffer, encoding="utf-8", newline="\n")
    if Path(path).suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8", newline="\n")
    return Path(path).open(encoding="utf-8", newline="\n")


def _lines(file: IO[str], path: str | os.PathLike[str]) -> Iterator[str]:
    number = 0
    try:
        for line in file:
            number += 1
            yield line.removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}, after line {number}: not UTF-8 ({error.reason}); convert the file") from error
    except (EOFError, gzip.BadGzipFile) as error:
        raise ValueError(f"{path}, after line {number}: {error}; the file is damaged") from error


def _json_lines(lines: Iterator[str], path: str | os.PathLike[str], column: str | None) -> Iterator[str]:
    for number, line in enumerate(lines, start=1):
        try:
            value = json.loads(line)
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: no JSON ({error}); mend or remove the line") from error
        if column is not None:
            if not isinstance(value, dict) or column not in value:
                found = ", ".join(value) if isinstance(value, dict) else f"a {type(value).__name__}"
                raise ValueError(f"{path}, line {number}: no key {column!r}, but {found}; name another column")
            value = value[column]
        if not isinstance(value, str):
            remedy = "put a string there" if column else "name the column that holds the texts"
            raise ValueError(f"{path}, line {number}: a {type(value).__name__} where a text is expected; {remedy}")
        yield value


def _table(file: IO[str], path: str | os.PathLike[str], column: str, form: str) -> Iterator[str]:
    lines = (line + "\n" for line in _lines(file, path))
    rows = csv.reader(lines) if form == "csv" else (line[:-1].split("\t") for line in lines)
    try:
        header: list[str] = next(iter(rows), [])
        if column not in header:
            known = ", ".join(header) or "none"
            raise ValueError(f"{path}: no column {column!r}; the columns are {known}")
        place = header.index(column)
        for number, row in enumerate(rows, start=2):
            if len(row) != len(header):
                raise ValueError(
                    f"{path}, row {number}: {len(row)} cells where the header has {len(header)}; mend or remove the row"
                )
            yield row[place]
    except csv.Error as error:
        raise ValueError(f"{path}: {error}; mend the file") from error
