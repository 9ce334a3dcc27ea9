"""A pseudo-terminal of a given width, as standard output and standard error of this process."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import termios
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress


def _read(descriptor: int) -> bytes:
    """All that is written to a terminal, until its last writer has closed it."""
    written = b""
    with suppress(OSError):  # Linux reports the end as an error.
        while more := os.read(descriptor, 65536):
            written += more
    return written


@contextmanager
def terminal(columns: int, encoding: str = "utf-8") -> Iterator[list[str]]:
    """Show what is printed in a terminal; at the end, the list holds all that was written to it, as one text."""
    shown: list[str] = []
    reading, writing = pty.openpty()
    fcntl.ioctl(writing, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    with ThreadPoolExecutor(1) as thread, os.fdopen(reading, "rb"):
        text = thread.submit(_read, reading)
        before = os.environ.pop("COLUMNS", None)
        os.environ["COLUMNS"] = str(columns)  # Python asks for the size of its first standard output.
        try:
            with open(writing, "w", encoding=encoding) as stream, redirect_stdout(stream), redirect_stderr(stream):
                yield shown
        finally:
            os.environ.pop("COLUMNS")
            os.environ |= {} if before is None else {"COLUMNS": before}
            shown.append(text.result().decode(encoding).replace("\r\n", "\n"))


def final_lines(written: str) -> list[str]:
    """The lines that stay, each without what stood there before the cursor returned to its start."""
    return [line.rsplit("\r", 1)[-1].rstrip() for line in written.split("\n") if line]
