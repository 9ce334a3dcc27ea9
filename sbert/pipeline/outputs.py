"""Where vectors go: rows of a tensor, or a .npy file, written as they come, where they do not fit in memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from torch import Tensor

from sbert.batch import move
from sbert.storage.atomic import replacing_file

# Numbers that are gathered on a GPU before they are copied to the host: large copies are cheap, waiting is not.
_GATHERED = 1 << 22


class RowsOfTensor:
    """A tensor that is filled a few rows at a time, in any order.

    Vectors on a GPU that are wanted on the host are gathered there, and copied while the next ones are computed.

    Args:
        shape: Of the tensor, (rows, dim).
        device: Where it is.
    """

    def __init__(self, shape: tuple[int, int], device: torch.device) -> None:
        self._tensor = torch.empty(shape, device=device)
        self._gathered: list[tuple[np.ndarray, Tensor]] = []
        self._copying: tuple[np.ndarray, Tensor, torch.cuda.Event] | None = None

    def put(self, rows: np.ndarray, vectors: Tensor) -> None:
        """Fill ``rows``, (n,), with ``vectors``, (n, dim)."""
        if vectors.is_cuda and self._tensor.device.type == "cpu":
            self._gathered.append((rows, vectors))
            if sum(some.numel() for _, some in self._gathered) >= _GATHERED:
                self._copy()
        else:
            self._tensor[move(torch.from_numpy(rows), self._tensor.device)] = vectors.to(self._tensor.device)

    def _copy(self) -> None:
        """Start to copy what was gathered, and put away what was copied before."""
        gathered, copying = self._gathered, self._copying
        self._gathered, self._copying = [], None
        if gathered:
            vectors = torch.cat([some for _, some in gathered])
            host = torch.empty(vectors.shape, pin_memory=True)
            host.copy_(vectors, non_blocking=True)
            done = torch.cuda.Event()  # type: ignore[no-untyped-call]
            done.record(torch.cuda.current_stream(vectors.device))
            self._copying = np.concatenate([rows for rows, _ in gathered]), host, done
        if copying:
            rows, host, done = copying
            done.synchronize()
            self._tensor[torch.from_numpy(rows)] = host

    def complete(self) -> Tensor:
        """The tensor, once every row was put."""
        while self._gathered or self._copying:
            self._copy()
        return self._tensor


class NpyFile:
    """Rows of a .npy file that is being written.

    NumPy leaves room in the header for the number of rows to grow, so it is written first and last.

    Args:
        file: The file, empty.
        dim: Numbers a row.
        dtype: Of the numbers.
    """

    def __init__(self, file: BinaryIO, dim: int, dtype: np.dtype) -> None:
        self._file, self.dim, self.dtype = file, dim, dtype
        self.rows = 0
        self._write_header()

    def _write_header(self) -> None:
        self._file.seek(0)
        shape, kind = (self.rows, self.dim), np.lib.format.dtype_to_descr(self.dtype)
        header = {"descr": kind, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(self._file, header)

    def append(self, vectors: np.ndarray) -> None:
        """Add rows. Shape: (rows, dim)."""
        self._file.write(np.ascontiguousarray(vectors, self.dtype).tobytes())
        self.rows += len(vectors)

    def complete(self) -> None:
        """Say how many rows there are."""
        self._write_header()


@contextmanager
def npy_file(path: str | os.PathLike[str], dim: int, dtype: np.dtype) -> Iterator[NpyFile]:
    """A .npy file that grows by rows and appears under its name when the block ends without an error.

    What a killed process has left of such a file is removed with the next one of the same name.

    Args:
        path: The file, ending in ``.npy``.
        dim: Numbers a row.
        dtype: Of the numbers.
    """
    if Path(path).suffix != ".npy":
        raise ValueError(f"out={os.fspath(path)!r} does not end in .npy; name a .npy file")
    if not Path(path).parent.is_dir():
        raise FileNotFoundError(f"out={os.fspath(path)!r}: the folder {Path(path).parent} does not exist; make it")
    with replacing_file(Path(path)) as file:
        rows = NpyFile(file, dim, dtype)
        yield rows
        rows.complete()
