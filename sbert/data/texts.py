"""Texts from files, one after the other."""

from __future__ import annotations

from collections.abc import Iterator

from sbert.data.records import Name, check_there, decoded, format_of, kind, open_bytes, records, values, without_ending


def read_texts(path: Name, column: str | None = None, file_format: str | None = None) -> Iterator[str]:
    r"""The texts of a UTF-8 file in order, read as they are asked for.

    Text: one text a line, empty lines included. JSONL: one JSON string a line, or with ``column`` one object.
    CSV and TSV: a header line, and the column of that name; TSV knows no quotes, CSV does.

    Args:
        path: The file, gzipped where it ends in ``.gz``; ``"-"`` for standard input.
        column: Name of the column, or of the object's key.
        file_format: ``"text"``, ``"jsonl"``, ``"csv"`` or ``"tsv"``; by the file's ending where it is not given.

    Raises:
        OSError: If the file cannot be opened.
        ValueError: If a line does not fit, with its number.

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
    if column is None and chosen in ("csv", "tsv"):
        raise ValueError(f"{path} is {chosen.upper()}; name the column that holds the texts")
    if column is not None and chosen == "text":
        raise ValueError(f"{path} is plain text and has no column {column!r}; name another format")
    check_there(path)
    return _texts(path, column, chosen)


def _texts(path: Name, column: str | None, file_format: str) -> Iterator[str]:
    with open_bytes(path) as file:
        lines = decoded(file, path)
        if file_format == "text":
            yield from map(without_ending, lines)
            return
        found = (
            values(lines, path)
            if column is None
            else ((where, row[0]) for where, row in records(lines, path, [column], file_format))
        )
        for where, text in found:
            if not isinstance(text, str):
                remedy = "name the column that holds the texts" if column is None else "put a string there"
                raise ValueError(f"{where}: {kind(text)} where a text is expected; {remedy}")
            yield text
