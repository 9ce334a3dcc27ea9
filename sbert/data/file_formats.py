"""The formats of files: one table, and the one way in for all readers of texts, rows and data sets."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import json
import os
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from itertools import chain, repeat
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple

from sbert.inputs.extras import require

Name = str | os.PathLike[str]
# JSON values or the cells of rows, and rows by column; each with its location, for errors.
Values = Iterator[tuple[str, Any]]
Records = Iterator[tuple[str, dict[str, Any]]]
# The column of what has no columns: lines of plain text, and JSON values.
TEXT = "text"
# Megabytes of a line and of a row of CSV at most; and of a JSON array, which is parsed in memory.
_LONGEST, _LARGEST = 64, 1024
_MEGA = 1 << 20
# What is read of Parquet in one step: rows, and bytes of each column.
_ROWS, _BYTES = 1024, 1 << 20
# Suffixes of files that have texts, but not as plain text. Plain text may have any other suffix.
_UNSUPPORTED = frozenset(
    ".xlsx .xls .ods .pdf .doc .docx .odt .rtf .epub .html .htm .xml .yaml .yml .toml .ipynb".split()
)

# What reading a damaged file raises. An OSError with a number is one of the disk instead.
_DAMAGE = (EOFError, OSError, zlib.error)


class FileFormat(NamedTuple):
    """A format of files.

    Args:
        suffixes: The suffixes of its files, before that of a compression.
        columns: Where the names of columns stand: nowhere, in the keys of each object, or in a header.
        read: Called with a file and the names of columns; returns the rows, see ``read_records``.
        values: JSON values, or the cells of each row, the header among them.
        head: The number of rows and the schema of Arrow, if a file says them at its beginning or end.
        headless: Whether some publishers leave the names of columns out.
    """

    suffixes: tuple[str, ...]
    columns: Literal["none", "keys", "header"]
    read: Callable[[Name, Sequence[str] | None], Records]
    values: Callable[[Name], Values] = lambda _: iter(())
    head: Callable[[Name], tuple[int, Any]] | None = None
    headless: bool = False

    def header(self, path: Name) -> list[str]:
        """The names in the first line of CSV and TSV, the columns of Parquet, or the keys of the first JSON object."""
        first = self.head(path)[1].names if self.head else next(self.values(path), ("", []))[1]
        return list(first) if isinstance(first, dict) or self.columns == "header" else []


def read_records(path: Name, columns: Sequence[str] | None, file_format: str | None = None) -> Records:
    """The rows of a file, each with its location: the named columns and, of JSON objects, all other keys, too.

    Empty lines at the end are skipped, except those of plain text.

    Args:
        path: The file, compressed or not; ``"-"`` for standard input.
        columns: Column names in CSV, TSV and Parquet, or keys of JSON objects. None for plain text and for JSON values
            of any kind, whose one column is called ``"text"``.
        file_format: One of ``FILE_FORMATS``. Default: by the suffix of the file.

    Raises:
        ImportError: If the file is Parquet and pyarrow is not installed.
        OSError: If the file cannot be opened.
        ValueError: If a column is missing or occurs twice, or a line is invalid.
    """
    return check_source(path, columns, file_format).read(path, columns)


def check_source(path: Name, columns: Sequence[str] | None, file_format: str | None = None) -> FileFormat:
    """The format of a file, after what can be checked before it is read: that it exists, and whether it has columns.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the format is unknown, has no columns, or needs their names.
    """
    chosen = FILE_FORMATS[choose_format(path, file_format)]
    if chosen.columns == "none" and columns is not None:
        others = ", ".join(name for name, entry in FILE_FORMATS.items() if entry.columns != "none")
        raise ValueError(f"{path} is plain text and has no column {columns[0]!r}; name none, or a format of {others}")
    if chosen.columns == "header" and columns is None:
        raise ValueError(f"{path} has columns; pass column=, the one that holds the texts")
    check_exists(path)
    return chosen


def choose_format(path: Name, file_format: str | None = None) -> str:
    """The given format, or the one of the file's suffix; plain text if the suffix is unknown.

    Raises:
        ValueError: If the format is unknown, or the suffix belongs to an unsupported format.
    """
    suffix = _suffix_of(path)
    if file_format is None and suffix in _UNSUPPORTED:
        raise ValueError(f"{path} ends in {suffix}, which is not supported: {SUPPORTED}; save it as one of these")
    chosen = file_format or _SUFFIXES.get(suffix, "text")
    if chosen not in FILE_FORMATS:
        raise ValueError(f"file format {chosen!r} is unknown; pass one of {', '.join(FILE_FORMATS)}")
    return chosen


def find_format(path: Name) -> str | None:
    """The format of the suffix of a file; None if the suffix is unknown."""
    return _SUFFIXES.get(_suffix_of(path))


def _suffix_of(path: Name) -> str:
    """The suffix that says the format of a file: that before .gz or .zst."""
    return Path(Path(path).name.lower().removesuffix(".gz").removesuffix(".zst")).suffix


def check_exists(path: Name) -> None:
    """Raise a FileNotFoundError now, not at the first line: the caller may load a model in between."""
    if os.fspath(path) != "-" and not Path(path).exists():
        raise FileNotFoundError(f"{path} does not exist; name a file, or - for standard input")


def need_columns(path: Name, columns: Sequence[str], header: Sequence[str]) -> None:
    """Raise a ValueError if a column does not occur in the header exactly once."""
    for column in columns:
        if (count := list(header).count(column)) != 1:
            known = ", ".join(header) or "none"
            raise ValueError(f"{path}: {count or 'no'} columns {column!r}; name one that occurs once, of {known}")


def name_kind(value: object) -> str:
    """The JSON name of a value's type, for error messages."""
    names = {dict: "an object", list: "a list", bool: "true or false", type(None): "null", str: "a string"}
    return names.get(type(value), "a number" if isinstance(value, (int, float)) else f"a {type(value).__name__}")


