"""Read texts from files, one after another."""

from __future__ import annotations

from collections.abc import Iterator

from sbert.data.records import Name, check_there, format_of, kind, lines_of, records, values, without_ending

# Names of the formats, for errors.
_TABLES = {"csv": "CSV", "tsv": "TSV", "parquet": "Parquet"}


def read_texts(path: Name, column: str | None = None, file_format: str | None = None) -> Iterator[str]:
    r"""Iterate over the texts of a UTF-8 file in order; lines are read lazily.

    - Text: one text per line, including empty lines.
    - JSONL: one JSON string per line; with ``column``, one object per line. JSON: an array of these.
    - CSV and TSV: a header line, then the named column. Quotes are special in CSV, but not in TSV.
    - Parquet: the named column; needs pyarrow.

    A file with an unknown suffix is read as text. Suffixes of other formats, such as ``.xlsx``, are an error, as are
    NUL bytes and invalid UTF-8.

    Args:
        path: The file, gzipped if it ends in ``.gz``; ``"-"`` for standard input.
        column: Name of the column, or key of the JSON objects.
        file_format: ``"text"``, ``"jsonl"``, ``"csv"``, ``"tsv"``, ``"json"`` or ``"parquet"``. Default: by the suffix
            of the file.

    Raises:
        ImportError: If the file is Parquet and pyarrow is not installed.
        OSError: If the file cannot be opened.
        ValueError: If a line is invalid, with the line number, or the format is not supported.

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
        raise ValueError(f"{path} is plain text and has no column {column!r}; leave column= out, or pass file_format=")
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
