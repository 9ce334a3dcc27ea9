"""Training rows from files: columns of text by name, and a label that is a number."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from sbert.data.records import FORMATS, Name, check_there, format_of, kind, records

# Makes a number of a label, given where it stands.
Convert = Callable[[str, Any], Any]
_WHOLE = re.compile(r"\s*[+-]?[0-9]+\s*")
# As many known classes as an error lists.
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
    r"""The rows of a UTF-8 file as a ``Trainer`` takes them, read as they are asked for.

    CSV and TSV have a header line; TSV knows no quotes, CSV does. JSONL has an object a line, and JSON an array of
    them, whose label may also be a list of numbers, such as a teacher's vector. Parquet needs pyarrow.

    Args:
        path: The file, gzipped where it ends in ``.gz``; ``"-"`` for standard input.
        columns: Names of the columns of text, which the rows keep.
        label: Name of the column of labels, which the rows call ``label``; there are none where it is not given.
        classes: The words that the labels may be, each of which becomes its index here.
        scale: Lowest and highest label, which become 0 and 1, and all between them in proportion.
        drop: Labels whose rows are left out, such as SNLI's ``"-"``; ``""`` for those without a label.
        file_format: ``"jsonl"``, ``"csv"``, ``"tsv"``, ``"json"`` or ``"parquet"``; by the file's ending where it is
            not given.

    Raises:
        OSError: If the file cannot be opened.
        TypeError: If ``columns``, ``classes`` or ``drop`` is one string.
        ValueError: If the arguments do not fit each other; or if a line, a text or a label does not fit, with the
            line's number.

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
        raise ValueError("classes, scale and drop say what becomes of labels; name their column as label, too")
    if label is not None and "label" in names:
        raise ValueError(f"the rows call {label!r} label, as they call a column of text; rename that in the file")
    chosen = _table_format(path, file_format)
    convert = conversion(classes, scale)
    check_there(path)
    return _rows(path, names, label, convert, {as_word(value) for value in drop}, chosen)


def read_classes(path: Name, label: str, *, drop: Collection[object] = (), file_format: str | None = None) -> list[str]:
    r"""The different labels of a file in sorted order, whole numbers by size; as ``classes`` of ``read_rows``.

    Args:
        path: The file.
        label: Name of the column of labels.
        drop: Labels that do not count.
        file_format: As in ``read_rows``.

    Raises:
        OSError: If the file cannot be opened.
        ValueError: If a line does not fit, with its number.

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
    found = set()
    for where, (value,) in records(path, [label], chosen):
        if as_word(value) not in {as_word(one) for one in drop}:
            _check_filled(where, "the label", value)
            found.add(as_word(value))
    whole = all(_WHOLE.fullmatch(word) for word in found)
    return sorted(found, key=lambda word: (int(word) if whole else 0, word))


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
    """A row of checked texts; with ``convert``, the last cell is the label, of which that makes a number.

    Raises:
        ValueError: If a text or the label does not fit, with ``where`` it stands.
    """
    made = dict(zip(columns, cells, strict=False))
    for column, text in made.items():
        _check_filled(where, f"column {column!r}", text)
        if not isinstance(text, str):
            raise ValueError(f"{where}: {kind(text)} where column {column!r} has a text; put a string there")
    if convert is not None:
        _check_filled(where, "the label", cells[-1])
        made["label"] = convert(where, cells[-1])
    return made


def as_word(value: object) -> str:
    """A label as CSV and TSV would have it: the same word for 1 in JSON and in a table."""
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _check_filled(where: str, what: str, value: object) -> None:
    if value is None or value == [] or (isinstance(value, str) and not value.strip()):
        raise ValueError(f"{where}: {what} is empty; fill it in, or remove the line")


def conversion(classes: Sequence[str] | None, scale: tuple[float, float] | None) -> Convert:
    """What makes indices of words, fractions of numbers, or numbers of what is written."""
    if classes is None:
        return _number if scale is None else _scaled(scale)
    if scale is not None:
        raise ValueError("classes= makes indices of words, and scale= fractions of numbers; pass one of them")
    words = [as_word(word) for word in classes]
    if not words or len(set(words)) < len(words):
        raise ValueError(f"classes={list(classes)}; pass one or more words, each once")
    index = {word: i for i, word in enumerate(words)}
    known = ", ".join(words[:_LISTED]) + (f" and {len(words) - _LISTED} more" if len(words) > _LISTED else "")

    def convert(where: str, value: Any) -> int:
        found = index.get(as_word(value))
        if found is None:
            raise ValueError(f"{where}: the label {value!r} is none of the classes {known}; name it, or drop its rows")
        return found

    return convert


def _scaled(scale: tuple[float, float]) -> Callable[[str, Any], float]:
    low, high = scale
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ValueError(f"scale={scale}; pass the lowest and the highest label, such as (0, 5)")

    def convert(where: str, value: Any) -> float:
        number = _number(where, value)
        if isinstance(number, list):
            raise ValueError(f"{where}: the label is a list, which scale= does not take; leave scale= out")
        if not low <= number <= high:
            raise ValueError(f"{where}: the label {number} is not within scale={low:g} to {high:g}; mend one of them")
        return (number - low) / (high - low)

    return convert


def _number(where: str, value: Any) -> int | float | list[float]:
    """The number that a label is: whole if it is written so."""
    if isinstance(value, list):
        for part in value:
            if isinstance(part, (bool, list)) or not _fits(part):
                raise ValueError(f"{where}: the label's list holds {part!r}; put finite numbers there alone")
        return value
    number = _parsed(value) if isinstance(value, str) else value
    if number is None:
        raise ValueError(f"{where}: the label {value!r} is no number; name all such words in their order, as classes")
    if not isinstance(number, (int, float)):
        raise ValueError(f"{where}: the label is {kind(value)}; put a number, a word or a list of numbers there")
    if not _fits(number):
        raise ValueError(f"{where}: the label {value!r} is not finite, or too large; mend it, or remove the line")
    return int(number) if isinstance(number, bool) else number


def _parsed(text: str) -> int | float | None:
    try:
        # Python's own digits may have underscores between them.
        return int(text) if _WHOLE.fullmatch(text) else float(text.replace("_", "?"))
    except ValueError:
        return None


def _fits(number: object) -> bool:
    """Whether it is a number that an int64 or a float32 holds; infinity and NaN are none."""
    return isinstance(number, (int, float)) and abs(number) < 2**63
