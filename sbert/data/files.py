"""The files of texts and rows: their formats, and their lines, compressed or not."""

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

from sbert.inputs.extras import needed

Name = str | os.PathLike[str]

FORMATS = ("text", "jsonl", "csv", "tsv", "json", "parquet")
READ = "sbert reads plain text (one text per line), JSONL, JSON arrays, CSV, TSV and Parquet"
_SUFFIXES = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".parquet": "parquet",
}
# Suffixes of files that are certainly not plain text. Plain text may have any other suffix.
_OTHERS = frozenset(
    ".xlsx .xlsm .xls .ods .numbers .pdf .doc .docx .odt .rtf .ppt .pptx .epub .html .htm .xhtml .xml .yaml .yml .toml"
    " .ipynb .npy .npz .pkl .pickle .pt .pth .bin .safetensors .h5 .hdf5 .mat .feather .arrow .orc .avro .db .sqlite"
    " .sqlite3 .duckdb .zip .tar .tgz .7z .rar .bz2 .xz .png .jpg .jpeg .gif .webp .mp3 .wav .mp4".split()
)

# What reading a damaged file raises. An OSError with a number is one of the disk instead.
DAMAGED = (EOFError, OSError, zlib.error)


def ending_of(path: Name) -> str:
    """The suffix of a file that says its format: that before .gz or .zst."""
    return Path(Path(path).name.lower().removesuffix(".gz").removesuffix(".zst")).suffix


def is_readable(path: Name) -> bool:
    """Whether the suffix of a file belongs to a supported format."""
    return ending_of(path) in (".txt", *_SUFFIXES)


def format_of(path: Name, file_format: str | None) -> str:
    """The given format, or the one of the file's suffix; plain text if the suffix is unknown.

    Raises:
        ValueError: If the format is unknown, or the suffix belongs to an unsupported format.
    """
    ending = ending_of(path)
    if file_format is None and ending in _OTHERS:
        raise ValueError(f"{path} ends in {ending}, which is not supported: {READ}; save it as one of these")
    chosen = file_format or _SUFFIXES.get(ending, "text")
    if chosen not in FORMATS:
        raise ValueError(f"file format {chosen!r} is unknown; pass one of {', '.join(FORMATS)}")
    return chosen


def check_there(path: Name) -> None:
    """Raise a FileNotFoundError now, not at the first line: the caller may load a model in between."""
    if os.fspath(path) != "-" and not Path(path).exists():
        raise FileNotFoundError(f"{path} does not exist; name a file, or - for standard input")


def open_bytes(path: Name) -> AbstractContextManager[Iterable[bytes]]:
    """Open a file, compressed or not, or standard input, as an iterable of lines."""
    if os.fspath(path) == "-":
        return nullcontext(sys.stdin.buffer)
    ending = Path(path).suffix.lower()
    if ending == ".zst":
        return _open_zstd(path)
    return gzip.open(path) if ending == ".gz" else Path(path).open("rb")


def _open_zstd(path: Name) -> io.BufferedReader:
    """Open a zstd file with one or several frames. Arrow says if it is cut short, which not every package does."""
    with needed(f"reading {path}", "pyarrow", "parquet"):
        from pyarrow import input_stream
    return io.BufferedReader(input_stream(os.fspath(path), compression="zstd"))


def lines_of(path: Name) -> Iterator[str]:
    """The lines of a UTF-8 file, with their line feeds. Only a line feed ends a line; other Unicode breaks are text."""
    number = 0
    try:
        with open_bytes(path) as file:
            for number, line in enumerate(file, start=1):
                text = (line.removeprefix(codecs.BOM_UTF8) if number == 1 else line).decode("utf-8")
                if "\0" in text:  # UTF-16, or a binary file.
                    raise ValueError(f"{path}, line {number}: a NUL byte; convert the text to UTF-8 ({READ})")
                yield text
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path}, line {number}: not UTF-8 ({error.reason}); convert the text to UTF-8 ({READ})"
        ) from error
    except DAMAGED as error:
        if getattr(error, "errno", None) is not None:
            raise
        raise ValueError(f"{path}, after line {number}: {error}; the file is damaged, download it again") from error


def without_ending(line: str) -> str:
    """A line without its line feed, or carriage return and line feed."""
    return line[:-2] if line.endswith("\r\n") else line.removesuffix("\n")
