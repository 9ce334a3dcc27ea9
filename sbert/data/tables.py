"""Read tables whose columns have several known names: the code shared by the readers of public data sets."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sbert.data.file_formats import FILE_FORMATS, FileFormat, Name, Records, check_exists, choose_format, read_lines
from sbert.data.rows import Convert, check_rows

# The names that one column has in the files of different publishers.
ColumnNames = Sequence[str]
_SPLIT = ("split", "SemEval_set")


def read_labelled(
    path: Name,
    columns: Mapping[str, ColumnNames],
    label: ColumnNames = (),
    convert: Convert | None = None,
    *,
    positions: Sequence[int] = (),
    split: str | None = None,
    drop: Collection[str] = (),
) -> list[dict[str, Any]]:
    """Read the rows of a file in the form that ``Trainer`` takes.

    Args:
        path: As in ``read_cells``.
        columns: For each text column of the rows, the names it may have in the file.
        label: The names that the label column may have, if there is one.
        convert: Converts a label to a number.
        positions: As in ``read_cells``; the label comes last.
        split: As in ``read_cells``.
        drop: Labels whose rows are left out.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If a line is invalid, with the line number, or there are no rows.
    """
    wanted = [*columns.values(), label] if convert else list(columns.values())
    cells = read_cells(path, wanted, positions=positions, split=split)
    rows = list(check_rows(cells, list(columns), convert, drop))
    if not rows:
        raise ValueError(f"{path} has no rows; download the file again, or pass another")
    return rows


def read_cells(
    path: Name,
    columns: Sequence[ColumnNames],
    *,
    optional: ColumnNames = (),
    positions: Sequence[int] = (),
    split: str | None = None,
) -> Iterator[tuple[str, list[Any]]]:
    """The values of some columns, line by line, with the location of each line.

    The suffix says the format, except for ``.csv`` and what may be plain text, where publishers use it for any format.
    There, a first line with a tab is TSV without quotes, one that begins with ``{`` or ``[`` is JSONL, and anything
    else is CSV. Case, underscores, hyphens and spaces in column names do not matter.

    Args:
        path: The file, compressed or not.
        columns: For each column, the names it may have.
        optional: The names of one more column, which comes last and is empty where the file, or a JSON object, does
            not have it.
        positions: Indices of the columns, from 0, in files without a header or with JSON arrays. Default: a header is
            required.
        split: The split to read, if the file has a column of splits.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If a column or the split is missing, or a line is invalid; the message gives the line number.
    """
    check_exists(path)
    file_format = _detect_format(path)
    header = file_format.header(path)
    wanted = [*columns, *([_SPLIT] if split else [])]
    names = [_match(path, possible, header) for possible in wanted]
    if positions and not any(names) and file_format.headless:
        for where, row in file_format.values(path):
            if not isinstance(row, list) or len(row) <= max(positions):
                raise ValueError(f"{where}: {row!r:.60} where {max(positions) + 1} or more cells are expected; fix it")
            yield where, [row[position] for position in positions]
        return
    if None in names:
        listed = ", ".join(header[:20]) or "none"
        raise ValueError(f"{path}: no column {' or '.join(wanted[names.index(None)])}; the first line names {listed}")
    required = [name for name in names if name is not None]
    other = _match(path, optional, header)
    # A JSON object may have the optional key though the first has not, or the other way around.
    selected = required if other is None or file_format.columns == "keys" else [*required, other]
    records = file_format.read(path, selected)
    for where, row in records if split is None else _select_split(path, records, required[-1], split):
        values = [row[name] for name in required[: len(columns)]]
        if optional:
            values.append(next((row[name] for name in (other or "", *optional) if row.get(name) is not None), ""))
        yield where, values


def _detect_format(path: Name) -> FileFormat:
    chosen = choose_format(path)
    if chosen in ("text", "csv"):
        line = next(read_lines(path), "")
        other = "jsonl" if line.lstrip().startswith(("{", "[")) else "csv"
        chosen = "tsv" if "\t" in line else other
    return FILE_FORMATS[chosen]


def _select_split(path: Name, records: Records, column: str, split: str) -> Records:
    """The rows of one split, of which there must be some."""
    splits: set[str] = set()
    for where, row in records:
        splits.add(str(row[column]))
        if str(row[column]).lower() == split.lower():
            yield where, row
    if split.lower() not in map(str.lower, splits):
        raise ValueError(f"{path} has no rows of the split {split!r}; it has {', '.join(sorted(splits)) or 'none'}")


def _match(path: Name, names: ColumnNames, header: Sequence[str]) -> str | None:
    """The name in the header that matches the first possible name; None if none matches.

    Raises:
        ValueError: If several names in the header match and none is identical.
    """
    for name in names:
        matches = [name] if name in header else [column for column in header if _fold(column) == _fold(name)]
        if len(matches) > 1:
            raise ValueError(f"{path}: {' and '.join(map(repr, matches))} may both be {name!r}; rename one of them")
        if matches:
            return matches[0]
    return None


def _fold(name: str) -> str:
    """A column name in lower case, without separators between its words."""
    return re.sub(r"[\s_-]+", "", name).casefold()


def locate(folder: Name, names: Sequence[str]) -> Path | None:
    """The first of the named files or folders that exists in a folder, gzipped or not; None if none does."""
    paths = (Path(folder) / f"{name}{end}" for name in names for end in ("", ".gz"))
    return next((path for path in paths if path.exists()), None)


def check_folder(folder: Name) -> None:
    """Raise a FileNotFoundError if the folder does not exist."""
    if not Path(folder).is_dir():
        raise FileNotFoundError(f"the folder {folder} does not exist; pass the folder of the data")
