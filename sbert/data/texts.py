"""Texts of files and data sets, read one after another, with the columns that go with them."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from functools import partial
from pathlib import Path
from typing import Any

from sbert.data.files import READ, Name, check_there, format_of, is_readable, lines_of, without_ending
from sbert.data.records import check_columns, kind, parquet_length, parquet_types, records, values

# Names of the formats, for errors.
_TABLES = {"csv": "CSV", "tsv": "TSV", "parquet": "Parquet"}
# The column of what has no columns: the lines of a text file, and JSON strings.
_TEXT = "text"
# Rows of a data set that are read at once.
_ROWS = 1024

# Each text with its location and the values of its row.
Located = Iterator[tuple[str, Any, Mapping[str, Any]]]


class Texts:
    r"""Texts of files or of a data set in their order, read lazily, each time anew; ``rows`` adds other columns.

    A folder stands for its files with the endings of the formats below, those of its sub-folders included, without
    names that begin with a dot or an underscore. Files of a folder and those that match a pattern are sorted by name.

    - Text: one text per line, including empty lines.
    - JSONL: one JSON string per line; with ``column``, one object per line. JSON: an array of these, parsed in memory.
    - CSV and TSV: a header line, then the named column. Quotes are special in CSV, but not in TSV.
    - Parquet: the named column; needs pyarrow, as ``.zst`` does.

    Args:
        source: A file, ending in ``.gz`` or ``.zst`` if it is compressed; ``"-"`` for standard input; a folder; a
            pattern such as ``"corpus/*.jsonl"``; a list of these; or a ``Dataset`` or ``IterableDataset`` of the
            package ``datasets``.
        column: Name of the column, or key of the JSON objects.
        format: ``"text"``, ``"jsonl"``, ``"csv"``, ``"tsv"``, ``"json"`` or ``"parquet"``. Default: by the suffix of
            each file, text if it is unknown.
        keep: Names of the columns that ``rows`` adds. Lines of text and JSON strings have one column, "text".
            ``encode(out="….parquet")`` writes them with the types that they have in Parquet files and data sets.

    Raises:
        OSError: If a file does not exist or cannot be opened.
        TypeError: If the source is of another kind.
        ValueError: If a format is not supported, the arguments do not fit it, a line is invalid (the message names the
            line), or a column is missing (the message names the columns).

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = Path(folder, "a.csv").write_text("id,body\n7,A cat.\n8,Taxes.\n", encoding="utf-8")
        ...     texts = Texts(folder, "body", keep=["id"])
        ...     list(texts), list(texts.rows())
        (['A cat.', 'Taxes.'], [('A cat.', {'id': '7'}), ('Taxes.', {'id': '8'})])
    """

    def __init__(
        self,
        source: Any,
        column: str | None = None,
        *,
        format: str | None = None,  # noqa: A002
        keep: Sequence[str] = (),
    ) -> None:
        if isinstance(keep, str):
            raise TypeError(f"keep={keep!r} is one string; pass a list of column names")
        self.keep: tuple[str, ...] = tuple(keep)
        self._found: Callable[[], Located]
        self._length: Callable[[], int] | None = None
        self._types: Callable[[], dict[str, Any]] = dict
        self._once: str | None = None  # What can be read only once.
        self._begun = False
        if hasattr(source, "select_columns") and hasattr(source, "iter"):
            if column is None:
                raise ValueError(f"the {type(source).__name__} has columns; name the one that holds the texts")
            self._found = partial(_of_dataset, source, column, self.keep)
            self._length = source.__len__ if isinstance(source, Sized) else None
            self._types = partial(_types_of_dataset, source, self.keep)
            return
        format_of("", format)  # An unknown format is said before a missing file.
        files = [(path, format_of(path, format)) for path in _files(source)]
        for path, chosen in files:
            _check_column(path, chosen, column, self.keep)
        if not files:
            raise ValueError("source is an empty list; name at least one file")
        self._found = partial(_of_files, files, column, self.keep)
        if all(chosen == "parquet" and os.fspath(path) != "-" for path, chosen in files):
            self._length = partial(_parquet_lengths, files)
            self._types = partial(parquet_types, [path for path, _ in files], self.keep)
        if any(os.fspath(path) == "-" for path, _ in files):
            self._once = "standard input"

    @classmethod
    def of(cls, texts: Iterable[str], **columns: Iterable[Any]) -> Texts:
        """Texts in memory, and the columns that go with them.

        Args:
            texts: As in ``encode``.
            columns: For each name, one value per text.

        Raises:
            ValueError: If a column has another length than the texts.

        Example:
            >>> list(Texts.of(["A cat.", "Taxes."], id=[7, 8]).rows())
            [('A cat.', {'id': 7}), ('Taxes.', {'id': 8})]
        """
        if isinstance(texts, str):
            raise TypeError("texts is of type str; pass a list of str, or Texts(path) for those of a file")
        for name, column in columns.items():
            if isinstance(texts, Sized) and isinstance(column, Sized) and len(column) != len(texts):
                raise ValueError(f"texts has {len(texts)} rows and {name} has {len(column)}; pass one value per text")
        made = cls.__new__(cls)
        made.keep, made._begun, made._types = tuple(columns), False, dict
        made._found = partial(_of_memory, texts, columns)
        made._length = texts.__len__ if isinstance(texts, Sized) else None
        made._once = next(
            (f"the {type(each).__name__}" for each in (texts, *columns.values()) if iter(each) is each), None
        )
        return made

    def rows(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Each text, and by name the values of its row in the columns of ``keep``."""
        if self._once and self._begun:
            raise ValueError(f"{self._once} can be read only once; write it to a file, or make the texts anew")
        self._begun = True
        for where, text, row in self._found():
            if not isinstance(text, str):
                remedy = "name the column that holds the texts" if isinstance(text, dict) else "put a string there"
                raise ValueError(f"{where}: {kind(text)} where a text is expected; {remedy}")
            yield text, {name: row[name] for name in self.keep}

    def types(self) -> dict[str, Any]:
        """The types of Arrow of the columns of ``keep``, if all files are Parquet, or of a data set; else nothing."""
        return self._types() if self.keep else {}

    def __iter__(self) -> Iterator[str]:
        for text, _ in self.rows():
            yield text

    def __len__(self) -> int:
        if self._length is None:
            raise TypeError(
                "the number of these texts is unknown until they are read; count them: sum(1 for _ in texts)"
            )
        return self._length()


