"""Output of the commands: results as lines of text or JSON, and tables."""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple, TextIO

_JOINERS = "\u200c\u200d"
# In pipes and files, no line is shortened or wrapped.
_UNLIMITED = 100_000
# The least columns of names, and of a text that is wrapped.
_NAMES, _LEAST = 19, 20


class Line(NamedTuple):
    """An output line: a start that is printed in full, and a text that may be shortened; without one, it is wrapped."""

    start: str
    text: str = ""


def show(arguments: argparse.Namespace, lines: Iterable[Line], records: Iterable[Mapping[str, object]]) -> None:
    """Print the results, or write them to a file.

    Args:
        arguments: With ``json``, ``output`` and ``quiet``.
        lines: The results as text.
        records: The same results for JSON.
    """
    from sbert.visualization.text import shorten

    encoding = "utf-8" if arguments.output else sys.stdout.encoding or "utf-8"
    width = _UNLIMITED if arguments.output else _width()
    if arguments.json:
        # JSON only has \u escapes, not all of those that "backslashreplace" writes.
        ascii_only = not encoding.lower().startswith("utf")
        written = (json.dumps(record, ensure_ascii=ascii_only) for record in records)
    else:
        escaped = ((start, visible(" ".join(text.split()))) for start, text in lines)
        written = (
            (start + shorten(text, width - len(start))).rstrip() if text else textwrap.fill(start, width)
            for start, text in escaped
        )
    encodable = (visible(line).encode(encoding, "backslashreplace").decode(encoding) for line in written)
    if not arguments.output:
        for line in encodable:
            print(line)
        return
    from sbert.storage.atomic import write_text

    whole = list(encodable)
    write_text(Path(arguments.output), "".join(f"{line}\n" for line in whole))
    if not arguments.quiet:
        print(f"{arguments.output}: {len(whole)} {'line' if len(whole) == 1 else 'lines'}")


def shortest(score: object) -> float:
    """A float32 as the float with the shortest decimal form that identifies it, for JSON."""
    return float(str(score))


def _width(stream: TextIO | None = None) -> int:
    """The number of columns of the terminal."""
    return shutil.get_terminal_size().columns if (stream or sys.stdout).isatty() else _UNLIMITED


def wrap(line: str, stream: TextIO) -> str:
    """Wrap a line between words if the stream is a terminal."""
    width = _width(stream)
    return textwrap.fill(line, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


@cache
def _escape(character: str) -> str:
    unsafe = unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp") and character not in f"{_JOINERS}\n\t"
    return json.dumps(character)[1:-1] if unsafe else character


def visible(text: str) -> str:
    r"""Escape control characters, those that change the text direction, and lone surrogates, as JSON does.

    Example:
        >>> from sbert.cli.output import visible
        >>> visible("one\x1b[31m \u202etwo\x9b.npy")
        'one\\u001b[31m \\u202etwo\\u009b.npy'
    """
    return text if text.isprintable() else "".join(map(_escape, text))


class Terminal:
    """A stream whose text is made visible; progress bars may return to the start of their line, and go up one.

    Args:
        stream: The stream.
        has_bars: Whether it shows progress bars.
    """

    def __init__(self, stream: TextIO, has_bars: bool = False) -> None:
        self._stream, self._moves = stream, re.compile(r"(\r|\x1b\[A)" if has_bars else "((?!))")

    def write(self, text: str) -> int:
        """Write a text, and return how many characters were written."""
        parts = self._moves.split(text)
        return self._stream.write("".join(part if number % 2 else visible(part) for number, part in enumerate(parts)))

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)


def table(rows: Iterable[Sequence[str]], header: Sequence[str]) -> str:
    """Align the columns of a table: a text, then numbers.

    Example:
        >>> from sbert.cli.output import table
        >>> print(table([["sbert", "1,024"], ["other", "64"]], header=["library", "texts/s"]))
        library    texts/s
        sbert        1,024
        other           64
    """
    listed = [header, *rows]
    first, *others = (max(map(len, column)) for column in zip(*listed, strict=True))
    return "\n".join(
        "  ".join([name.ljust(first), *map(str.rjust, numbers, others)]).rstrip() for name, *numbers in listed
    )


def facts_table(facts: Mapping[str, object]) -> str:
    """Align names and values; lists have a line for each element. On a terminal, long values are wrapped.

    Example:
        >>> from sbert.cli.output import facts_table
        >>> print(facts_table({"dim": 256, "modules": ["Transformer", "Pooling"], "prompts": []}))
        dim                  256
        modules              Transformer
                             Pooling
        prompts              none
    """
    start = max(_NAMES, *map(len, facts)) + 2
    width, lines = max(_width(), start + _LEAST), []
    for name, value in facts.items():
        values = value if isinstance(value, list) and value else [value or "none"]
        for number, line in enumerate(values):
            first = (name if number == 0 else "").ljust(start)
            lines.append(textwrap.fill(str(line), width, initial_indent=first, subsequent_indent=" " * start))
    return "\n".join(lines)
