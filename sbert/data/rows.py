"""Training rows from files: named columns of text and a numeric label."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from sbert.data.records import FORMATS, Name, check_there, format_of, kind, records

# Converts a label to a number; the first argument is its location, for errors.
Convert = Callable[[str, Any], Any]
_WHOLE = re.compile(r"\s*[+-]?[0-9]+\s*")
# Number of classes that an error lists.
_LISTED = 20


def read_rows(
    path: Name,
    columns: Sequence[str],
    label: str | None = None,
    *,
    classes: Sequence[str] | None = None,
    scale: tuple[float, float] | None = None,
    drop: Collection[object] = (),
    file_format: str | None = None,
) -> Iterator[dict[str, Any]]:
    r"""Iterate over the rows of a UTF-8 file, in the form that ``Trainer`` takes; lines are read lazily.

    CSV and TSV have a header line; quotes are special in CSV, but not in TSV. JSONL has one object per line, JSON an
    array of objects; there, a label may also be a list of numbers, such as the vector of a teacher. Parquet needs
    pyarrow.

    Args:
        path: The file, gzipped if it ends in ``.gz``; ``"-"`` for standard input.
        columns: Names of the text columns; the rows have the same names.
        label: Name of the label column, which the rows call ``label``. Default: no labels.
        classes: The possible labels, as words; each is replaced by its index in this sequence.
        scale: Lowest and highest label; labels are mapped linearly, so that these become 0 and 1.
        drop: Labels whose rows are left out, such as ``"-"`` in SNLI; ``""`` for rows without a label.
        file_format: ``"jsonl"``, ``"csv"``, ``"tsv"``, ``"json"`` or ``"parquet"``. Default: by the suffix of the
            file.

    Raises:
        OSError: If the file cannot be opened.
        TypeError: If ``columns``, ``classes`` or ``drop`` is a single string.
        ValueError: If the arguments contradict each other; or if a line, a text or a label is invalid, with the line
            number.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder) / "pairs.tsv"
        ...     _ = file.write_text("one\ttwo\tscore\nA 5\" nail.\tA nail.\t4.0\n", encoding="utf-8")
        ...     list(read_rows(file, ["one", "two"], "score", scale=(0, 5)))
        [{'one': 'A 5" nail.', 'two': 'A nail.', 'label': 0.8}]
    """
    for name, value in (("columns", columns), ("classes", classes), ("drop", drop)):
        if isinstance(value, str):
            raise TypeError(f"{name}={value!r} is one string; pass a list of them")
    names = list(columns)
    wanted = names if label is None else [*names, label]
    if not names or len(set(wanted)) < len(wanted):
        raise ValueError(f"columns={names} and label={label!r}; name at least one column, and none twice")
    if label is None and (classes is not None or scale is not None or drop):
        raise ValueError("classes, scale and drop apply to labels; name their column as label, too")
    if label is not None and "label" in names:
        raise ValueError(f"the rows would call both {label!r} and a text column 'label'; rename one in the file")
    chosen = _table_format(path, file_format)
    convert = conversion(classes, scale)
    check_there(path)
    return _rows(path, names, label, convert, {as_word(value) for value in drop}, chosen)


def read_classes(path: Name, label: str, *, drop: Collection[object] = (), file_format: str | None = None) -> list[str]:
    r"""The distinct labels of a file in sorted order (integers by value), for ``classes`` of ``read_rows``.

    Args:
        path: The file.
        label: Name of the label column.
        drop: Labels to leave out.
        file_format: As in ``read_rows``.

    Raises:
        OSError: If the file cannot be opened.
        ValueError: If a line is invalid; the message gives the line number.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder) / "nli.csv"
        ...     _ = file.write_text("label\nneutral\nentailment\nneutral\n", encoding="utf-8")
        ...     read_classes(file, "label")
        ['entailment', 'neutral']
    """
    chosen = _table_format(path, file_format)
    check_there(path)
    dropped, labels = {as_word(each) for each in drop}, set()
    for where, (value,) in records(path, [label], chosen):
        if as_word(value) not in dropped:
            _check_filled(where, "the label", value)
            labels.add(as_word(value))
    whole = all(_WHOLE.fullmatch(word) for word in labels)
    return sorted(labels, key=lambda word: (int(word) if whole else 0, word))


def _table_format(path: Name, file_format: str | None) -> str:
    chosen = format_of(path, file_format)
    if chosen == "text":
        raise ValueError(f"{path} is plain text and has no columns; name another format: {', '.join(FORMATS[1:])}")
    return chosen


def _rows(
    path: Name,
    columns: list[str],
    label: str | None,
    convert: Convert,
    drop: set[str],
    file_format: str,
) -> Iterator[dict[str, Any]]:
    wanted = columns if label is None else [*columns, label]
    for where, row in records(path, wanted, file_format):
        if label is not None and drop and as_word(row[-1]) in drop:
            continue
        yield row_of(where, columns, row, None if label is None else convert)


def row_of(where: str, columns: Sequence[str], cells: Sequence[Any], convert: Convert | None = None) -> dict[str, Any]:
    """A row of checked texts by column. With ``convert``, the last cell is the label, which it converts.

    Raises:
        ValueError: If a text or the label is invalid; the message begins with ``where``.
    """
    row = dict(zip(columns, cells, strict=False))
    for column, text in row.items():
        _check_filled(where, f"column {column!r}", text)
        if not isinstance(text, str):
            raise ValueError(f"{where}: {kind(text)} where column {column!r} has a text; put a string there")
    if convert is not None:
        _check_filled(where, "the label", cells[-1])
        row["label"] = convert(where, cells[-1])
    return row


def as_word(value: object) -> str:
    """A label as it is written in CSV and TSV, so that JSON's 1 and a table's "1" are the same word."""
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _check_filled(where: str, what: str, value: object) -> None:
    if value is None or value == [] or (isinstance(value, str) and not value.strip()):
        raise ValueError(f"{where}: {what} is empty; fill it in, or remove the line")


def conversion(classes: Sequence[str] | None, scale: tuple[float, float] | None) -> Convert:
    """The function that converts labels: to class indices, to the range 0 to 1, or to plain numbers."""
    if classes is None:
        return _number if scale is None else _scaled(scale)
    if scale is not None:
        raise ValueError("classes= is for labels that are words, scale= for labels that are numbers; pass one of them")
    words = [as_word(word) for word in classes]
    if not words or len(set(words)) < len(words):
        raise ValueError(f"classes={list(classes)}; pass one or more words, each once")
    index = {word: i for i, word in enumerate(words)}
    known = ", ".join(words[:_LISTED]) + (f" and {len(words) - _LISTED} more" if len(words) > _LISTED else "")

    def convert(where: str, value: Any) -> int:
        place = index.get(as_word(value))
        if place is None:
            raise ValueError(f"{where}: the label {value!r} is not one of the classes {known}; add or drop it")
        return place

    return convert


def _scaled(scale: tuple[float, float]) -> Callable[[str, Any], float]:
    low, high = scale
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ValueError(f"scale={scale}; pass the lowest and the highest label, such as (0, 5)")

    def convert(where: str, value: Any) -> float:
        number = _number(where, value)
        if isinstance(number, list):
            raise ValueError(f"{where}: the label is a list, which scale= does not support; leave scale= out")
        if not low <= number <= high:
            raise ValueError(
                f"{where}: the label {number} is not within scale={low:g} to {high:g}; correct one of them"
            )
        return (number - low) / (high - low)

    return convert


def _number(where: str, value: Any) -> int | float | list[float]:
    """The label as a number; an int if it is written as one."""
    if isinstance(value, list):
        for part in value:
            if isinstance(part, (bool, list)) or not _fits(part):
                raise ValueError(f"{where}: the label's list contains {part!r}; use finite numbers only")
        return value
    number = _parsed(value) if isinstance(value, str) else value
    if number is None:
        raise ValueError(f"{where}: the label {value!r} is not a number; if labels are words, list them as classes")
    if not isinstance(number, (int, float)):
        raise ValueError(f"{where}: the label is {kind(value)}; make it a number, a word or a list of numbers")
    if not _fits(number):
        raise ValueError(f"{where}: the label {value!r} is not finite, or too large; fix or remove the line")
    return int(number) if isinstance(number, bool) else number


def _parsed(text: str) -> int | float | None:
    try:
        # Python accepts underscores between digits; here they are an error.
        return int(text) if _WHOLE.fullmatch(text) else float(text.replace("_", "?"))
    except ValueError:
        return None


def _fits(number: object) -> bool:
    """Whether it is a finite number in the range of int64 and float32."""
    return isinstance(number, (int, float)) and abs(number) < 2**63
