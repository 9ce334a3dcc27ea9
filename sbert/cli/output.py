"""What commands that answer with texts have in common: the file that they read, and how they show what they found."""

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

# What commands that read texts take.
INPUT = "a file: text, JSONL, JSON, CSV, TSV or Parquet, .gz or not; - for standard input"
_JOINERS = "\u200c\u200d"


class Line(NamedTuple):
    """A line for people: what must not be cut, and a text, which may be."""

    start: str
    text: str = ""


def number(text: str) -> float:
    """A finite number; the type of an option.

    Example:
        >>> number("0.5")
        0.5
    """
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not abs(value) < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no finite number; pass one such as 0.75")
    return value


def add_input(parser: argparse.ArgumentParser) -> None:
    """Give a parser the options that say how to read a file of texts.

    Example:
        >>> parser = argparse.ArgumentParser()
        >>> add_input(parser)
        >>> parser.parse_args(["--column", "body"]).column
        'body'
    """
    parser.add_argument("--column", metavar="NAME", help="the column or key that holds the texts")
    parser.add_argument("--format", choices=FORMATS, help="by the file's ending where it is not given")


def add_output(parser: argparse.ArgumentParser) -> None:
    """Give a parser the options that say where the answer goes, and in which form.

    Example:
        >>> parser = argparse.ArgumentParser()
        >>> add_output(parser)
        >>> parser.parse_args(["--json"]).output is None
        True
    """
    parser.add_argument("--json", action="store_true", help="for programs: a line of JSON for each thing found")
    parser.add_argument("-o", "--output", metavar="FILE", help="write to a file, and not to standard output")
    parser.add_argument("--quiet", action="store_true", help="no progress bar, and no line at the end")


def check_output(output: str | None) -> None:
    """Raise an error unless a file can be put there, or a device is: what comes before may take long.

    Raises:
        FileNotFoundError: If there is no such folder.
        ValueError: If a folder bears the name.

    Example:
        >>> check_output(None)
    """
    if output is None:
        return
    folder = os.path.dirname(output) or "."
    if not os.path.isdir(folder):
        raise FileNotFoundError(f"{output}: the folder {folder} does not exist; make it")
    if os.path.isdir(output):
        raise ValueError(f"{output} is a folder; name a file")


def read(arguments: argparse.Namespace) -> tuple[list[str], list[int]]:
    """The texts of a file that are not empty, and their rows, counted from 1.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If a line does not fit, or there is no text.
    """
    found = read_texts(arguments.texts, arguments.column, arguments.format)
    # An empty line is no text that anybody looks for.
    kept = [(text, row) for row, text in enumerate(found, start=1) if text.strip()]
    if not kept:
        raise ValueError(f"{arguments.texts} holds no text; name another file")
    return [text for text, _ in kept], [row for _, row in kept]


def score_of(value: Any) -> float:
    """A float32 as the shortest number that means it, for JSON."""
    return float(str(value))


def show(arguments: argparse.Namespace, lines: Iterable[Line], records: Iterable[dict[str, Any]]) -> None:
    """Print what was found, or write it to a file.

    Args:
        arguments: With ``json``, ``output`` and ``quiet``.
        lines: For people.
        records: The same for programs.
    """
    if arguments.output is not None:
        from sbert.storage.atomic import write_text

        written = list(_written(arguments, lines, records, None))
        # Half a surrogate pair, which JSON may hold, cannot be written; escaped, it is JSON again.
        text = "".join(f"{line}\n" for line in written).encode("utf-8", "backslashreplace").decode("utf-8")
        write_text(Path(arguments.output), text)
        if not arguments.quiet:
            print(f"{arguments.output}: {len(written)} {'line' if len(written) == 1 else 'lines'}")
        return
    encoding = sys.stdout.encoding or "utf-8"
    # JSON knows \u alone, and not what Python writes where an encoding lacks a character.
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
        yield (start + cut(one_line(text), room)).rstrip()


def one_line(text: str) -> str:
    r"""A text without line breaks, and without what would control a terminal or turn the order of its letters.

    Of the characters that format, the two joiners stay, without which some scripts and emoji are written wrongly.

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
    """How wide a text is on a terminal: East Asian characters take two columns, marks on others none.

    Example:
        >>> columns("cafe\u0301"), columns("문장")
        (4, 4)
    """
    return sum(map(_columns, text))


def _columns(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def cut(text: str, width: int | None) -> str:
    """A text that takes at most so many columns, with … at its end if something was cut off; None for any number.

    Example:
        >>> cut("The cat sleeps.", 8)
        'The cat…'
    """
    if width is None or columns(text) <= width:
        return text
    room, kept = width - 1, []
    for character in text:
        room -= _columns(character)
        if room < 0:
            break
        kept.append(character)
    return "".join(kept).rstrip() + "…" if width > 0 else ""
