"""The guide to switching from sentence-transformers, made of a table of names and the text around it."""

from __future__ import annotations

import csv
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

# The section of arguments that are taken at one value alone, which stands in the second column, as JSON.
OF_MODELS = "Arguments of models at their default"
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


class Parameter(NamedTuple):
    """A parameter of a class or function of sentence-transformers.

    Args:
        of: The class or function, after its module.
        name: Its name.
        older: Its older name.
        default: Its default there, as JSON; empty if it has none.
        ours: The name of ours, if it is another one; ``"-"`` if it changes no result here; ``"only"`` if it is taken at
            its default alone.
        convert: How our value is made of theirs, by the name of a function.
        why: The reason why it changes nothing, or what to do instead of other values.
    """

    of: str
    name: str
    older: str
    default: str
    ours: str
    convert: str
    why: str


def _read(name: str) -> list[list[str]]:
    with (_FOLDER / name).open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))[1:]


ROWS: list[Row] = [Row(section, theirs.split(), how, here) for section, theirs, how, here in _read("names.csv")]
PARAMETERS: list[Parameter] = [Parameter(*line) for line in _read("parameters.csv")]


def find_row(name: str, section: str = "") -> Row | None:
    """The row of a name of sentence-transformers, in a section if that has it; None if there is none.

    Example:
        >>> find_row("BatchHardSoftMarginTripletLoss").here
        '``sbert.losses.BatchHardTripletLoss(margin=None)``'
    """
    rows = [row for row in ROWS if any(fnmatchcase(name, pattern) for pattern in row.theirs)]
    return next((row for row in rows if row.section == section), rows[0] if rows else None)


def _rows_of(section: str) -> list[tuple[str, str, str]]:
    """The rows of a section's table."""
    named = "``, ``".join
    rows = [(f"``{named(row.theirs)}``", row.how, row.here) for row in ROWS if row.section == section]
    kind = {"Arguments that change no result": "-", "Arguments at their default": "only"}.get(section)
    by_reason: dict[tuple[str, str], dict[str, None]] = {}
    for each in PARAMETERS:
        if each.ours == kind:
            shown = each.name if kind == "-" else f"{each.of.rpartition('.')[2]}.{each.name}"
            by_reason.setdefault(("no effect" if kind == "-" else each.default, each.why), {})[shown] = None
    return rows + [(f"``{named(names)}``", how, why) for (how, why), names in by_reason.items()]


def _write_guide() -> str:
    """The text of ``switching.md``, with its table at the end of each section."""
    parts = []
    for part in (_FOLDER / "switching.md").read_text(encoding="utf-8").split("\n## "):
        rows = _rows_of(part.partition("\n")[0].strip())
        head = ["", "", "| sentence-transformers | how | here |", "|---|---|---|"] if rows else []
        lines = [f"| {theirs} | {how} | {here} |" for theirs, how, here in rows]
        parts.append("\n".join([part.rstrip(), *head, *lines]))
    return "\n\n## ".join(parts)


__doc__ = _write_guide()
