"""The guide to switching from sentence-transformers, made of a table of names and the text around it."""

from __future__ import annotations

import csv
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

# The sections of arguments that are taken at one value alone, which stands in the second column, as JSON.
DEFAULTS, OF_MODELS = "Arguments at their default", "Arguments of models at their default"
TRAINING, TRAINERS = "TrainingArguments", "Arguments and methods of trainers"
_FOLDER = Path(__file__).parent / "sentence_transformers"


class Row(NamedTuple):
    """Names of sentence-transformers, and what they are called here.

    Args:
        section: The section of the guide.
        theirs: The names, or patterns of names.
        how: ``"same"``, ``"other name"``, ``"other form"``, ``"no effect"`` or ``"not here"``.
        here: What to use instead.
    """

    section: str
    theirs: list[str]
    how: str
    here: str

    @property
    def ours(self) -> str | None:
        """The name with which ``here`` begins, if it does."""
        return self.here.split("``")[1] if self.here.startswith("``") else None

    @property
    def plain(self) -> str:
        """``here`` without markup, for errors."""
        return self.here.replace("``", "")


def _read_table() -> list[Row]:
    with (_FOLDER / "names.csv").open(encoding="utf-8", newline="") as file:
        _, *lines = csv.reader(file)
    return [Row(section, theirs.split(), how, here) for section, theirs, how, here in lines]


ROWS: list[Row] = _read_table()


def find_row(name: str, section: str = "") -> Row | None:
    """The row of a name of sentence-transformers, in a section if that has it; None if there is none.

    Example:
        >>> find_row("BatchHardSoftMarginTripletLoss").here
        '``sbert.losses.BatchHardTripletLoss(margin=None)``'
    """
    rows = [row for row in ROWS if any(fnmatchcase(name, pattern) for pattern in row.theirs)]
    return next((row for row in rows if row.section == section), rows[0] if rows else None)


def _write_guide() -> str:
    """The text of ``switching.md``, with its table at the end of each section."""
    parts = []
    for part in (_FOLDER / "switching.md").read_text(encoding="utf-8").split("\n## "):
        rows = [row for row in ROWS if row.section == part.partition("\n")[0].strip()]
        head = ["", "", "| sentence-transformers | how | here |", "|---|---|---|"] if rows else []
        lines = [f"| {', '.join(f'``{name}``' for name in row.theirs)} | {row.how} | {row.here} |" for row in rows]
        parts.append("\n".join([part.rstrip(), *head, *lines]))
    return "\n\n## ".join(parts)


__doc__ = _write_guide()
