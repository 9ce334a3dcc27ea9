"""Files of vectors: rows of a .npy file that is being written, and vectors in several files as one array."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tokenize import TokenError
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from sbert.inputs.vectors import Array
from sbert.storage.atomic import replacing_file


class NpyFile:
    """Rows of a .npy file that is being written.

    NumPy reserves space in the header for the number of rows, so the header is written first and once more at the end.

    Args:
        file: The file, empty.
        dim: Dimension of the rows.
        dtype: Dtype of the rows.
    """

    def __init__(self, file: BinaryIO, dim: int, dtype: np.dtype[np.generic]) -> None:
        self._file = file
        self.dim: int = dim
        self.dtype: np.dtype[np.generic] = dtype
        self.rows: int = 0
        self.write_header()

    def write_header(self) -> None:
        """Write the number of rows."""
        self._file.seek(0)
        shape, kind = (self.rows, self.dim), np.lib.format.dtype_to_descr(self.dtype)
        header = {"descr": kind, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(self._file, header)

    def append(self, vectors: Array) -> None:
        """Add rows. Shape: (rows, dim)."""
        self._file.write(np.ascontiguousarray(vectors, self.dtype).tobytes())
        self.rows += len(vectors)


@contextmanager
def npy_file(path: str | os.PathLike[str], dim: int, dtype: np.dtype[np.generic]) -> Iterator[NpyFile]:
    """A .npy file to append rows to. It appears under its name when the block ends without an error.

    Temporary files of killed processes are removed when the next file of the same name is written.

    Args:
        path: The file, ending in ``.npy``.
        dim: Dimension of the rows.
        dtype: Dtype of the rows.
    """
    if Path(path).suffix != ".npy":
        raise ValueError(f"out={os.fspath(path)!r} does not end in .npy; name a .npy file")
    if not Path(path).parent.is_dir():
        raise FileNotFoundError(f"out={os.fspath(path)!r}: the folder {Path(path).parent} does not exist; create it")
    with replacing_file(Path(path)) as file:
        rows = NpyFile(file, dim, dtype)
        yield rows
        rows.write_header()


class VectorFiles:
    """Vectors in several .npy files or in Parquet files, read-only; ``np.asarray`` reads them all.

    Args:
        paths: The files, in order.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self.paths: tuple[Path, ...] = tuple(paths)
        found = [_shape_of(path) for path in self.paths]
        self.rows: list[int] = [rows for rows, _, _ in found]
        self.shape: tuple[int, int] = sum(self.rows), found[0][1]
        self.dtype: np.dtype[np.generic] = found[0][2]

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<{len(self)} vectors of {self.shape[1]} {self.dtype} in {', '.join(map(str, self.paths))}>"

    def parts(self) -> Iterator[Array]:
        """The vectors a part at a time: a file, or a row group of Parquet. Shape: (rows, dim) each."""
        for path in self.paths:
            if path.suffix == ".npy":
                yield np.load(path, mmap_mode="r" if _shape_of(path)[0] else None)
                continue
            from pyarrow.parquet import ParquetFile

            with ParquetFile(path) as file:
                for group in range(file.num_row_groups):
                    column = file.read_row_group(group, ["vector"])["vector"].combine_chunks()
                    yield column.flatten().to_numpy().reshape(-1, self.shape[1])

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> Array:
        return np.concatenate([np.zeros((0, self.shape[1]), self.dtype), *self.parts()]).astype(
            dtype or self.dtype, copy=False
        )


def _shape_of(path: Path) -> tuple[int, int, np.dtype[np.generic]]:
    """Number of rows, dim and dtype of a file of vectors."""
    if path.suffix == ".npy":
        try:
            with path.open("rb") as file:
                np.lib.format.read_magic(file)
                (rows, dim), _, dtype = np.lib.format.read_array_header_1_0(file)
        except (ValueError, SyntaxError, TokenError) as error:  # NumPy raises all of them.
            raise ValueError(f"{path} is damaged: its header is not that of a .npy file; encode it again") from error
        return rows, dim, dtype
    from pyarrow.parquet import ParquetFile

    with ParquetFile(path) as file:
        kind = file.schema_arrow.field("vector").type
        return file.metadata.num_rows, kind.list_size, np.dtype(kind.value_type.to_pandas_dtype())
