"""Formats of files of vectors: how a window is stored, and how the windows become a file."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np

from sbert.inputs.extras import needed
from sbert.inputs.vectors import Array
from sbert.storage.atomic import flush_entry, replacing_file
from sbert.vector_files.files import NpyFile
from sbert.vector_files.journal import Journal

# The column of vectors.
VECTOR = "vector"
# How types of a column in several tables become one.
_PROMOTED: dict[str, Any] = {"promote_options": "permissive"}


class Format(Protocol):
    """How windows are appended to a partial file, and how that becomes the output."""

    def begin(self, file: BinaryIO) -> int:
        """Write what precedes the windows; return its number of bytes."""

    def block(self, vectors: Array, columns: list[Any]) -> memoryview:
        """The bytes of a window."""

    def finish(self, journal: Journal, start: int, path: Path) -> None:
        """Make the output of the windows; what was done of this before may be done again."""


class Npy:
    """A .npy file: the partial file is the output, but for the number of rows in its header.

    Args:
        dim: Number of columns.
        dtype: Dtype of the rows.
    """

    def __init__(self, dim: int, dtype: np.dtype[np.generic]) -> None:
        self.dim, self.dtype = dim, dtype

    def begin(self, file: BinaryIO) -> int:
        """Write a header for no rows."""
        NpyFile(file, self.dim, self.dtype)
        return file.tell()

    def block(self, vectors: Array, columns: list[Any]) -> memoryview:  # noqa: ARG002
        """The rows as they are."""
        return np.ascontiguousarray(vectors, self.dtype).data.cast("B")

    def finish(self, journal: Journal, start: int, path: Path) -> None:
        """Write the number of rows, and rename the file."""
        with journal.partial.open("r+b") as file:
            file.truncate(journal.windows[-1].end if journal.windows else start)
            rows = NpyFile(file, self.dim, self.dtype)
            rows.rows = journal.windows[-1].rows if journal.windows else 0
            rows.write_header()
            file.flush()
            os.fsync(file.fileno())
        os.replace(journal.partial, path)
        flush_entry(path.parent)


class Parquet:
    """A Parquet file with a row group per window: blocks of Arrow are joined at the end, with the types of all.

    Args:
        dim: Number of values of a vector.
        dtype: Dtype of the vectors.
        keep: Names of the other columns.
    """

    def __init__(self, dim: int, dtype: np.dtype[np.generic], keep: tuple[str, ...]) -> None:
        with needed("writing Parquet", "pyarrow", "parquet"):
            import pyarrow
            import pyarrow.parquet
        if VECTOR in keep:
            raise ValueError(f"the column {VECTOR!r} is that of the vectors; rename the one to keep")
        self._arrow: Any = pyarrow
        self.dim, self.dtype, self.keep = dim, dtype, keep

    def begin(self, file: BinaryIO) -> int:  # noqa: ARG002
        """Nothing precedes the blocks."""
        return 0

    def block(self, vectors: Array, columns: list[Any]) -> memoryview:
        """A stream of Arrow."""
        arrow = self._arrow
        with _one_type():
            kept = arrow.concat_tables(columns or [arrow.table({name: [] for name in self.keep})], **_PROMOTED)
        flat = arrow.array(np.ascontiguousarray(vectors, self.dtype).reshape(-1))
        listed = arrow.FixedSizeListArray.from_arrays(flat, self.dim)
        table = arrow.table([*kept.columns, listed], [*kept.column_names, VECTOR]).combine_chunks()
        sink = io.BytesIO()
        with arrow.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
        return sink.getbuffer()

    def finish(self, journal: Journal, start: int, path: Path) -> None:  # noqa: ARG002
        """Join the blocks."""
        empty = self._arrow.ipc.open_stream(self.block(np.zeros((0, self.dim), self.dtype), [])).schema
        schemas = [empty, *(table.schema for table in self._tables(journal))]
        with _one_type(), replacing_file(path) as file:
            schema = self._arrow.unify_schemas(schemas, **_PROMOTED)
            write_parquet(file, schema, (table.cast(schema) for table in self._tables(journal)))

    def _tables(self, journal: Journal) -> Iterator[Any]:
        start = 0
        with journal.partial.open("rb") as file:
            for window in journal.windows:
                yield self._arrow.ipc.open_stream(file.read(window.end - start)).read_all()
                start = window.end


@contextmanager
def _one_type() -> Iterator[None]:
    """Errors of Arrow where values of a column, such as large integers and floats within lists, fit no common type."""
    from pyarrow import ArrowInvalid, ArrowTypeError

    try:
        yield
    except (ArrowInvalid, ArrowTypeError) as error:
        raise ValueError(f"the values of a column do not fit one type of Arrow: {error}") from error


def write_parquet(file: BinaryIO, schema: Any, tables: Iterator[Any]) -> None:
    """Write tables as row groups. Values of vectors hardly repeat, and need no dictionary and no statistics."""
    from pyarrow.parquet import ParquetWriter

    names = [name for name in schema.names if name != VECTOR]
    options = {"use_dictionary": names, "write_statistics": names, "write_page_checksum": True}
    with ParquetWriter(file, schema, **options) as writer:
        for table in tables:
            writer.write_table(table)
