"""Texts of files and data sets, read one after another, with the columns that go with them."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from pathlib import Path
from typing import Any, NamedTuple

from sbert.data.file_formats import SUPPORTED, TEXT, Name, Records, check_source, find_format, name_kind, need_columns
from sbert.storage.folders import check_local

# Rows of a data set that are read in one step.
_ROWS = 1024


class _Source(NamedTuple):
    """Where the texts are from.

    Args:
        column: The column of the texts.
        read: Returns the rows with their locations, again each time.
        length: Returns the number of rows; None if it is known only after reading them.
        types: Returns the types of Arrow of the columns to keep, as far as they are known.
        once: What can be read only once; None if the source can be read again.
    """

    column: str
    read: Callable[[], Records]
    length: Callable[[], int] | None = None
    types: Callable[[], dict[str, Any]] = dict
    once: str | None = None


class Texts:
    r"""Texts of files or of a data set in their order, read lazily, again each time; ``rows`` adds other columns.

    A folder stands for its files with the endings of the formats below, those of its sub-folders included, without
    names that begin with a dot or an underscore. Files of a folder and those that match a pattern are sorted by name.

    - Text: one text per line, including empty lines.
    - JSONL: one JSON string per line; with ``column``, one object per line. JSON: an array of these, parsed in memory,
      of at most 1 GB.
    - CSV and TSV: a header line, then the named column. Quotes are special in CSV, but not in TSV.
    - Parquet: the named column; needs pyarrow, as ``.zst`` does.

    A line, or a row of CSV, has at most 64 MB.

    Args:
        source: A file, ending in ``.gz`` or ``.zst`` if it is compressed; ``"-"`` for standard input; a folder; a
            pattern such as ``"corpus/*.jsonl"``; a list of these; or a ``Dataset`` or ``IterableDataset`` of the
            package ``datasets``.
        column: Name of the column, or key of the JSON objects.
        format: A name in ``sbert.data.FILE_FORMATS``. Default: by the suffix of each file, text if it is unknown.
        keep: ColumnNames of the columns that ``rows`` adds. Lines of text and JSON strings have one column, "text".
            ``encode(out="….parquet")`` writes them with the types that they have in Parquet files and data sets.

    Raises:
        OSError: If a file does not exist or cannot be opened.
        TypeError: If the source is of another kind.
        ValueError: If a format is not supported, the arguments do not fit it, a line is invalid (the message names the
            line), or a column is missing (the message names the columns).

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from sbert.data import Texts
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
        is_dataset = hasattr(source, "select_columns") and hasattr(source, "iter")
        if is_dataset and column is None:
            raise ValueError(f"the {type(source).__name__} has columns; name the one that holds the texts")
        columns = None if column is None else list(dict.fromkeys((column, *keep)))
        texts = _open_dataset(source, columns) if columns and is_dataset else _open_files(source, columns, format, keep)
        self._start(texts, keep)

    def _start(self, source: _Source, keep: Iterable[str]) -> None:
        self.keep: tuple[str, ...] = tuple(keep)
        self._source, self._is_used = source, False

    @classmethod
    def of(cls, texts: Iterable[str], **columns: Iterable[Any]) -> Texts:
        """Texts in memory, and the columns that go with them.

        Args:
            texts: As in ``encode``.
            columns: For each name, one value per text.

        Raises:
            ValueError: If a column has another length than the texts.

        Example:
            >>> from sbert.data import Texts
            >>> list(Texts.of(["A cat.", "Taxes."], id=[7, 8]).rows())
            [('A cat.', {'id': 7}), ('Taxes.', {'id': 8})]
        """
        if isinstance(texts, str):
            raise TypeError("texts is of type str; pass a list of str, or Texts(path) for those of a file")
        for name, column in columns.items():
            if isinstance(texts, Sized) and isinstance(column, Sized) and len(column) != len(texts):
                raise ValueError(f"texts has {len(texts)} rows and {name} has {len(column)}; pass one value per text")
        new = cls.__new__(cls)
        new._start(_open_memory(texts, columns), columns)
        return new

    def rows(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Each text, and by name the values of its row in the columns of ``keep``."""
        if self._source.once and self._is_used:
            raise ValueError(
                f"{self._source.once} can be read only once; write it to a file, or create the texts again"
            )
        self._is_used = True
        for where, row in self._source.read():
            text = row[self._source.column]
            if not isinstance(text, str):
                remedy = "name the column that holds the texts" if isinstance(text, dict) else "put a string there"
                raise ValueError(f"{where}: {name_kind(text)} where a text is expected; {remedy}")
            yield text, {name: row[name] for name in self.keep}

    def types(self) -> dict[str, Any]:
        """The types of Arrow of the columns of ``keep``, if all files are Parquet, or of a data set; else nothing."""
        types = self._source.types() if self.keep else {}
        return {name: types[name] for name in self.keep if name in types}

    def __iter__(self) -> Iterator[str]:
        for text, _ in self.rows():
            yield text

    def __len__(self) -> int:
        if self._source.length is None:
            raise TypeError("the number of these texts is unknown until they are read: sum(1 for _ in texts)")
        return self._source.length()


def read_texts(path: Name, column: str | None = None, file_format: str | None = None) -> Iterator[str]:
    r"""Iterate over the texts of a file, as ``Texts(path, column, format=file_format)`` does.

    Args:
        path: As in ``Texts``.
        column: As in ``Texts``.
        file_format: As ``format`` in ``Texts``.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from sbert.data import read_texts
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder) / "texts.tsv"
        ...     _ = file.write_text("id\ttext\n1\tA 5\" nail.\n", encoding="utf-8")
        ...     list(read_texts(file, column="text"))
        ['A 5" nail.']
    """
    return iter(Texts(path, column, format=file_format))


# ------------------------------------------------------------------------------------- files, data sets, memory


def _open_files(source: Any, columns: list[str] | None, file_format: str | None, keep: Sequence[str]) -> _Source:
    files = [(path, check_source(path, columns, file_format)) for path in _list_files(source)]
    if not files:
        raise ValueError("source is an empty list; name at least one file")
    if columns is None and (others := set(keep) - {TEXT}):
        listed = ", ".join(map(repr, sorted(others)))
        raise ValueError(f"without a column of texts, {files[0][0]} has the column 'text' alone, no {listed} to keep")

    def read() -> Records:
        for path, chosen in files:
            yield from chosen.read(path, columns)

    column, heads = columns[0] if columns else TEXT, [(path, chosen.head) for path, chosen in files if chosen.head]
    once = "standard input" if any(os.fspath(path) == "-" for path, _ in files) else None
    if once or len(heads) < len(files):
        return _Source(column, read, once=once)
    return _Source(
        column,
        read,
        lambda: sum(head(path)[0] for path, head in heads),
        lambda: _unify_types([(path, head(path)[1]) for path, head in heads], keep),
    )


def _unify_types(schemas: Sequence[tuple[Name, Any]], columns: Sequence[str]) -> dict[str, Any]:
    """The types of columns of several files that fit the values of all of them.

    Raises:
        ValueError: If a column is missing, or has types of different kinds.
    """
    from pyarrow import ArrowException, schema, unify_schemas

    for path, whole in schemas:
        need_columns(path, columns, whole.names)
    parts = [schema([whole.field(column) for column in columns]) for _, whole in schemas]
    try:
        unified = unify_schemas(parts, promote_options="permissive")
    except ArrowException as error:
        raise ValueError(f"the files have different types in one column ({error}); convert them") from error
    return dict(zip(unified.names, unified.types, strict=True))


def _list_files(source: Any) -> Sequence[Name]:
    """The files of a source: a file, a folder, a pattern, or a list of these."""
    if isinstance(source, (list, tuple)):
        return [path for part in source for path in _list_files(part)]
    if not isinstance(source, (str, os.PathLike)):
        kind, remedy = type(source).__name__, "for what is in memory, Texts.of(texts, id=ids)"
        raise TypeError(f"source is of type {kind}; pass a file, a folder, a list of files, or a Dataset; {remedy}")
    check_local("source", source)
    path = Path(source)
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if find_format(file) and file.is_file())
        files = [file for file in files if not any(part[0] in "._" for part in file.relative_to(path).parts)]
        if not files:
            raise FileNotFoundError(f"the folder {source} has no file with a known ending; {SUPPORTED}")
        return files
    if not path.exists() and glob.has_magic(os.fspath(source)):
        matches = sorted(file for file in glob.glob(os.fspath(source), recursive=True) if os.path.isfile(file))
        if not matches:
            raise FileNotFoundError(f"no file matches {source}; pass another pattern, or a folder")
        return matches
    return [source]


def _open_dataset(data: Any, columns: list[str]) -> _Source:
    """A ``Dataset`` or ``IterableDataset``, of which only some columns of some rows are in memory."""
    name = f"the {type(data).__name__}"
    if getattr(data, "format", {}).get("type") == "custom":
        raise ValueError(f"{name} has a transform, which may need other columns; apply it with map() instead")
    need_columns(name, columns, data.column_names or next((list(row) for row in data.take(1)), columns))

    def read() -> Records:
        number = 0
        for batch in data.with_format(None).select_columns(columns).iter(_ROWS):
            for values in zip(*(batch[column] for column in columns), strict=True):
                number += 1
                yield f"{name}, row {number}", dict(zip(columns, values, strict=True))

    schema = getattr(getattr(data, "features", None), "arrow_schema", ())
    types = {field.name: field.type for field in schema}
    return _Source(columns[0], read, data.__len__ if isinstance(data, Sized) else None, lambda: types)


def _open_memory(texts: Iterable[str], columns: Mapping[str, Iterable[Any]]) -> _Source:
    from sbert.inputs.texts import rows_of, values_of  # It needs NumPy, for which no command should wait.

    def read() -> Records:
        lists = [rows_of(texts, "texts"), *map(values_of, columns.values())]
        for text, *values in zip(*lists, strict=True):
            yield "", {**dict(zip(columns, values, strict=True)), "": text}  # No keyword argument is empty.

    iterators = [column for column in (texts, *columns.values()) if iter(column) is column]
    once = f"the {type(iterators[0]).__name__}" if iterators else None
    return _Source("", read, texts.__len__ if isinstance(texts, Sized) else None, once=once)
