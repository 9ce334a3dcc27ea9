"""Where vectors go that do not fit in memory: a .npy file, written as they come."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import numpy as np


class NpyFile:
    """A .npy file that grows by rows and appears under its name once it is complete.

    NumPy leaves room in the header for the number of rows to grow, so it is written first and last.

    Args:
        path: The file, ending in ``.npy``.
        dim: Numbers a row.
        dtype: Of the numbers.
    """

    def __init__(self, path: str | os.PathLike[str], dim: int, dtype: np.dtype) -> None:
        self.path = Path(path)
        if self.path.suffix != ".npy":
            raise ValueError(f"out={os.fspath(path)!r} does not end in .npy; name a .npy file")
        if not self.path.parent.is_dir():
            raise FileNotFoundError(f"out={os.fspath(path)!r}: the folder {self.path.parent} does not exist; make it")
        self.rows, self.dim, self.dtype = 0, dim, dtype
        descriptor, self._work = tempfile.mkstemp(prefix=f".{self.path.name}.", dir=self.path.parent)
        self._file = os.fdopen(descriptor, "w+b")
        self._write_header()

    def _write_header(self) -> None:
        self._file.seek(0)
        np.lib.format.write_array_header_1_0(
            self._file,
            {
                "descr": np.lib.format.dtype_to_descr(self.dtype),
                "fortran_order": False,
                "shape": (self.rows, self.dim),
            },
        )

    def append(self, vectors: np.ndarray) -> None:
        """Add rows. Shape: (rows, dim)."""
        self._file.write(np.ascontiguousarray(vectors, self.dtype).tobytes())
        self.rows += len(vectors)

    def __enter__(self) -> NpyFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            with self._file:  # Closing writes what is buffered, for which there may be no room.
                if error is None:
                    self._write_header()
                    self._file.flush()
                    os.fsync(self._file.fileno())
            if error is None:
                mask = os.umask(0)
                os.umask(mask)
                os.chmod(self._work, 0o666 & ~mask)
                os.replace(self._work, self.path)
        finally:
            with suppress(FileNotFoundError):  # It bears its own name now.
                os.unlink(self._work)
