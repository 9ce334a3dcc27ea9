"""Texts from files, one after the other."""

from __future__ import annotations

from collections.abc import Iterator

from sbert.data.records import Name, check_there, format_of, kind, lines_of, records, values, without_ending

# As their names are written.
_TABLES = {"csv": "CSV", "tsv": "TSV", "parquet": "Parquet"}


def read_texts(path: Name, column: str | None = None, file_format: str | None = None) -> Iterator[str]:
    r"""The texts of a UTF-8 file in order, read as they are asked for.

    Text: one text a line, empty lines included. JSONL: one JSON string a line, or with ``column`` one object; JSON:
    an array of them. CSV and TSV: a header line, and the column of that name; TSV knows no quotes, CSV does. Parquet:
    the column of that name; it needs pyarrow. A file with another ending is text, unless the ending is that of
    something else, such as ``.xlsx``, or the file holds a NUL byte or no UTF-8.

    Args:
        path: The file, gzipped where it ends in ``.gz``; ``"-"`` for standard input.
        column: Name of the column, or of the object's key.
        file_format: ``"text"``, ``"jsonl"``, ``"csv"``, ``"tsv"``, ``"json"`` or ``"parquet"``; by the file's ending
            where it is not given.

    Raises:
        ImportError: If the file is Parquet and pyarrow is not installed.
        OSError: If the file cannot be opened.
        ValueError: If a line does not fit, with its number, or the file is something else.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder) / "texts.tsv"
        ...     _ = file.write_text("id\ttext\n1\tA 5\" nail.\n", encoding="utf-8")
        ...     list(read_texts(file, column="text"))
        ['A 5" nail.']
    """
    chosen = format_of(path, file_format)
    if column is None and chosen in _TABLES:
        raise ValueError(f"{path} is {_TABLES[chosen]}; name the column that holds the texts")
    if column is not None and chosen == "text":
        raise ValueError(f"{path} is plain text and has no column {column!r}; name another format")
    check_there(path)
    return _texts(path, column, chosen)


def _texts(path: Name, column: str | None, file_format: str) -> Iterator[str]:
    if file_format == "text":
        yield from map(without_ending, lines_of(path))
        return
    found = (
        values(lines_of(path), path, file_format)
        if column is None
        else ((where, row[0]) for where, row in records(path, [column], file_format))
    )
    for where, text in found:
        if not isinstance(text, str):
            remedy = "name the column that holds the texts" if isinstance(text, dict) else "put a string there"
            raise ValueError(f"{where}: {kind(text)} where a text is expected; {remedy}")
        yield text