def open_bytes(path: Name) -> AbstractContextManager[IO[bytes]]:
    """Open a file, compressed or not, or standard input."""
    if os.fspath(path) == "-":
        if sys.stdin is None:
            raise ValueError("standard input is closed; name a file, or pipe the texts")
        return nullcontext(sys.stdin.buffer)
    suffix = Path(path).suffix.lower()
    if suffix == ".zst":  # Arrow reads several frames and says if the last is cut short, which not every package does.
        with require(f"reading {path}", "pyarrow", "parquet"):
            from pyarrow import input_stream
        return io.BufferedReader(input_stream(os.fspath(path), compression="zstd"))
    return gzip.open(path) if suffix == ".gz" else Path(path).open("rb")  # type: ignore[return-value]


def read_lines(path: Name) -> Iterator[str]:
    """The lines of a UTF-8 file, with their line feeds. Only a line feed ends a line; other Unicode breaks are text."""
    number = 0
    try:
        with open_bytes(path) as file:
            for number, line in enumerate(iter(partial(file.readline, _LONGEST * _MEGA + 1), b""), start=1):
                if len(line) > _LONGEST * _MEGA:  # Of a compressed file, a line may have thousands of times its size.
                    remedy = "put each text or row in a line of its own"
                    raise ValueError(f"{path}, line {number}: longer than {_LONGEST} MB, the most of a line; {remedy}")
                text = (line.removeprefix(codecs.BOM_UTF8) if number == 1 else line).decode("utf-8")
                if "\0" in text:  # UTF-16, or a binary file.
                    raise ValueError(f"{path}, line {number}: a NUL byte; convert the text to UTF-8 ({SUPPORTED})")
                yield text
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}, line {number}: not UTF-8 ({error.reason}); convert the text to UTF-8") from error
    except _DAMAGE as error:
        if getattr(error, "errno", None) is not None:
            raise
        raise ValueError(f"{path}, after line {number}: {error}; the file is damaged, download it again") from error


# ----------------------------------------------------------------------------------------------- text and JSON


def _read_text(path: Name, _: Sequence[str] | None) -> Records:
    for number, line in enumerate(read_lines(path), start=1):
        yield f"{path}, line {number}", {TEXT: _without_end(line)}


def _read_objects(values: Callable[[Name], Values], path: Name, columns: Sequence[str] | None) -> Records:
    for where, value in values(path):
        if columns is not None and not isinstance(value, dict):
            raise ValueError(f"{where}: {name_kind(value)}, not an object with the key {columns[0]!r}; name no column")
        if lacking := [column for column in columns or () if column not in value]:
            raise ValueError(f"{where}: no key {lacking[0]!r}; the keys are {', '.join(value) or 'none'}")
        yield where, {TEXT: value} if columns is None else value


def _read_jsonl(path: Name, lines: Iterable[str] | None = None) -> Values:
    for number, line in _number(read_lines(path) if lines is None else lines):
        yield f"{path}, line {number}", _parse(line, path, number)


