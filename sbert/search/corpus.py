"""The corpus of a search: floats or codes, in memory or in a file, read block by block."""

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

# Maximum number of values in a block, on a CPU and on a GPU.
_VALUES, _VALUES_ON_GPU = 6 << 20, 1 << 26
# Maximum number of rows in a block: for a small dimension, the scores take more memory than the vectors.
_ROWS, _ROWS_ON_GPU = 1 << 15, 1 << 18
# The first block is smaller: without hits there is no limit for the prefilter, and all its rows are compared exactly.
_FIRST_ROWS = 1024
# The number of rows in a block is a multiple of this, except in the last one.
ALIGNED = 64
# Bytes around a page that some systems map when the page is read.
_READAHEAD = 4 << 20
_CODES = (torch.int8, torch.uint8)


class Corpus:
    """Blocks of vectors, checked and converted to floats.

    Args:
        given: Array, tensor, the path of a ``.npy`` file, or an iterator over these.
        dim: Dimension of the queries; if they are codes, bytes per query.
        device: Device of the comparison.
        precision: ``"float32"``, ``"int8"``, ``"binary"`` or ``"ubinary"``; None to derive it from dtype and dimension.
        ranges: Ranges of int8 codes.
        coded: Whether the queries are codes, too.
        ranges_optional: Whether ``ranges`` are allowed if the corpus is not int8; they may belong to ``rescore``.
        name: Name of the caller's argument, for messages.
    """

    def __init__(
        self,
        given: Any,
        dim: int,
        device: torch.device,
        precision: str | None = None,
        ranges: Any = None,
        coded: bool = False,
        ranges_optional: bool = False,
        name: str = "corpus",
    ) -> None:
        self.blocks = given if isinstance(given, Iterator) else iter([given])
        self.dim, self.device, self.precision, self.coded = dim, device, precision, coded
        self.ranges = None if ranges is None else check_ranges(ranges, dim)
        self.ranges_optional, self.name = ranges_optional, name
        self.count = 0  # Rows that were read.
        self._known = "float32"

    def __iter__(self) -> Iterator[tuple[int, Tensor]]:
        """The index of the first row of each block, and its rows as floats, (rows, dim)."""
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
        """The number of rows in the block after the first ``seen`` rows."""
        values, rows = (_VALUES, _ROWS) if self.device.type == "cpu" else (_VALUES_ON_GPU, _ROWS_ON_GPU)
        maximum = min(values // self.dim, rows)
        return max(ALIGNED, min(maximum, max(_FIRST_ROWS, 4 * seen)) // ALIGNED * ALIGNED)

    def decoded(self, queries: Tensor) -> Tensor:
        """The queries as floats, once a block was read."""
        if self.coded:
            return dequantize(queries, self._known, self.ranges)
        return queries if queries.dtype in (torch.float32, torch.float64) else queries.float()

    def _precision(self, whole: Any) -> str:
        """The precision of a block, or a ValueError if it does not fit the queries."""
        width, kind = whole.shape[1], _dtype(whole)
        packed = -(-self.dim // 8)
        known = self.precision
        if known is None and kind == torch.uint8:
            known = "ubinary"
        elif known is None and kind == torch.int8:
            if self.coded:
                raise ValueError("int8 codes may be int8 or binary; pass precision='int8' or precision='binary'")
            known = "int8" if width == self.dim else "binary"
        if known is None and self.coded:
            raise ValueError("the queries are codes, and the corpus is not; pass float queries, or quantize the corpus")
        known = known or "float32"
        if self.ranges is not None and known != "int8" and not self.ranges_optional:
            raise ValueError(f"ranges belong to int8, and the corpus is {known}; remove ranges")
        expected = packed if known.endswith("binary") and not self.coded else self.dim
        if width != expected:
            fits = f"of dim {self.dim}" if known == "float32" else f"{known} codes of {expected} bytes"
            raise ValueError(
                f"{self.name} has shape {tuple(whole.shape)}, and the queries are {fits}; encode both with the same"
                " model and truncate_dim"
            )
        return known

    def _floats(self, block: Any, precision: str) -> Tensor:
        """The rows as float32 or float64 on the device of the comparison. Shape: (rows, dim)."""
        tensor = tensor_of(block).detach().to(self.device)
        if precision == "float32":
            return tensor if tensor.dtype in (torch.float32, torch.float64) else tensor.float()
        return dequantize(tensor, precision, self.ranges, None if self.coded else self.dim)


def opened(name: str, given: Any) -> Any:
    """An array or a tensor with two dimensions; a file is mapped into memory.

    Args:
        name: Name of the caller's argument, for messages.
        given: Array, tensor, list of vectors, or the path of a ``.npy`` file.

    Raises:
        FileNotFoundError: If the file does not exist.
        TypeError: If it is not an array of numbers.
        ValueError: If it has another shape, or the file cannot be read.
    """
    if isinstance(given, (str, os.PathLike)):
        given = _mapped(name, os.fspath(given))
    return matrix(name, given)


def _mapped(name: str, path: str) -> np.ndarray:
    """The array in a file, mapped, or an error that says what is wrong with the file."""
    try:
        mapped = _array_in(path)
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"{name}={path!r} is not a file; pass the path of a .npy file, or vectors: model.encode gives those of"
            " texts"
        ) from error
    except Exception as error:  # For a damaged header, NumPy passes on errors of the Python parser.
        if not is_failure(error):
            raise
        raise ValueError(f"{path} cannot be read as an array ({one_line(error)}); write it again") from error
    if not isinstance(mapped, np.ndarray):
        raise ValueError(f"{path} holds several arrays; pass a .npy file")
    return mapped


def _array_in(path: str) -> Any:
    """The array in a file, mapped; an empty one, which some versions of NumPy cannot map, is created."""
    with open(path, "rb") as file:
        if file.read(6) == np.lib.format.MAGIC_PREFIX:
            file.seek(0)
            version = np.lib.format.read_magic(file)
            header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, _, dtype = header(file)
            if 0 in shape:
                return np.empty(shape, dtype)
    return np.load(path, mmap_mode="r")


def in_memory(name: str, given: Any) -> Tensor:
    """Vectors in memory as float32 or float64, on a device that has float64."""
    tensor = vectors_of(name, given).detach()
    return tensor.cpu() if tensor.device.type == "mps" else tensor


def device_of(*given: Any) -> torch.device:
    """The device of the comparison: the GPU of the first argument that is on one, otherwise the CPU."""
    devices = [each.device for each in given if isinstance(each, Tensor) and each.device.type == "cuda"]
    return devices[0] if devices else torch.device("cpu")


def is_coded(tensor: Tensor) -> bool:
    """Whether a tensor holds codes, int8 or binary."""
    return tensor.dtype in _CODES


def is_int8(whole: Any) -> bool:
    """Whether an array or a tensor has the dtype int8."""
    return _dtype(whole) == torch.int8


def _dtype(whole: Any) -> torch.dtype | None:
    """The dtype of a tensor; of an array int8 or uint8, and None for others."""
    if isinstance(whole, Tensor):
        return whole.dtype
    return {np.dtype(np.int8): torch.int8, np.dtype(np.uint8): torch.uint8}.get(whole.dtype)


def _release(whole: Any, low: int, high: int) -> None:
    """Free the memory of mapped rows after reading; the system reads them from the file again when needed."""
    owner = whole
    while isinstance(owner, np.ndarray) and not isinstance(owner, np.memmap):
        owner = owner.base
    # Changes to a map in mode "c" exist in memory only.
    if not isinstance(owner, np.memmap) or owner.mode == "c" or not whole.flags.c_contiguous:
        return
    mapped: Any = getattr(owner, "_mmap", None)
    if not isinstance(mapped, mmap.mmap) or not hasattr(mmap, "MADV_DONTNEED"):
        return
    first = whole.__array_interface__["data"][0] - np.frombuffer(mapped, np.uint8).__array_interface__["data"][0]
    begin, end = first + low * whole.strides[0], first + min(high, len(whole)) * whole.strides[0]
    begin = max(0, begin - begin % mmap.PAGESIZE - _READAHEAD)
    if end > begin:
        mapped.madvise(mmap.MADV_DONTNEED, begin, end - begin)
