"""The formats of files of texts and rows, and the bytes and lines of these files, compressed or not."""

from __future__ import annotations

import codecs
import gzip
import io
import os
import sys
import zlib
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from sbert.inputs.extras import require

Name = str | os.PathLike[str]

# The format of each suffix; ``read_records`` in ``sbert.data.records`` reads each format.
SUFFIXES = {
    ".txt": "text",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".json": "json",
    ".parquet": "parquet",
}
FORMATS = tuple(dict.fromkeys(SUFFIXES.values()))
SUPPORTED = "sbert reads plain text (one text per line), JSONL, JSON arrays, CSV, TSV and Parquet"
# Suffixes of files that have texts, but not as plain text. Plain text may have any other suffix.
_UNSUPPORTED = frozenset(
    ".xlsx .xls .ods .pdf .doc .docx .odt .rtf .epub .html .htm .xml .yaml .yml .toml .ipynb".split()
)

# What reading a damaged file raises. An OSError with a number is one of the disk instead.
DAMAGE = (EOFError, OSError, zlib.error)


def suffix_of(path: Name) -> str:
    """The suffix that says the format of a file: that before .gz or .zst."""
    return Path(Path(path).name.lower().removesuffix(".gz").removesuffix(".zst")).suffix


def choose_format(path: Name, file_format: str | None = None) -> str:
    """The given format, or the one of the file's suffix; plain text if the suffix is unknown.

    Raises:
        ValueError: If the format is unknown, or the suffix belongs to an unsupported format.
    """
    suffix = suffix_of(path)
    if file_format is None and suffix in _UNSUPPORTED:
        raise ValueError(f"{path} ends in {suffix}, which is not supported: {SUPPORTED}; save it as one of these")
    chosen = file_format or SUFFIXES.get(suffix, "text")
    if chosen not in FORMATS:
        raise ValueError(f"file format {chosen!r} is unknown; pass one of {', '.join(FORMATS)}")
    return chosen


def check_exists(path: Name) -> None:
    """Raise a FileNotFoundError now, not at the first line: the caller may load a model in between."""
    if os.fspath(path) != "-" and not Path(path).exists():
        raise FileNotFoundError(f"{path} does not exist; name a file, or - for standard input")


def open_bytes(path: Name) -> AbstractContextManager[Iterable[bytes]]:
    """Open a file, compressed or not, or standard input, as an iterable of lines."""
    if os.fspath(path) == "-":
        return nullcontext(sys.stdin.buffer)
    suffix = Path(path).suffix.lower()
    if suffix == ".zst":  # Arrow reads several frames and says if the last is cut short, which not every package does.
        with require(f"reading {path}", "pyarrow", "parquet"):
            from pyarrow import input_stream
        return io.BufferedReader(input_stream(os.fspath(path), compression="zstd"))
    return gzip.open(path) if suffix == ".gz" else Path(path).open("rb")


def read_lines(path: Name) -> Iterator[str]:
    """The lines of a UTF-8 file, with their line feeds. Only a line feed ends a line; other Unicode breaks are text."""
    number = 0
    try:
        with open_bytes(path) as file:
            for number, line in enumerate(file, start=1):
                text = (line.removeprefix(codecs.BOM_UTF8) if number == 1 else line).decode("utf-8")
                if "\0" in text:  # UTF-16, or a binary file.
                    raise ValueError(f"{path}, line {number}: a NUL byte; convert the text to UTF-8 ({SUPPORTED})")
                yield text
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}, line {number}: not UTF-8 ({error.reason}); convert the text to UTF-8") from error
    except DAMAGE as error:
        if getattr(error, "errno", None) is not None:
            raise
        raise ValueError(f"{path}, after line {number}: {error}; the file is damaged, download it again") from error
