"""What is searched: floats or codes, in memory or in a file, read block by block."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sbert.inputs.vectors import matrix, tensor_of, vectors_of
from sbert.pipeline.quantization import check_ranges, dequantize
from sbert.storage.files import is_failure, one_line

# Numbers that are read and compared at once, on a CPU and on a GPU.
_NUMBERS, _NUMBERS_OF_GPU = 6 << 20, 1 << 26
# Rows of these at most: of vectors of few numbers, the scores are what takes memory.
_ROWS, _ROWS_OF_GPU = 1 << 15, 1 << 18
# The first blocks are smaller: where nothing was found yet, all that is seen must be compared exactly.
_FIRST_ROWS = 1024
# Blocks have a multiple of so many rows, but for the last one.
ALIGNED = 64
# Bytes around a page that some systems map when it is read.
_AROUND = 4 << 20
_CODES = (torch.int8, torch.uint8)


class Corpus:
    """Vectors to be searched.

    Args:
        given: Array, tensor, the path of a ``.npy`` file, or an iterator of such blocks.
        dim: Of the vectors that it is compared with; where those are codes, their width.
        device: Where it is compared.
        precision: ``"float32"``, ``"int8"``, ``"binary"`` or ``"ubinary"``; None to see it by dtype and dim.
        ranges: Of int8 codes.
        coded: Whether the vectors that it is compared with are codes themselves.
        also_others: Whether the ranges may be of something else; or else they must be of the corpus.
        name: What the caller calls it.
    """

    def __init__(
        self,
        given: Any,
        dim: int,
        device: torch.device,
        precision: str | None = None,
        ranges: Any = None,
        coded: bool = False,
        also_others: bool = False,
        name: str = "corpus",
    ) -> None:
        self.blocks = given if isinstance(given, Iterator) else iter([given])
        self.dim, self.device, self.precision, self.coded = dim, device, precision, coded
        self.ranges = None if ranges is None else check_ranges(ranges, dim)
        self.also_others, self.name = also_others, name
        self.count = 0  # Rows that were read.
        self._known = "float32"

    def __iter__(self) -> Iterator[tuple[int, Tensor]]:
        """The number of each block's first row, and its rows as floats."""
        start = 0
        for given in self.blocks:
            whole = opened(self.name, given)
            precision = self._known = self._precision(whole)
            low = 0
            while low < len(whole):
                high = min(low + self._step(start + low), len(whole))
                if high - low > ALIGNED:
                    high -= (high - low) % ALIGNED
                yield start + low, self._floats(whole[low:high], precision)
                _release(whole, low, high)
                low = high
            start += len(whole)
            self.count = start

    def _step(self, seen: int) -> int:
        """How many rows to read, a number that comparing by groups can divide."""
        numbers, rows = (_NUMBERS, _ROWS) if self.device.type == "cpu" else (_NUMBERS_OF_GPU, _ROWS_OF_GPU)
        most = min(numbers // self.dim, rows)
        return max(ALIGNED, min(most, max(_FIRST_ROWS, 4 * seen)) // ALIGNED * ALIGNED)

    def decoded(self, queries: Tensor) -> Tensor:
        """The vectors that it is compared with, as floats."""
        if self.coded:
            return dequantize(queries, self._known, self.ranges)
        return queries if queries.dtype in (torch.float32, torch.float64) else queries.float()

    def _precision(self, whole: Any) -> str:
        """What the numbers of a block are; an error if they do not fit."""
        width, kind = whole.shape[1], _dtype(whole)
        packed = -(-self.dim // 8)
        known = self.precision
        if known is None and kind == torch.uint8:
            known = "ubinary"
        elif known is None and kind == torch.int8:
            if self.coded:
                raise ValueError("codes of int8 may be numbers or bits; pass precision='int8' or precision='binary'")
            known = "int8" if width == self.dim else "binary"
        if known is None and self.coded:
            raise ValueError("the queries are codes, and the corpus is not; pass queries as floats, or code the corpus")
        known = known or "float32"
        if self.ranges is not None and known != "int8" and not self.also_others:
            raise ValueError(f"ranges are of int8, and the corpus is {known}; leave them out")
        expected = packed if known.endswith("binary") and not self.coded else self.dim
        if width != expected:
            fits = f"of dim {self.dim}" if known == "float32" else f"{known} codes of {expected} bytes"
            raise ValueError(
                f"{self.name} has rows of {width} numbers, and the queries are {fits}; encode both with the same model"
                " and truncate_dim"
            )
        return known

    def _floats(self, block: Any, precision: str) -> Tensor:
        """(rows, dim) float32 or float64, where it is compared."""
        tensor = tensor_of(block).detach().to(self.device)
        if precision == "float32":
            return tensor if tensor.dtype in (torch.float32, torch.float64) else tensor.float()
        return dequantize(tensor, precision, self.ranges, None if self.coded else self.dim)


def opened(name: str, given: Any) -> Any:
    """An array or tensor of two dimensions; a file is mapped, not read.

    Args:
        name: What the caller calls it.
        given: Array, tensor, list of vectors, or the path of a ``.npy`` file.

    Raises:
        FileNotFoundError: If there is no such file.
        TypeError: If it is no array of numbers.
        ValueError: If it has another shape, or the file cannot be read.
    """
    if isinstance(given, (str, os.PathLike)):
        given = _mapped(name, os.fspath(given))
    return matrix(name, given)


def _mapped(name: str, path: str) -> np.ndarray:
    """The array in a file, mapped, or else an error that says what is wrong with it."""
    try:
        mapped = _array_in(path)
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"{name}={path!r} is no file; pass the path of a .npy file, or vectors: of a text, those that"
            " model.encode gives"
        ) from error
    except Exception as error:  # Of a damaged header, NumPy lets errors of Python's own parser pass.
        if not is_failure(error):
            raise
        raise ValueError(f"{path} cannot be read as an array ({one_line(error)}); write it again") from error
    if not isinstance(mapped, np.ndarray):
        raise ValueError(f"{path} holds several arrays; pass a .npy file")
    return mapped


def _array_in(path: str) -> Any:
    """The array in a file, mapped; one without rows, which not every NumPy maps, is made anew."""
    with open(path, "rb") as file:
        if file.read(6) == np.lib.format.MAGIC_PREFIX:
            file.seek(0)
            version = np.lib.format.read_magic(file)
            header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, _, dtype = header(file)
            if 0 in shape:
                return np.empty(shape, dtype)
    return np.load(path, mmap_mode="r")


def held(name: str, given: Any) -> Tensor:
    """Vectors all of which are in memory, as floats of 32 bits or 64, on a device that has float64."""
    tensor = vectors_of(name, given).detach()
    return tensor.cpu() if tensor.device.type == "mps" else tensor


def device_of(*given: Any) -> torch.device:
    """Where to compare: on the GPU that one of them is on, or else on the CPU."""
    devices = [each.device for each in given if isinstance(each, Tensor) and each.device.type == "cuda"]
    return devices[0] if devices else torch.device("cpu")


def is_coded(tensor: Tensor) -> bool:
    """Whether these are codes, and no vectors."""
    return tensor.dtype in _CODES


def is_int8(whole: Any) -> bool:
    """Whether an array or a tensor may hold codes of int8."""
    return _dtype(whole) == torch.int8


def _dtype(whole: Any) -> torch.dtype | None:
    """int8 and uint8; None for others."""
    if isinstance(whole, Tensor):
        return whole.dtype
    return {np.dtype(np.int8): torch.int8, np.dtype(np.uint8): torch.uint8}.get(whole.dtype)


def _release(whole: Any, low: int, high: int) -> None:
    """Have the memory back that mapped rows take once they were read; they are in the file, whoever asks again."""
    owner = whole
    while isinstance(owner, np.ndarray) and not isinstance(owner, np.memmap):
        owner = owner.base
    # What was written to a map in mode "c" is in memory alone.
    if not isinstance(owner, np.memmap) or owner.mode == "c" or not whole.flags.c_contiguous:
        return
    mapped: Any = getattr(owner, "_mmap", None)
    if not isinstance(mapped, mmap.mmap) or not hasattr(mmap, "MADV_DONTNEED"):
        return
    first = whole.__array_interface__["data"][0] - np.frombuffer(mapped, np.uint8).__array_interface__["data"][0]
    begin, end = first + low * whole.strides[0], first + min(high, len(whole)) * whole.strides[0]
    begin = max(0, begin - begin % mmap.PAGESIZE - _AROUND)
    if end > begin:
        mapped.madvise(mmap.MADV_DONTNEED, begin, end - begin)