def read_texts(path: Name, column: str | None = None, file_format: str | None = None) -> Iterator[str]:
    r"""Iterate over the texts of a file, as ``Texts(path, column, format=file_format)`` does.

    Args:
        path: As in ``Texts``.
        column: As in ``Texts``.
        file_format: As ``format`` in ``Texts``.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder) / "texts.tsv"
        ...     _ = file.write_text("id\ttext\n1\tA 5\" nail.\n", encoding="utf-8")
        ...     list(read_texts(file, column="text"))
        ['A 5" nail.']
    """
    return iter(Texts(path, column, format=file_format))


# ------------------------------------------------------------------------------------- files, data sets, memory


def _files(source: Any) -> Sequence[Name]:
    """The files of a source: a file, a folder, a pattern, or a list of these."""
    if isinstance(source, (list, tuple)):
        return [path for each in source for path in _files(each)]
    if not isinstance(source, (str, os.PathLike)):
        raise TypeError(
            f"source is of type {type(source).__name__}; pass a file, a folder, a list of files, or a Dataset; or,"
            " for what is in memory, Texts.of(texts, id=ids)"
        )
    path = Path(source)
    if path.is_dir():
        within = (file for file in path.rglob("*") if not _is_hidden(file.relative_to(path)) and is_readable(file))
        found: Sequence[Name] = sorted(file for file in within if file.is_file())
        if not found:
            raise FileNotFoundError(f"the folder {source} has no file with a known ending; {READ}")
        return found
    if not path.exists() and glob.has_magic(os.fspath(source)):
        found = sorted(file for file in glob.glob(os.fspath(source), recursive=True) if os.path.isfile(file))
        if not found:
            raise FileNotFoundError(f"no file matches {source}; pass another pattern, or a folder")
        return found
    check_there(source)
    return [source]


def _is_hidden(path: Path) -> bool:
    return any(part.startswith((".", "_")) for part in path.parts)


def _check_column(path: Name, file_format: str, column: str | None, keep: Sequence[str]) -> None:
    """Raise an error if the format has no such columns, or needs the name of one."""
    if column is None and file_format in _TABLES:
        raise ValueError(f"{path} is {_TABLES[file_format]}; name the column that holds the texts")
    if column is not None and file_format == "text":
        raise ValueError(f"{path} is plain text and has no column {column!r}; leave column= out, or pass file_format=")
    if column is None and set(keep) - {_TEXT}:
        wrong = ", ".join(map(repr, sorted(set(keep) - {_TEXT})))
        raise ValueError(f"without a column of texts, {path} has the column 'text' alone, and no {wrong} to keep")


def _of_files(files: Sequence[tuple[Name, str]], column: str | None, keep: Sequence[str]) -> Located:
    for path, file_format in files:
        if column is not None:
            names = list(dict.fromkeys((column, *keep)))
            yield from ((where, row[column], row) for where, row in records(path, names, file_format))
        elif file_format == "text":
            for line in lines_of(path):
                text = without_ending(line)
                yield "", text, {_TEXT: text}
        else:
            yield from ((where, text, {_TEXT: text}) for where, text in values(lines_of(path), path, file_format))


def _parquet_lengths(files: Sequence[tuple[Name, str]]) -> int:
    return sum(parquet_length(path) for path, _ in files)


def _of_dataset(data: Any, column: str, keep: Sequence[str]) -> Located:
    """The rows of a ``Dataset`` or ``IterableDataset``, of which only some columns of some rows are in memory."""
    name, columns = type(data).__name__, list(dict.fromkeys((column, *keep)))
    if getattr(data, "format", {}).get("type") == "custom":
        raise ValueError(f"the {name} has a transform, which may need other columns; apply it with map() instead")
    known = data.column_names or next((list(row) for row in data.take(1)), columns)
    check_columns(f"the {name}", columns, known)
    number = 0
    for batch in data.with_format(None).select_columns(columns).iter(_ROWS):
        for cells in zip(*(batch[each] for each in columns), strict=True):
            number += 1
            row = dict(zip(columns, cells, strict=True))
            yield f"{name}, row {number}", row[column], row


def _types_of_dataset(data: Any, keep: Sequence[str]) -> dict[str, Any]:
    if getattr(data, "features", None) is None:
        return {}
    schema = data.features.arrow_schema
    return {name: schema.field(name).type for name in keep if name in schema.names}


def _of_memory(texts: Iterable[str], columns: Mapping[str, Iterable[Any]]) -> Located:
    from sbert.inputs.texts import rows_of, values_of  # It needs NumPy, for which no command should wait.

    lists = [rows_of(texts, "texts"), *map(values_of, columns.values())]
    for cells in zip(*lists, strict=True):
        yield "", cells[0], dict(zip(columns, cells[1:], strict=True))