def _read_json(path: Name) -> Values:
    """The elements of an array, which is parsed in memory. Without one it is JSONL: many such files end in .json."""
    lines, number, start = read_lines(path), 0, ""
    for number, start in enumerate(lines, start=1):  # noqa: B007
        if start.strip():
            break
    lines = chain(repeat("\n", number - 1), [start], lines)
    if not start.lstrip().startswith("["):
        yield from _read_jsonl(path, lines)
        return
    text = io.StringIO()
    for line in lines:
        if text.tell() + len(line) > _LARGEST * _MEGA:
            remedy = "save it as JSONL, one value per line"
            raise ValueError(f"{path}: an array of more than {_LARGEST} MB, which is parsed in memory; {remedy}")
        text.write(line)
    for number, value in enumerate(_parse(text.getvalue(), path, 1), start=1):
        yield f"{path}, element {number}", value


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


# ------------------------------------------------------------------------------------------------- CSV and TSV


def _read_table(cells: Callable[[Name], Values], path: Name, columns: Sequence[str] | None) -> Records:
    rows = cells(path)
    header: list[str] = next(rows, ("", []))[1]
    need_columns(path, columns or (), header)
    positions = {column: header.index(column) for column in columns or ()}
    for where, row in rows:
        if len(row) != len(header):
            raise ValueError(f"{where}: {len(row)} cells where the header has {len(header)}; fix or remove the line")
        yield where, {column: row[position] for column, position in positions.items()}


def _read_tsv(path: Name) -> Values:
    for number, line in _number(read_lines(path)):
        yield f"{path}, line {number}", line.split("\t")


def _read_csv(path: Name) -> Values:
    """The cells of each row, with the location of its last line. There may be empty lines."""
    csv.field_size_limit(2**31 - 1)  # The default limit is 131,072 characters per cell.
    size = 0  # Of the lines of a row, which a quote may join with all that follow.

    def lines() -> Iterator[str]:
        nonlocal size
        for line in read_lines(path):
            size += len(line)
            if size > _LONGEST * _MEGA:
                raise csv.Error(f"a row of more than {_LONGEST} MB")
            yield line

    reader = csv.reader(lines(), strict=True)
    try:
        for row in reader:
            size = 0
            if row:
                yield f"{path}, line {reader.line_num}", row
    except csv.Error as error:
        raise ValueError(f"{path}, line {reader.line_num}: {error}; fix the quotes there or before") from error


def _without_end(line: str) -> str:
    """A line without its line feed, or carriage return and line feed."""
    return line[:-2] if line.endswith("\r\n") else line.removesuffix("\n")


def _number(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """The lines from 1 on, without their line feeds, but for the empty lines at the end."""
    last = 0  # Number of the last line that is not empty.
    for number, line in enumerate(map(_without_end, lines), start=1):
        if line:
            yield from ((empty, "") for empty in range(last + 1, number))
            yield number, line
            last = number


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
            with open_bytes(path) as file:
                content = file.read(_LARGEST * _MEGA + 1)
            if len(content) > _LARGEST * _MEGA:
                raise ValueError(f"{path}: more than {_LARGEST} MB to read into memory; pass an uncompressed file")
            source = BufferReader(content)
        # Row groups may be large, so they are read in parts.
        with ParquetFile(source, buffer_size=_BYTES, pre_buffer=False, page_checksum_verification=True) as file:
            yield file
    except (ArrowException, UnicodeDecodeError, *_DAMAGE) as error:
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
            need_columns(path, columns, file.schema_arrow.names)
        batches = file.iter_batches(_ROWS, columns=None if columns is None else list(columns))
        for number, row in enumerate(chain.from_iterable(batch.to_pylist() for batch in batches), start=1):
            yield f"{path}, row {number}", row


def _read_head(path: Name) -> tuple[int, Any]:
    with open_parquet(path) as file:
        return file.metadata.num_rows, file.schema_arrow


# ---------------------------------------------------------------------------------------------------- the table

# All else that depends on a format asks this table.
FILE_FORMATS: dict[str, FileFormat] = {
    "text": FileFormat((".txt",), "none", _read_text),
    "jsonl": FileFormat((".jsonl", ".ndjson"), "keys", partial(_read_objects, _read_jsonl), _read_jsonl, headless=True),
    "csv": FileFormat((".csv",), "header", partial(_read_table, _read_csv), _read_csv),
    "tsv": FileFormat((".tsv", ".tab"), "header", partial(_read_table, _read_tsv), _read_tsv, headless=True),
    "json": FileFormat((".json",), "keys", partial(_read_objects, _read_json), _read_json),
    "parquet": FileFormat((".parquet",), "header", read_parquet, head=_read_head),
}
_SUFFIXES = {suffix: name for name, entry in FILE_FORMATS.items() for suffix in entry.suffixes}
SUPPORTED = f"sbert reads {', '.join(FILE_FORMATS)} (text has one text per line)"
