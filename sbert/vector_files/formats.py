"""Formats of files of vectors: how a part is stored, how the parts become a file, and how files are read."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from tokenize import TokenError
from typing import Any, BinaryIO, Protocol

import numpy as np
import numpy.typing as npt

from sbert.inputs.extras import require
from sbert.inputs.vectors import Array
from sbert.storage.atomic import flush_entry, replacing_file
from sbert.storage.files import UnreadableError, one_line
from sbert.vector_files.manifest import Manifest
from sbert.vector_files.reader import one_type

# The column of vectors.
VECTOR = "vector"
# How types of a column in several tables become one.
_PROMOTED: dict[str, Any] = {"promote_options": "permissive"}


class Format(Protocol):
    """How parts are appended to a partial file, and how that becomes the output."""

    head: bytes  # What precedes the parts.

    def block(self, vectors: Array, columns: list[Any]) -> memoryview:
        """The bytes of a part."""

    def complete(self, manifest: Manifest) -> AbstractContextManager[Path]:
        """A context with the path of the complete file, which is renamed to that of the output when it ends."""


# ---------------------------------------------------------------------------------------------------- .npy


class Npy:
    """A .npy file: the partial file is the output, but for the number of rows in its header.

    Args:
        dim: Number of columns.
        dtype: Dtype of the rows.
    """

    def __init__(self, dim: int, dtype: np.dtype[np.generic]) -> None:
        self.dim, self.dtype = dim, dtype
        self.head: bytes = npy_header(0, dim, dtype)

    def block(self, vectors: Array, columns: list[Any]) -> memoryview:  # noqa: ARG002
        """The rows as they are."""
        return np.ascontiguousarray(vectors, self.dtype).data.cast("B")

    @contextmanager
    def complete(self, manifest: Manifest) -> Iterator[Path]:
        """Write the number of rows, and rename the file."""
        with manifest.partial.open("r+b") as file:
            file.write(npy_header(manifest.rows, self.dim, self.dtype))
            file.flush()
            os.fsync(file.fileno())
        yield manifest.partial
        os.replace(manifest.partial, manifest.output)
        flush_entry(manifest.output.parent)


def npy_header(rows: int, dim: int, dtype: np.dtype[np.generic]) -> bytes:
    """The header; its length is the same for any number of rows: NumPy reserves space for the longest."""
    file = io.BytesIO()
    shape, kind = (rows, dim), np.lib.format.dtype_to_descr(dtype)
    np.lib.format.write_array_header_1_0(file, {"descr": kind, "fortran_order": False, "shape": shape})
    return file.getvalue()


# ------------------------------------------------------------------------------------------------- Parquet


class Parquet:
    """A Parquet file with a row group per part: blocks of Arrow are joined at the end, with the types of all.

    Args:
        dim: Number of values of a vector.
        dtype: Dtype of the vectors.
        keep: Names of the other columns.
    """

    head: bytes = b""

    def __init__(self, dim: int, dtype: np.dtype[np.generic], keep: tuple[str, ...]) -> None:
        with require("writing Parquet", "pyarrow", "parquet"):
            import pyarrow
            import pyarrow.parquet
        if VECTOR in keep:
            raise ValueError(f"the column {VECTOR!r} is that of the vectors; rename the one to keep")
        self._arrow: Any = pyarrow
        self.dim, self.dtype, self.keep = dim, dtype, keep

    def block(self, vectors: Array, columns: list[Any]) -> memoryview:
        """A stream of Arrow."""
        arrow = self._arrow
        with one_type("a column"):
            table = arrow.concat_tables(columns or [arrow.table({name: [] for name in self.keep})], **_PROMOTED)
        flat = arrow.array(np.ascontiguousarray(vectors, self.dtype).reshape(-1))
        listed = arrow.FixedSizeListArray.from_arrays(flat, self.dim)
        table = arrow.table([*table.columns, listed], [*table.column_names, VECTOR]).combine_chunks()
        sink = io.BytesIO()
        with arrow.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
        return memoryview(sink.getvalue())

    @contextmanager
    def complete(self, manifest: Manifest) -> Iterator[Path]:
        """Join the blocks."""
        empty = self._arrow.ipc.open_stream(self.block(np.zeros((0, self.dim), self.dtype), [])).read_all()
        with replacing_file(manifest.output) as file:
            with one_type("a column"):
                schemas = [empty.schema, *(each.schema for each in self._tables(manifest))]
                schema = self._arrow.unify_schemas(schemas, **_PROMOTED)
                write_parquet(file, schema, (table.cast(schema) for table in self._tables(manifest)))
            file.flush()
            yield Path(file.name)
        manifest.partial.unlink()

    def _tables(self, manifest: Manifest) -> Iterator[Any]:
        start = 0
        with manifest.partial.open("rb") as file:
            for part in manifest.parts:
                yield self._arrow.ipc.open_stream(file.read(part.end - start)).read_all()
                start = part.end


def write_parquet(file: BinaryIO, schema: Any, tables: Iterable[Any]) -> None:
    """Write tables as row groups. Values of vectors hardly repeat, and need no dictionary and no statistics."""
    from pyarrow.parquet import ParquetWriter

    names = [name for name in schema.names if name != VECTOR]
    options = {"use_dictionary": names, "write_statistics": names, "write_page_checksum": True}
    with ParquetWriter(file, schema, **options) as writer:
        for table in tables:
            writer.write_table(table)


# ------------------------------------------------------------------------------------------------- reading


class VectorFiles:
    """Vectors in several .npy files or in Parquet files, read-only; ``np.asarray`` reads them all.

    Args:
        paths: The files, in order.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self.paths: tuple[Path, ...] = tuple(paths)
        shapes = [_shape_of(path) for path in self.paths]
        self.rows: list[int] = [rows for rows, _, _ in shapes]
        self.shape: tuple[int, int] = sum(self.rows), shapes[0][1]
        self.dtype: np.dtype[np.generic] = shapes[0][2]

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<{len(self)} vectors of {self.shape[1]} {self.dtype} in {', '.join(map(str, self.paths))}>"

    def parts(self) -> Iterator[Array]:
        """The vectors a part at a time: a file, or a row group of Parquet. Shape: (rows, dim) each."""
        for path in self.paths:
            if path.suffix == ".npy":
                yield map_file(path)
                continue
            from pyarrow.parquet import ParquetFile

            with ParquetFile(path) as file:
                for group in range(file.num_row_groups):
                    column = file.read_row_group(group, [VECTOR])[VECTOR].combine_chunks()
                    yield column.flatten().to_numpy().reshape(-1, self.shape[1])

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> Array:
        return np.concatenate([np.zeros((0, self.shape[1]), self.dtype), *self.parts()]).astype(
            dtype or self.dtype, copy=False
        )


def map_file(path: Path) -> Array:
    """The rows of a .npy file, mapped into memory."""
    try:
        return np.lib.format.open_memmap(path, mode="r")
    except (ValueError, SyntaxError, TokenError) as error:  # For a damaged header, errors of the Python parser.
        raise UnreadableError(path, f"cannot be read as an array ({one_line(error)})", "write it again") from error


def _shape_of(path: Path) -> tuple[int, int, np.dtype[np.generic]]:
    """Number of rows, dim and dtype of a file of vectors."""
    if path.suffix == ".npy":
        return *map_file(path).shape, map_file(path).dtype
    from pyarrow.parquet import ParquetFile

    with ParquetFile(path) as file:
        kind = file.schema_arrow.field(VECTOR).type
        return file.metadata.num_rows, kind.list_size, np.dtype(kind.value_type.to_pandas_dtype())
