"""Input and output of the commands that return texts: reading a file, and printing results as lines or JSON."""

from __future__ import annotations

import argparse
import codecs
import json
import os
import shutil
import sys
import unicodedata
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from sbert.data import FORMATS, read_texts

INPUT = "text, JSONL, JSON, CSV, TSV or Parquet file, optionally .gz; - for standard input"
_JOINERS = "\u200c\u200d"


class Line(NamedTuple):
    """An output line: a start that is printed in full, and a text that may be shortened."""

    start: str
    text: str = ""


def number(text: str) -> float:
    """Parse an option's value that is a finite number.

    Example:
        >>> number("0.5")
        0.5
    """
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not abs(value) < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a finite number; pass one such as 0.75")
    return value


def add_input(parser: argparse.ArgumentParser) -> None:
    """Add the options for reading a file of texts.

    Example:
        >>> parser = argparse.ArgumentParser()
        >>> add_input(parser)
        >>> parser.parse_args(["--column", "body"]).column
        'body'
    """
    parser.add_argument("--column", metavar="NAME", help="column or key of the texts")
    parser.add_argument("--format", choices=FORMATS, help="default: by the file name extension")


def add_output(parser: argparse.ArgumentParser) -> None:
    """Add the options for the destination and format of the output.

    Example:
        >>> parser = argparse.ArgumentParser()
        >>> add_output(parser)
        >>> parser.parse_args(["--json"]).output is None
        True
    """
    parser.add_argument("--json", action="store_true", help="print one line of JSON per result")
    parser.add_argument("-o", "--output", metavar="FILE", help="write to this file instead of standard output")
    parser.add_argument("--quiet", action="store_true", help="no progress bar and no summary")


def check_output(output: str | None) -> None:
    """Raise an error if the output file cannot be created; called before the long computation.

    Raises:
        FileNotFoundError: If the folder does not exist.
        ValueError: If the path is a folder.

    Example:
        >>> check_output(None)
    """
    if output is None:
        return
    folder = os.path.dirname(output) or "."
    if not os.path.isdir(folder):
        raise FileNotFoundError(f"{output}: the folder {folder} does not exist; create it")
    if os.path.isdir(output):
        raise ValueError(f"{output} is a folder; name a file")


def read(arguments: argparse.Namespace) -> tuple[list[str], list[int]]:
    """Read the non-empty texts of a file, and their row numbers, counted from 1.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If a line is invalid, or there is no text.
    """
    lines = read_texts(arguments.texts, arguments.column, arguments.format)
    texts = [(text, row) for row, text in enumerate(lines, start=1) if text.strip()]
    if not texts:
        raise ValueError(f"{arguments.texts} contains no text; pass another file")
    return [text for text, _ in texts], [row for _, row in texts]


def score_of(value: Any) -> float:
    """A float32 as the float with the shortest decimal form that identifies it, for JSON."""
    return float(str(value))


def show(arguments: argparse.Namespace, lines: Iterable[Line], records: Iterable[dict[str, Any]]) -> None:
    """Print the results, or write them to a file.

    Args:
        arguments: With ``json``, ``output`` and ``quiet``.
        lines: The results as text.
        records: The same results for JSON.
    """
    if arguments.output is not None:
        from sbert.storage.atomic import write_text

        written = list(_written(arguments, lines, records, None))
        # A lone surrogate, which JSON may contain, cannot be encoded; escaped, it is valid JSON again.
        text = "".join(f"{line}\n" for line in written).encode("utf-8", "backslashreplace").decode("utf-8")
        write_text(Path(arguments.output), text)
        if not arguments.quiet:
            print(f"{arguments.output}: {len(written)} {'line' if len(written) == 1 else 'lines'}")
        return
    encoding = sys.stdout.encoding or "utf-8"
    # JSON only has \u escapes, not all of those that "backslashreplace" writes.
    escaped = codecs.lookup(encoding).name not in ("utf-8", "utf-16", "utf-32")
    for line in _written(arguments, lines, records, sys.stdout, escaped):
        print(line.encode(encoding, "backslashreplace").decode(encoding))


def _written(
    arguments: argparse.Namespace,
    lines: Iterable[Line],
    records: Iterable[dict[str, Any]],
    stream: TextIO | None,
    escaped: bool = False,
) -> Iterator[str]:
    if arguments.json:
        yield from (json.dumps(record, ensure_ascii=escaped) for record in records)
        return
    width = shutil.get_terminal_size().columns if stream is not None and stream.isatty() else None
    for start, text in lines:
        room = None if width is None else width - columns(start)
        yield (start + shorten(one_line(text), room)).rstrip()


def one_line(text: str) -> str:
    r"""Remove line breaks, terminal control characters, and characters that change the text direction.

    Of the format characters, the two joiners stay: some scripts and emoji need them.

    Example:
        >>> one_line("one\n two\x1b[31m \u202ethree")
        'one two�[31m three'
    """
    return "".join(map(_shown, " ".join(text.split())))


def _shown(character: str) -> str:
    category = unicodedata.category(character)
    if category == "Cf" and character not in _JOINERS:
        return ""
    return "\ufffd" if category == "Cc" else character


def columns(text: str) -> int:
    """Number of terminal columns of a text: East Asian characters take two, combining marks none.

    Example:
        >>> columns("cafe\u0301"), columns("문장")
        (4, 4)
    """
    return sum(map(_columns, text))


def _columns(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def shorten(text: str, width: int | None) -> str:
    """Shorten a text to at most ``width`` columns, with … at its end if it was longer; None means no limit.

    Example:
        >>> shorten("The cat sleeps.", 8)
        'The cat…'
    """
    if width is None or columns(text) <= width:
        return text
    room, start = width - 1, []
    for character in text:
        room -= _columns(character)
        if room < 0:
            break
        start.append(character)
    return "".join(start).rstrip() + "…" if width > 0 else ""
