"""Files as records: what readers of texts and of rows have in common."""

from __future__ import annotations

import codecs
import csv
import gzip
import json
import os
import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import chain
from pathlib import Path
from typing import Any

from sbert.inputs.extras import missing

Name = str | os.PathLike[str]

FORMATS = ("text", "jsonl", "csv", "tsv", "json", "parquet")
READ = "sbert reads text with one text a line, JSONL, JSON arrays, CSV, TSV and Parquet"
_SUFFIXES = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".parquet": "parquet",
}
# Endings of what is certainly no text with one text a line; a text may have any other ending.
_OTHERS = frozenset(
    ".xlsx .xlsm .xls .ods .numbers .pdf .doc .docx .odt .rtf .ppt .pptx .epub .html .htm .xhtml .xml .yaml .yml .toml"
    " .ipynb .npy .npz .pkl .pickle .pt .pth .bin .safetensors .h5 .hdf5 .mat .feather .arrow .orc .avro .db .sqlite"
    " .sqlite3 .duckdb .zip .tar .tgz .7z .rar .bz2 .xz .zst .png .jpg .jpeg .gif .webp .mp3 .wav .mp4".split()
)


def format_of(path: Name, file_format: str | None) -> str:
    """The format that was given, or that the file's ending says; plain text where it says nothing.

    Raises:
        ValueError: If the format is unknown, or the ending says that the file is something else.
    """
    ending = Path(Path(path).name.lower().removesuffix(".gz")).suffix
    if file_format is None and ending in _OTHERS:
        raise ValueError(f"{path} ends in {ending}, which is not read: {READ}; save it as one of these")
    chosen = file_format or _SUFFIXES.get(ending, "text")
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
            text = (line.removeprefix(codecs.BOM_UTF8) if number == 1 else line).decode("utf-8")
            if "\0" in text:  # UTF-16, or no text at all.
                raise ValueError(f"{path}, line {number}: a NUL byte; convert a text to UTF-8. Of files, {READ}")
            yield text
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path}, line {number}: not UTF-8 ({error.reason}); convert a text to UTF-8. Of files, {READ}"
        ) from error
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path}, after line {number}: {error}; the file is damaged, get it again") from error


def lines_of(path: Name) -> Iterator[str]:
    """The lines of a file, as ``decoded`` has them."""
    with open_bytes(path) as file:
        yield from decoded(file, path)


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


def values(lines: Iterator[str], path: Name, file_format: str = "jsonl") -> Iterator[tuple[str, Any]]:
    """JSON values, and where they stand: of each line; or of the format json, those of an array.

    A file of JSON that holds no array has a value a line, as many call such files.
    """
    if file_format == "json":
        head = []
        for line in lines:
            head.append(line)
            if line.strip():
                break
        lines = chain(head, lines)
        if head and head[-1].lstrip().startswith("["):
            yield from _elements("".join(lines), path)
            return
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


def _elements(text: str, path: Name) -> Iterator[tuple[str, Any]]:
    """The elements of a JSON array, which has to be in memory as a whole."""
    try:
        listed = json.loads(text)
    except (ValueError, RecursionError) as error:
        at = f", line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        reason = error.msg if isinstance(error, json.JSONDecodeError) else error
        raise ValueError(f"{path}{at}: no JSON array ({reason}); mend it, or pass the format jsonl") from error
    for number, value in enumerate(listed, start=1):
        yield f"{path}, element {number}", value


def kind(value: object) -> str:
    """What JSON calls a value."""
    names = {dict: "an object", list: "a list", bool: "true or false", type(None): "null", str: "a string"}
    return names.get(type(value), "a number" if isinstance(value, (int, float)) else f"a {type(value).__name__}")


def records(
    path: Name, columns: Sequence[str], file_format: str, lines: Iterator[str] | None = None
) -> Iterator[tuple[str, list[Any]]]:
    """The values of the named columns, row by row, and where they stand; empty lines at the end are none.

    Args:
        path: The file.
        columns: Names in the header of CSV and TSV or the schema of Parquet, or keys of JSON's objects.
        file_format: One of ``FORMATS``, but for ``"text"``.
        lines: Those of the file, if some of them have been read.

    Raises:
        ImportError: If the file is Parquet and pyarrow is not installed.
        ValueError: If a column is not there once, or a line does not fit.
    """
    if file_format == "parquet":
        return parquet_rows(path, columns)
    lines = lines_of(path) if lines is None else lines
    if file_format in ("json", "jsonl"):
        return _objects(values(lines, path, file_format), columns)
    return _table(lines, path, columns, file_format)


def _objects(found: Iterable[tuple[str, Any]], columns: Sequence[str]) -> Iterator[tuple[str, list[Any]]]:
    for where, value in found:
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
    _check_columns(path, columns, header)
    places = [header.index(column) for column in columns]
    for number, row in rows:
        where = f"{path}, line {number}"
        if len(row) != len(header):
            raise ValueError(f"{where}: {len(row)} cells where the header has {len(header)}; mend or remove the line")
        yield where, [row[place] for place in places]


def _check_columns(path: Name, columns: Sequence[str], header: list[str]) -> None:
    for column in columns:
        found = header.count(column)
        if found != 1:
            known = ", ".join(header) or "none"
            raise ValueError(f"{path}: {found or 'no'} columns {column!r}; name one that is there once, of {known}")


def parquet_names(path: Name) -> list[str]:
    """The names of the columns of a Parquet file."""
    with _parquet(path) as file:
        return list(file.schema_arrow.names)


def parquet_rows(path: Name, columns: Sequence[str]) -> Iterator[tuple[str, list[Any]]]:
    """The values of the named columns of a Parquet file, of which a part at a time is in memory."""
    with _parquet(path) as file:
        _check_columns(path, columns, list(file.schema_arrow.names))
        number = 0
        for batch in file.iter_batches(columns=list(columns)):
            for row in batch.to_pylist():
                number += 1
                yield f"{path}, row {number}", [row[column] for column in columns]


@contextmanager
def _parquet(path: Name) -> Iterator[Any]:
    try:
        from pyarrow import ArrowException, BufferReader
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise missing(f"reading {path}", "pyarrow", "parquet") from error
    try:
        if os.fspath(path) == "-" or Path(path).suffix.lower() == ".gz":  # Its end is read first.
            with open_bytes(path) as lines:
                source: Any = BufferReader(b"".join(lines))
        else:
            source = os.fspath(path)
        with ParquetFile(source) as file:
            yield file
    except ArrowException as error:
        raise ValueError(
            f"{path}: no Parquet ({error}); the file is damaged or something else, get it again"
        ) from error


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
