"""Training rows with named columns of text and a numeric label, from the files of the user."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from sbert.data.file_formats import Name, name_kind, read_records

# Converts a label to a number; the first argument is its location, for errors.
Convert = Callable[[str, Any], Any]
_INTEGER = re.compile(r"\s*[+-]?[0-9]+\s*")


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
        path: The file, ending in ``.gz`` or ``.zst`` if it is compressed; ``"-"`` for standard input.
        columns: ColumnNames of the text columns; the rows have the same names.
        label: Name of the label column, which the rows call ``label``. Default: no labels.
        classes: The possible labels, as words; each is replaced by its index in this sequence.
        scale: Lowest and highest label; labels are mapped linearly, so that these become 0 and 1.
        drop: Labels whose rows are left out, such as ``"-"`` in SNLI; ``""`` for rows without a label.
        file_format: A name in ``sbert.data.FILE_FORMATS`` but ``"text"``. Default: by the suffix of the file.

    Raises:
        OSError: If the file cannot be opened.
        TypeError: If ``columns``, ``classes`` or ``drop`` is a single string.
        ValueError: If the arguments contradict each other; or if a line, a text or a label is invalid, with the line
            number.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from sbert.data import read_rows
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
    if not names or len(set(wanted)) < len(wanted) or (label is not None and "label" in names):
        raise ValueError(f"columns={names} and label={label!r}; name at least one column, and none twice or 'label'")
    if label is None and (classes is not None or scale is not None or drop):
        raise ValueError("classes, scale and drop apply to labels; name their column as label, too")
    convert = make_converter(classes, scale)
    records = read_records(path, wanted, file_format)
    cells = ((where, [record[name] for name in wanted]) for where, record in records)
    return check_rows(cells, names, None if label is None else convert, drop)


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
        >>> from sbert.data import read_classes
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder) / "nli.csv"
        ...     _ = file.write_text("label\nneutral\nentailment\nneutral\n", encoding="utf-8")
        ...     read_classes(file, "label")
        ['entailment', 'neutral']
    """
    dropped, labels = {to_word(value) for value in drop}, set()
    for where, record in read_records(path, [label], file_format):
        if to_word(record[label]) not in dropped:
            _check_filled(where, "the label", record[label])
            labels.add(to_word(record[label]))
    integers = all(_INTEGER.fullmatch(word) for word in labels)
    return sorted(labels, key=lambda word: (int(word) if integers else 0, word))


# -------------------------------------------------------------------------------------------------- rows and labels


def check_rows(
    cells: Iterable[tuple[str, list[Any]]],
    columns: Sequence[str],
    convert: Convert | None = None,
    drop: Collection[object] = (),
) -> Iterator[dict[str, Any]]:
    """Rows with checked texts by column.

    Args:
        cells: The values of each row with its location.
        columns: ColumnNames of the texts.
        convert: Converts the label, which is then the last value.
        drop: Labels whose rows are left out.

    Raises:
        ValueError: If a text or a label is invalid; the message begins with the location.
    """
    dropped = {to_word(value) for value in drop}
    for where, values in cells:
        if convert is not None and to_word(values[-1]) in dropped:
            continue
        row = dict(zip(columns, values, strict=False))
        for column, text in row.items():
            _check_filled(where, f"column {column!r}", text)
            if not isinstance(text, str):
                raise ValueError(f"{where}: {name_kind(text)} where column {column!r} has a text; put a string there")
        if convert is not None:
            _check_filled(where, "the label", values[-1])
            row["label"] = convert(where, values[-1])
        yield row


def _check_filled(where: str, what: str, value: object) -> None:
    if value is None or value == [] or (isinstance(value, str) and not value.strip()):
        raise ValueError(f"{where}: {what} is empty; fill it in, or remove the line")


def to_word(value: object) -> str:
    """A label as it is written in CSV and TSV, so that JSON's 1 and a table's "1" are the same word."""
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


class ClassIndex(int):
    """The index of a class, by which a trainer knows the names of all classes, for cards."""

    class_names: tuple[str, ...]

    def __new__(cls, index: int, class_names: tuple[str, ...] = ()) -> ClassIndex:
        """The index with the names."""
        self = super().__new__(cls, index)
        self.class_names = class_names
        return self


def make_converter(classes: Sequence[str] | None, scale: tuple[float, float] | None) -> Convert:
    """The function that converts labels: to class indices, to the range 0 to 1, or to plain numbers."""
    if classes is not None and scale is not None:
        raise ValueError("classes are for labels that are words, a scale for labels that are numbers; pass one of them")
    if classes is not None:
        words = [to_word(word) for word in classes]
        if not words or len(set(words)) < len(words):
            raise ValueError(f"classes={words}; pass one or more words, each once")
        return partial(_to_index, {word: ClassIndex(index, tuple(words)) for index, word in enumerate(words)})
    if scale is None:
        return _to_number
    try:
        low, high = map(float, scale)
    except (TypeError, ValueError):
        low = high = math.nan
    if not -math.inf < low < high < math.inf:
        raise ValueError(f"the scale {scale} is none; pass the lowest label, then the highest, such as 0 and 5")
    return partial(_to_scale, low, high)


def _to_index(indices: Mapping[str, int], where: str, value: Any) -> int:
    """The index of a label that is a word."""
    if (word := to_word(value)) not in indices:
        known = ", ".join(indices)
        raise ValueError(f"{where}: the label {value!r} is not one of the classes {known:.200}; add or drop it")
    return indices[word]


def _to_scale(low: float, high: float, where: str, value: Any) -> float:
    """A label from ``low`` to ``high`` as a number from 0 to 1."""
    number = _to_number(where, value)
    if isinstance(number, list):
        raise ValueError(f"{where}: the label is a list, which has no scale; leave the scale out")
    if not low <= number <= high:
        raise ValueError(f"{where}: the label {number} is not within the scale, {low:g} to {high:g}; correct one")
    return (number - low) / (high - low)


def _to_number(where: str, value: Any) -> int | float | list[float]:
    """A label as a number, an int if it is written as one; or a list of numbers as it is.

    Raises:
        ValueError: If it is not a number, or does not fit int64 and float32.
    """
    if isinstance(value, list):
        if wrong := [part for part in value if isinstance(part, bool) or not _is_number(part)]:
            raise ValueError(f"{where}: the label's list contains {wrong[0]!r}; use finite numbers only")
        return value
    number = value
    if isinstance(value, str):
        try:
            # Python accepts underscores between digits; here they are an error.
            number = int(value) if _INTEGER.fullmatch(value) else float(value.replace("_", "?"))
        except ValueError:
            number = None
    if not isinstance(number, (int, float)):
        raise ValueError(f"{where}: the label {value!r:.80} is not a number; if labels are words, list them as classes")
    if not _is_number(number):
        raise ValueError(f"{where}: the label {value!r} is not finite, or too large; fix or remove the line")
    return int(number) if isinstance(number, bool) else number


def _is_number(value: object) -> bool:
    """Whether it is a finite number in the range of int64 and float32."""
    return isinstance(value, (int, float)) and abs(value) < 2**63
