"""Read tables whose columns have several known names: the code shared by the readers of public data sets."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sbert.data.files import Name, check_there, format_of
from sbert.data.labels import Convert
from sbert.data.records import Rows, open_rows, select_columns
from sbert.data.rows import rows_of

# The names that one column has in the files of different publishers.
Names = Sequence[str]
_SPLIT = ("split", "SemEval_set")


def read_table(
    path: Name,
    columns: Mapping[str, Names],
    label: Names = (),
    convert: Convert | None = None,
    *,
    places: Sequence[int] = (),
    split: str | None = None,
    drop: Collection[str] = (),
) -> list[dict[str, Any]]:
    """Read the rows of a file in the form that ``Trainer`` takes.

    Args:
        path: As in ``cells``.
        columns: For each text column of the rows, the names it may have in the file.
        label: The names that the label column may have, if there is one.
        convert: Converts a label to a number.
        places: As in ``cells``; the label comes last.
        split: As in ``cells``.
        drop: Labels whose rows are left out.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If a line is invalid, with the line number, or there are no rows.
    """
    wanted = [*columns.values(), label] if convert else list(columns.values())
    found = cells(path, wanted, places=places, split=split)
    rows = list(rows_of(found, list(columns), convert, drop))
    if not rows:
        raise ValueError(f"{path} has no rows; download the file again, or pass another")
    return rows


def cells(
    path: Name,
    columns: Sequence[Names],
    *,
    optional: Names = (),
    places: Sequence[int] = (),
    split: str | None = None,
) -> Iterator[tuple[str, list[Any]]]:
    """The values of some columns, line by line, with the location of each line.

    The format is detected from the first line: JSONL begins with ``{`` or ``[``; a line with a tab is TSV without
    quotes; anything else is CSV. Only Parquet and JSON arrays are detected by their suffixes, ``.parquet`` and
    ``.json``. Empty lines at the end are skipped. Case, underscores, hyphens and spaces in column names do not matter.

    Args:
        path: The file, gzipped if it ends in ``.gz``.
        columns: For each column, the names it may have.
        optional: The names of one more column, which comes last and is empty where the file, or a JSON object, does
            not have it.
        places: Indices of the columns, from 0, in files without a header or with JSON arrays. Default: a header is
            required.
        split: The split to read, if the file has a column of splits.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If a column or the split is missing, or a line is invalid; the message gives the line number.
    """
    check_there(path)
    wanted = [*columns, *([_SPLIT] if split else [])]
    ending = format_of(path, None)
    file_format, header, rows = open_rows(path, ending if ending in ("parquet", "json") else None)
    named = [_column(path, names, header) for names in wanted]
    if places and split is None and not any(named) and file_format not in ("csv", "parquet"):
        yield from _placed(rows, places)
        return
    names = [name for name in named if name is not None]
    if len(names) < len(named):
        known = ", ".join(header[:20]) or "none"
        raise ValueError(f"{path}: no column {' or '.join(wanted[named.index(None)])}; the first line names {known}")
    # A JSON object may have the optional key though the first has not.
    more = None if file_format in ("json", "jsonl") else _column(path, optional, header)
    found = select_columns(path, [*names, *([more] if more else [])], file_format, header, rows)
    for where, row in found if split is None else _of_split(found, names[-1], split, path):
        values = [row[name] for name in names[: len(columns)]]
        if optional:
            name = _column(path, optional, [name for name in row if row[name] is not None])
            values.append("" if name is None else row[name])
        yield where, values


def _of_split(
    rows: Iterable[tuple[str, dict[str, Any]]], column: str, split: str, path: Name
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rows of one split, of which there must be some."""
    found: set[str] = set()
    for where, row in rows:
        found.add(str(row[column]))
        if str(row[column]).lower() == split.lower():
            yield where, row
    if split.lower() not in map(str.lower, found):
        raise ValueError(f"{path} has no rows of the split {split!r}; it has {', '.join(sorted(found)) or 'none'}")


def _plain(name: str) -> str:
    """A column name in lower case, without separators between its words."""
    return re.sub(r"[\s_-]+", "", name).casefold()


def _column(path: Name, names: Names, header: Sequence[str]) -> str | None:
    """The name in the header that matches the first possible name; None if none matches.

    Raises:
        ValueError: If several names in the header match and none is identical.
    """
    for name in names:
        matches = [name] if name in header else [each for each in header if _plain(each) == _plain(name)]
        if len(matches) > 1:
            raise ValueError(f"{path}: {' and '.join(map(repr, matches))} may both be {name!r}; rename one of them")
        if matches:
            return matches[0]
    return None


def _placed(rows: Rows, places: Sequence[int]) -> Iterator[tuple[str, list[Any]]]:
    """The cells of a file without column names, by their indices."""
    for where, row in rows:
        if not isinstance(row, list) or len(row) <= max(places):
            count = f"{len(row)} cells" if isinstance(row, list) else "no array"
            raise ValueError(f"{where}: {count} where {max(places) + 1} or more are expected; fix or remove the line")
        yield where, [row[place] for place in places]


def located(folder: Name, names: Sequence[str]) -> Path | None:
    """The first of the named files or folders that exists in a folder, gzipped or not; None if none does."""
    paths = (Path(folder) / f"{name}{end}" for name in names for end in ("", ".gz"))
    return next((path for path in paths if path.exists()), None)


def find(folder: Name, names: Sequence[str]) -> Path:
    """Like ``located``, but one of the files or folders must exist.

    Raises:
        FileNotFoundError: If none exists, with their names.
    """
    check_folder(folder)
    path = located(folder, names)
    if path is None:
        raise FileNotFoundError(f"{folder} has no {' or '.join(names)}; put one there, or pass another folder")
    return path


def check_folder(folder: Name) -> None:
    """Raise a FileNotFoundError if the folder does not exist."""
    if not Path(folder).is_dir():
        raise FileNotFoundError(f"the folder {folder} does not exist; pass the folder of the data")
