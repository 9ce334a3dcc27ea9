"""Formats of files of vectors: how a part is stored, how the parts become a file, and how files are read."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain, islice, zip_longest
from pathlib import Path
from tokenize import TokenError
from typing import Any, BinaryIO

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
# Stripes of a row group of Parquet.
_STRIPES = 32


# ---------------------------------------------------------------------------------------------------- .npy


class Npy:
    """A .npy file: the partial file is the output, but for the number of rows in its header.

    This and ``Parquet`` say how parts are appended to a partial file, how that becomes the output, and how outputs are
    read and joined.

    Args:
        dim: Number of columns.
        dtype: Dtype of the rows.
        keep: Names of other columns: none.
    """

    has_columns = False

    def __init__(self, dim: int, dtype: np.dtype[np.generic], keep: tuple[str, ...]) -> None:  # noqa: ARG002
        self.dim, self.dtype = dim, dtype
        self.head: bytes = npy_header(0, dim, dtype)

    def block(self, vectors: Array, columns: list[Any]) -> memoryview:  # noqa: ARG002
        """The bytes of a part: the rows as they are."""
        return np.ascontiguousarray(vectors, self.dtype).data.cast("B")

    @contextmanager
    def complete(self, manifest: Manifest) -> Iterator[Path]:
        """Write the number of rows; a context with the path of the file, which is renamed when it ends."""
        with manifest.partial.open("r+b") as file:
            file.write(npy_header(manifest.rows, self.dim, self.dtype))
            file.flush()
            os.fsync(file.fileno())
        yield manifest.partial
        os.replace(manifest.partial, manifest.output)
        flush_entry(manifest.output.parent)

    @staticmethod
    def shape(path: Path) -> tuple[int, int, np.dtype[np.generic]]:
        """Number of rows, dim and dtype of a file."""
        return *map_file(path).shape, map_file(path).dtype

    @staticmethod
    def read(path: Path) -> Iterator[Array]:
        """The whole file, mapped into memory."""
        yield map_file(path)

    @staticmethod
    def join(shards: list[Path], whole: Path, stripe: int) -> None:
        """Write the rows of shards to one file: ``stripe`` rows of each in turn."""
        vectors = VectorFiles(shards)
        stripes = [np.split(part, range(stripe, len(part), stripe)) for part in vectors.parts()]
        with replacing_file(whole) as file:
            file.write(npy_header(*vectors.shape, vectors.dtype))
            for rows in _in_turn(stripes):
                file.write(np.ascontiguousarray(rows, vectors.dtype).data)


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
    has_columns = True

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
                schemas = [empty.schema, *(table.schema for table in self._tables(manifest))]
                schema = self._arrow.unify_schemas(schemas, **_PROMOTED)
                _write_parquet(file, schema, (table.cast(schema) for table in self._tables(manifest)))
            file.flush()
            yield Path(file.name)
        manifest.partial.unlink()

    def _tables(self, manifest: Manifest) -> Iterator[Any]:
        start = 0
        with manifest.partial.open("rb") as file:
            for part in manifest.parts:
                yield self._arrow.ipc.open_stream(file.read(part.end - start)).read_all()
                start = part.end

    @staticmethod
    def shape(path: Path) -> tuple[int, int, np.dtype[np.generic]]:
        from pyarrow.parquet import ParquetFile

        with ParquetFile(path) as file:
            kind = file.schema_arrow.field(VECTOR).type
            return file.metadata.num_rows, kind.list_size, np.dtype(kind.value_type.to_pandas_dtype())

    @staticmethod
    def read(path: Path) -> Iterator[Array]:
        """A row group at a time."""
        from pyarrow.parquet import ParquetFile

        with ParquetFile(path) as file:
            dim = file.schema_arrow.field(VECTOR).type.list_size
            for group in range(file.num_row_groups):
                column = file.read_row_group(group, [VECTOR])[VECTOR].combine_chunks()
                yield column.flatten().to_numpy().reshape(-1, dim)

    @staticmethod
    def join(shards: list[Path], whole: Path, stripe: int) -> None:
        from pyarrow import concat_tables, unify_schemas
        from pyarrow.parquet import ParquetFile

        with ExitStack() as opened:
            files = [
                opened.enter_context(ParquetFile(shard, buffer_size=1 << 20, pre_buffer=False)) for shard in shards
            ]
            schema = unify_schemas([file.schema_arrow for file in files], **_PROMOTED)
            stripes = _in_turn([_stripes(file, stripe, schema) for file in files])
            groups = iter(lambda: list(islice(stripes, _STRIPES)), [])
            with replacing_file(whole) as output:
                _write_parquet(output, schema, (concat_tables(group).combine_chunks() for group in groups))


# The format of each suffix.
Format = Npy | Parquet
FORMATS: dict[str, type[Npy] | type[Parquet]] = {".npy": Npy, ".parquet": Parquet}


def _in_turn(shards: list[Any]) -> Iterator[Any]:
    """The stripes of shards in the order of the texts."""
    return (rows for rows in chain.from_iterable(zip_longest(*shards)) if rows is not None)


def _stripes(file: Any, stripe: int, schema: Any) -> Iterator[Any]:
    """The rows of a Parquet file, a stripe at a time."""
    from pyarrow import Table, concat_tables

    waiting = schema.empty_table()
    for batch in file.iter_batches(batch_size=stripe):
        waiting = concat_tables([waiting, Table.from_batches([batch]).cast(schema)])
        while waiting.num_rows >= stripe:
            yield waiting.slice(0, stripe)
            waiting = waiting.slice(stripe)
    if waiting.num_rows:
        yield waiting


def _write_parquet(file: BinaryIO, schema: Any, tables: Iterable[Any]) -> None:
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
        shapes = [FORMATS[path.suffix].shape(path) for path in self.paths]
        self.rows: list[int] = [rows for rows, _, _ in shapes]
        self.shape: tuple[int, int] = sum(self.rows), shapes[0][1]
        self.dtype: np.dtype[np.generic] = shapes[0][2]

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<{len(self)} vectors of {self.shape[1]} {self.dtype} in {', '.join(map(str, self.paths))}>"

    def parts(self) -> Iterator[Array]:
        """The vectors a part at a time. Shape: (rows, dim) each."""
        for path in self.paths:
            yield from FORMATS[path.suffix].read(path)

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
