"""The reader of Parquet files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any

from sbert.data.formats import DAMAGE, Name, open_bytes
from sbert.inputs.extras import needed

# What is read at once: rows, and bytes of each column.
_ROWS, _BYTES = 1024, 1 << 20


@contextmanager
def open_parquet(path: Name) -> Iterator[Any]:
    """Open a file as a ``pyarrow.parquet.ParquetFile``; whatever is damaged in the block is a ValueError with its name.

    Args:
        path: The file, compressed as a whole or not; ``"-"`` for standard input.

    Raises:
        ImportError: If pyarrow is not installed.
        ValueError: If the file is damaged.
    """
    with needed(f"reading {path}", "pyarrow", "parquet"):
        from pyarrow import ArrowException, BufferReader
        from pyarrow.parquet import ParquetFile
    try:
        source: Any = os.fspath(path)
        if source == "-" or source.lower().endswith((".gz", ".zst")):  # Parquet needs random access.
            with open_bytes(path) as lines:
                source = BufferReader(b"".join(lines))
        # Row groups may be large, so they are read in parts.
        with ParquetFile(source, buffer_size=_BYTES, pre_buffer=False, page_checksum_verification=True) as file:
            yield file
    except (ArrowException, UnicodeDecodeError, *DAMAGE) as error:
        if getattr(error, "errno", None) is not None:
            raise
        raise ValueError(f"{path}: not a valid Parquet file ({error}); download it again") from error


def read_parquet(path: Name, columns: Sequence[str] | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rows of a file, each with its location.

    Args:
        path: As in ``open_parquet``.
        columns: The columns to read. Default: all.

    Raises:
        ValueError: If a column is missing, or the file is damaged.
    """
    with open_parquet(path) as file:
        if columns is not None:
            check_columns(path, columns, file.schema_arrow.names)
        batches = file.iter_batches(_ROWS, columns=None if columns is None else list(columns))
        for number, row in enumerate(chain.from_iterable(batch.to_pylist() for batch in batches), start=1):
            yield f"{path}, row {number}", row


def count_rows(paths: Sequence[Name]) -> int:
    """The number of rows of several files."""
    count = 0
    for path in paths:
        with open_parquet(path) as file:
            count += file.metadata.num_rows
    return count


def read_types(paths: Sequence[Name], columns: Sequence[str]) -> dict[str, Any]:
    """The types of columns of several files that fit the values of all of them.

    Raises:
        ValueError: If a column is missing, or has types of different kinds.
    """
    from pyarrow import ArrowException, schema, unify_schemas

    schemas = []
    for path in paths:
        with open_parquet(path) as file:
            check_columns(path, columns, file.schema_arrow.names)
            schemas.append(schema([file.schema_arrow.field(column) for column in columns]))
    try:
        unified = unify_schemas(schemas, promote_options="permissive")
    except ArrowException as error:
        raise ValueError(f"the files have different types in one column ({error}); convert them") from error
    return dict(zip(unified.names, unified.types, strict=True))


def check_columns(path: Name, columns: Sequence[str], header: Sequence[str]) -> None:
    """Raise a ValueError if a column does not occur in the header exactly once."""
    for column in columns:
        if (count := list(header).count(column)) != 1:
            known = ", ".join(header) or "none"
            raise ValueError(f"{path}: {count or 'no'} columns {column!r}; name one that occurs once, of {known}")
