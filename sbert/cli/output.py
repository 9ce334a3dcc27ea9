"""Output of the commands: results as lines of text or JSON, and tables."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import torch

_JOINERS = "\u200c\u200d"
# In pipes and files, no line is shortened or wrapped.
_UNLIMITED = 100_000
# The least columns of names, and of a text that is wrapped.
_NAMES, _LEAST = 19, 20


class Line(NamedTuple):
    """An output line: a start that is printed in full, and a text that may be shortened."""

    start: str
    text: str = ""


def show(arguments: argparse.Namespace, lines: Iterable[Line], records: Iterable[Mapping[str, object]]) -> None:
    """Print the results, or write them to a file.

    Args:
        arguments: With ``json``, ``output`` and ``quiet``.
        lines: The results as text.
        records: The same results for JSON.
    """
    is_file = arguments.output is not None
    encoding = "utf-8" if is_file else sys.stdout.encoding or "utf-8"
    width = _UNLIMITED if is_file else _width()
    if arguments.json:
        # JSON only has \u escapes, not all of those that "backslashreplace" writes.
        ascii_only = not encoding.lower().startswith("utf")
        written = (json.dumps(record, ensure_ascii=ascii_only) for record in records)
    else:
        written = (_fitted(line, width) for line in lines)
    # A lone surrogate, which JSON may contain, cannot be encoded; escaped, it is valid JSON again.
    encodable = (line.encode(encoding, "backslashreplace").decode(encoding) for line in written)
    if not is_file:
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


def _width() -> int:
    """The number of columns of the terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else _UNLIMITED


def _fitted(line: Line, width: int) -> str:
    return (line.start + shorten(one_line(line.text), width - len(line.start))).rstrip()


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


def shorten(text: str, width: int) -> str:
    """Shorten a text to at most ``width`` terminal columns, with … at its end if it was longer.

    Example:
        >>> shorten("The cat sleeps.", 8), shorten("고양이가 잔다.", 8)
        ('The cat…', '고양이…')
    """
    from sbert.visualization.text import count_columns

    if count_columns(text) <= width:
        return text
    columns = accumulate(map(count_columns, text))
    return text[: sum(1 for _ in takewhile(lambda so_far: so_far < width, columns))].rstrip() + "…" if width > 0 else ""


def table(rows: Iterable[Sequence[str]], header: Sequence[str] = ()) -> str:
    """Align the columns of a table: without a header, two columns of text; otherwise a text and figures.

    On a terminal, the longer text of each row is wrapped in its column. Elsewhere, lines are as long as necessary.

    Example:
        >>> print(table([["sbert", "1,024"], ["other", "64"]], header=["library", "texts/s"]))
        library    texts/s
        sbert        1,024
        other           64
    """
    from sbert.visualization.text import count_columns

    listed = [*([header] if header else []), *rows]
    wraps = 0 if header else 1  # The column that is wrapped.
    widths = [
        max(count_columns(line) for cell in column for line in cell.split("\n")) for column in zip(*listed, strict=True)
    ]
    if not header:
        widths[0] = max(widths[0], _NAMES)
    others = sum(widths) - widths[wraps] + 2 * (len(widths) - 1)
    widths[wraps] = min(widths[wraps], max(_LEAST, _width() - others))
    lines = []
    for row in listed:
        parts = [part for line in row[wraps].split("\n") for part in textwrap.wrap(line, widths[wraps]) or [""]]
        for number, part in enumerate(parts):
            cells = [part if column == wraps else cell * (not number) for column, cell in enumerate(row)]
            spaces = [" " * (width - count_columns(cell)) for cell, width in zip(cells, widths, strict=True)]
            aligned = [
                space + cell if header and column else cell + space
                for column, (cell, space) in enumerate(zip(cells, spaces, strict=True))
            ]
            lines.append("  ".join(aligned).rstrip())
    return "\n".join(lines)


def facts_table(facts: Mapping[str, object]) -> str:
    """Align names and values; lists have a line for each element.

    Example:
        >>> print(facts_table({"dim": 256, "modules": ["Transformer", "Pooling"], "prompts": []}))
        dim                  256
        modules              Transformer
                             Pooling
        prompts              none
    """
    written = {name: "\n".join(value) if isinstance(value, list) else value for name, value in facts.items()}
    return table((name, str(value or "none")) for name, value in written.items())


def peak_memory(device: torch.device) -> int:
    """The peak memory in bytes: that of a CUDA device, or of this process.

    On Linux a process inherits ``ru_maxrss`` from its parent, so it may be too large; the process's own peak is in
    /proc. macOS counts ``ru_maxrss`` in bytes, other systems in units of 1,024.
    """
    if device.type == "cuda":
        import torch

        return torch.cuda.max_memory_allocated(device)
    with suppress(OSError), open("/proc/self/status", encoding="utf-8") as file:
        return next(1024 * int(line.split()[1]) for line in file if line.startswith("VmHWM:"))
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak
