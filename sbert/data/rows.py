"""Training rows with named columns of text and a numeric label, from the files of the user."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from sbert.data.files import FORMATS, Name, check_there, format_of
from sbert.data.labels import WHOLE, Convert, as_word, conversion
from sbert.data.records import kind, records


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
    found = ((where, [row[name] for name in wanted]) for where, row in records(path, wanted, chosen))
    return rows_of(found, names, None if label is None else convert, drop)


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
    for where, row in records(path, [label], chosen):
        if as_word(row[label]) not in dropped:
            _check_filled(where, "the label", row[label])
            labels.add(as_word(row[label]))
    whole = all(WHOLE.fullmatch(word) for word in labels)
    return sorted(labels, key=lambda word: (int(word) if whole else 0, word))


def _table_format(path: Name, file_format: str | None) -> str:
    chosen = format_of(path, file_format)
    if chosen == "text":
        raise ValueError(f"{path} is plain text and has no columns; name another format: {', '.join(FORMATS[1:])}")
    return chosen


def rows_of(
    found: Iterable[tuple[str, list[Any]]],
    columns: Sequence[str],
    convert: Convert | None = None,
    drop: Collection[object] = (),
) -> Iterator[dict[str, Any]]:
    """Rows with checked texts by column.

    Args:
        found: The values of each row with its location.
        columns: Names of the texts.
        convert: Converts the label, which is then the last value.
        drop: Labels whose rows are left out.

    Raises:
        ValueError: If a text or a label is invalid; the message begins with the location.
    """
    dropped = {as_word(value) for value in drop}
    for where, cells in found:
        if convert is None or as_word(cells[-1]) not in dropped:
            yield row_of(where, columns, cells, convert)


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


def _check_filled(where: str, what: str, value: object) -> None:
    if value is None or value == [] or (isinstance(value, str) and not value.strip()):
        raise ValueError(f"{where}: {what} is empty; fill it in, or remove the line")
