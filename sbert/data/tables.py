"""Tables whose columns go by several names: what the readers of the field's data sets have in common."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from sbert.data.records import (
    Name,
    check_there,
    format_of,
    lines_of,
    parquet_names,
    records,
    tsv_rows,
    values,
    without_ending,
)
from sbert.data.rows import Convert, as_word, row_of

# A column's names: that of each publisher.
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
    """The rows of a file as a ``Trainer`` takes them.

    Args:
        path: The file, as ``cells`` takes it.
        columns: What the rows call each column of text, and the names that it may have in the file.
        label: The names that the column of labels may have, if there is one.
        convert: Makes a number of a label.
        places: As in ``cells``, that of the label last.
        split: As in ``cells``.
        drop: Labels whose rows are left out.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If a line does not fit, with its number, or there are no rows.
    """
    wanted = [*columns.values(), label] if convert else list(columns.values())
    rows = [
        row_of(where, list(columns), values, convert)
        for where, values in cells(path, wanted, places=places, split=split)
        if not (convert and as_word(values[-1]) in drop)
    ]
    if not rows:
        raise ValueError(f"{path} has no rows; get the file again, or name another")
    return rows


def cells(
    path: Name,
    columns: Sequence[Names],
    *,
    optional: Names = (),
    places: Sequence[int] = (),
    split: str | None = None,
) -> Iterator[tuple[str, list[Any]]]:
    """The values of columns line by line, and where they stand.

    What the file is, its first line says, and not its name: JSONL begins with ``{`` or ``[``, a tab makes it
    tab-separated without quotes, and anything else is CSV. Parquet and JSON arrays alone are known by the endings
    ``.parquet`` and ``.json``. Empty lines at the end are none. Names are the same in upper and lower case, and with
    underscores, hyphens, spaces or nothing between their words.

    Args:
        path: The file, gzipped where it ends in ``.gz``.
        columns: The names that each may have; the first line has one of them.
        optional: The names of one more column at the end, which is empty where the file, or an object of JSONL, has
            none of them.
        places: Where the columns stand, from 0, in files that have no header or arrays for objects; those of data
            sets that always have a header need none.
        split: The part to read of a file that says in a column to which one each row belongs.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If a column or the part is not there, or a line does not fit, with its number.
    """
    check_there(path)
    wanted = [*columns, *([_SPLIT] if split else []), *([optional] if optional else [])]
    found: set[str] = set()
    file_format, header, lines = _opened(path)
    chosen = [_column(path, names, header) for names in wanted]
    if places and split is None and not any(chosen) and file_format not in ("csv", "parquet"):
        yield from _placed(lines, path, places, file_format)
        return
    absent = bool(optional) and chosen[-1] is None
    for names, name in zip(wanted, chosen, strict=True):
        if name is None and names is not optional:
            known = ", ".join(header[:20]) or "none"
            raise ValueError(f"{path}: no column {' or '.join(names)}; the first line names {known}")
    named = [name for name in chosen if name]
    if optional and file_format in ("json", "jsonl"):
        yield from _objects(values(lines, path, file_format), path, named[: len(columns)], optional)
        return
    for where, row in records(path, named, file_format, lines):
        if absent:
            row.append("")
        if split is not None:
            part = str(row.pop(len(columns)))
            found.add(part)
            if part.lower() != split.lower():
                continue
        yield where, row
    if split is not None and split.lower() not in {name.lower() for name in found}:
        raise ValueError(f"{path} has no rows of the split {split!r}; it has {', '.join(sorted(found)) or 'none'}")


def _plain(name: str) -> str:
    """A name of a column without case, and without what stands between its words."""
    return re.sub(r"[\s_-]+", "", name).casefold()


def _column(path: Name, names: Names, header: Sequence[str]) -> str | None:
    """The header's name of a column that goes by any of these, the first of them that is there.

    Raises:
        ValueError: If several of the header's names are one of these, and none of them to the letter.
    """
    for name in names:
        found = [name] if name in header else [one for one in header if _plain(one) == _plain(name)]
        if len(found) > 1:
            raise ValueError(f"{path}: {' and '.join(map(repr, found))} may both be {name!r}; rename one of them")
        if found:
            return found[0]
    return None


def _opened(path: Name) -> tuple[str, list[str], Iterator[str]]:
    """The format of a file, the names of its columns, and its lines."""
    ending = format_of(path, None)
    if ending == "parquet":
        return ending, parquet_names(path), iter(())
    if ending == "json":  # The lines of an array say nothing one by one.
        _, value = next(values(lines_of(path), path, ending), ("", None))
        return ending, list(value) if isinstance(value, dict) else [], lines_of(path)
    lines = lines_of(path)
    first = next(lines, "")
    return *_header(first), chain([first], lines)


def _header(line: str) -> tuple[str, list[str]]:
    """The format and the names of columns, by a first line; a line of data has no names that anybody looks for."""
    line = without_ending(line)
    if line.lstrip()[:1] in ("{", "["):
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            value = None
        if value is not None or "\t" not in line:  # A sentence may begin with a bracket, too.
            return "jsonl", list(value) if isinstance(value, dict) else []
    if "\t" in line:
        return "tsv", line.split("\t")
    return "csv", next(csv.reader([line]), [])


def _objects(
    found: Iterable[tuple[str, Any]], path: Name, columns: Sequence[str], optional: Names
) -> Iterator[tuple[str, list[Any]]]:
    """The values of keys that each object has, and of one that is empty where it is not there, or null."""
    for where, value in found:
        missing = [column for column in columns if not isinstance(value, dict) or column not in value]
        if missing:
            raise ValueError(f"{where}: no key {missing[0]!r}; mend or remove the line")
        name = _column(path, optional, [key for key in value if value[key] is not None])
        more = "" if name is None else value[name]
        yield where, [*(value[column] for column in columns), more]


def _placed(
    lines: Iterator[str], path: Name, places: Sequence[int], file_format: str
) -> Iterator[tuple[str, list[Any]]]:
    """The cells at places of lines that have no names for them."""
    rows: Iterator[tuple[str, Any]]
    if file_format in ("json", "jsonl"):
        rows = values(lines, path, file_format)
    else:
        rows = ((f"{path}, line {number}", row) for number, row in tsv_rows(lines))
    for where, row in rows:
        if not isinstance(row, list) or len(row) <= max(places):
            count = f"{len(row)} cells" if isinstance(row, list) else "no array"
            raise ValueError(f"{where}: {count} where {max(places) + 1} or more are expected; mend or remove the line")
        yield where, [row[place] for place in places]


def located(folder: Name, names: Sequence[str]) -> Path | None:
    """The first of the named files or folders that is in a folder, gzipped or not, if any is."""
    paths = (Path(folder) / f"{name}{end}" for name in names for end in ("", ".gz"))
    return next((path for path in paths if path.exists()), None)


def find(folder: Name, names: Sequence[str]) -> Path:
    """The same where one has to be there.

    Raises:
        FileNotFoundError: If there is none, listing them.
    """
    check_folder(folder)
    path = located(folder, names)
    if path is None:
        raise FileNotFoundError(f"{folder} has no {' or '.join(names)}; put one there, or name another folder")
    return path


def check_folder(folder: Name) -> None:
    """Raise a FileNotFoundError for a folder that does not exist."""
    if not Path(folder).is_dir():
        raise FileNotFoundError(f"the folder {folder} does not exist; name the one that holds the data")
