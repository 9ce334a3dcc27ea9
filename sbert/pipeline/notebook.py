"""Tables that notebooks display, and other programs print."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sbert.functional import Float32

Corpus = Mapping[Any, str] | Sequence[str]
# Rows, and characters of a cell, that are shown.
_ROWS, _CHARACTERS = 100, 200


class Table(NamedTuple):
    """A table with a head, which a notebook displays as HTML in the colours of its theme.

    Args:
        head: A name for each column.
        rows: Values; floats are shown with four digits.

    Example:
        >>> from sbert.pipeline.notebook import Table
        >>> Table(["rank", "text"], [(1, "A < B")])
        rank  text
        1     A < B
    """

    head: Sequence[str]
    rows: Sequence[Sequence[object]]

    def __repr__(self) -> str:
        lines = [list(self.head), *_as_texts(self)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        rows = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
        if sys.stdout.isatty():  # The last column, often a text, is wrapped at words.
            start = sum(widths[:-1]) + 2 * len(widths[:-1])
            width = max(shutil.get_terminal_size().columns, start + 20)
            rows = [textwrap.fill(row, width, subsequent_indent=" " * start) for row in rows]
        return "\n".join(rows)

    def _repr_html_(self) -> str:
        """The table as HTML, in which texts are texts whatever they contain, for formulas, too."""
        style = 'style="text-align:left; overflow-wrap:anywhere" dir="auto"'
        lines = [[f"<th {style}>{escape(name)}</th>" for name in self.head]]
        lines += [[f"<td {style}>{escape(value)}</td>" for value in line] for line in _as_texts(self)]
        rows = "".join(f"<tr>{''.join(line)}</tr>" for line in lines)
        return f'<table class="tex2jax_ignore mathjax_ignore">{rows}</table>'


def _as_texts(table: Table) -> list[list[str]]:
    """The cells of the first rows, each on one line and not too long."""
    lines = []
    for row in table.rows[:_ROWS]:
        texts = [" ".join((f"{value:.4f}" if isinstance(value, float) else str(value)).split()) for value in row]
        lines.append([text if len(text) <= _CHARACTERS else f"{text[:_CHARACTERS]}…" for text in texts])
    if more := len(table.rows) - len(lines):
        lines.append([f"… {more:,} more rows", *[""] * (len(table.head) - 1)])
    return lines


def tabulate_hits(
    scores: Float32, ids: npt.NDArray[Any], corpus: Corpus | None = None, queries: str | Sequence[str] | None = None
) -> Table:
    """One row per hit: its query, rank, score and id, and its text, if there is a corpus.

    Args:
        scores: The score of each hit.
        ids: Its id in the corpus.
        corpus: The texts, by id.
        queries: The queries; by default, they are numbered.

    Shape:
        scores, ids: (queries, k).

    Example:
        >>> import numpy as np
        >>> from sbert.pipeline.notebook import tabulate_hits
        >>> tabulate_hits(np.array([[0.9]], np.float32), np.array([[1]]), ["A dog.", "A cat."], ["Who sleeps?"])
        query        rank  score   id  text
        Who sleeps?  1     0.9000  1   A cat.
    """
    names = [queries] if isinstance(queries, str) else range(len(ids)) if queries is None else queries
    rows = [
        ["" if rank else names[query], rank + 1, float(scores[query, rank]), name, *([corpus[name]] if corpus else [])]
        for (query, rank), name in np.ndenumerate(ids)
    ]
    return Table(["query", "rank", "score", "id", *["text"] * bool(corpus)], rows)
