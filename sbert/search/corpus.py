"""The corpus of a search: floats or codes, in memory or in a file, read block by block."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from typing import Any, overload

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
# On a CPU the first block is smaller: without hits there is no limit for the prefilter, and all its rows are compared
# exactly.
_FIRST_ROWS = 1024
# The number of rows in a block is a multiple of this, except in the last one.
ALIGNED = 64
# Bytes around a page that some systems map when the page is read.
_READAHEAD = 4 << 20


class Corpus:
    """Blocks of vectors, checked and converted to floats, and the queries that they are compared with.

    Args:
        given: Array, tensor, the path of a ``.npy`` file, or an iterator over these.
        queries: (queries, dim) floats; or codes of the same kind as those of the corpus.
        precision: ``"float32"``, ``"int8"``, ``"binary"`` or ``"ubinary"``; None to derive it from dtype and dimension.
        ranges: Ranges of int8 codes.
        ranges_optional: Whether ``ranges`` are allowed if the corpus is not int8; they may belong to ``rescore``.
        name: Name of the caller's argument, for messages.
    """

    def __init__(
        self,
        given: Any,
        queries: Any,
        precision: str | None = None,
        ranges: Any = None,
        *,
        ranges_optional: bool = False,
        name: str = "corpus",
    ) -> None:
        asked = tensor_of(matrix("queries", queries)).detach()
        self.device: torch.device = next(
            (each.device for each in (given, asked) if isinstance(each, Tensor) and computes_exactly(each.device)),
            torch.device("cpu"),
        )
        self.count: int = 0  # Rows that were read.
        self._queries = asked.to(self.device)
        self._coded = asked.dtype in (torch.int8, torch.uint8)
        self._dim = asked.shape[1]
        self._blocks = given if isinstance(given, Iterator) else iter([given])
        self._precision, self._known = precision, "float32"
        self._ranges = None if ranges is None else check_ranges(ranges, self._dim)
        self._ranges_optional, self._name = ranges_optional, name

    def __iter__(self) -> Iterator[tuple[int, Tensor]]:
        """The index of the first row of each block, and its rows as floats, (rows, dim)."""
        for given in self._blocks:
            whole = opened(self._name, given)
            self._known = self._precision or self._recognized(whole)
            self._check(whole)
            low = 0
            while low < len(whole):
                high = block_end(low, self._step(self.count + low), len(whole))
                yield self.count + low, self._floats(whole[low:high])
                _release(whole, low, high)
                low = high
            self.count += len(whole)

    @property
    def queries(self) -> Tensor:
        """The queries as floats; codes can be decoded only once a block was read."""
        if self._coded:
            return dequantize(self._queries, self._known, self._ranges)
        return as_floats(self._queries)

    def _step(self, seen: int) -> int:
        """The number of rows in the block after the first ``seen`` rows."""
        if self.device.type == "cpu":
            rows = min(_VALUES // self._dim, _ROWS, max(_FIRST_ROWS, 4 * seen))
        else:
            rows = min(_VALUES_ON_GPU // self._dim, _ROWS_ON_GPU)
        return max(ALIGNED, rows // ALIGNED * ALIGNED)

    def _recognized(self, whole: np.ndarray | Tensor) -> str:
        """The precision of a block by its dtype and its dimension."""
        if is_int8(whole):
            if self._coded:
                raise ValueError("int8 codes may be int8 or binary; pass precision='int8' or precision='binary'")
            return "int8" if whole.shape[1] == self._dim else "binary"
        if whole.dtype in (np.uint8, torch.uint8):
            return "ubinary"
        if self._coded:
            raise ValueError("the queries are codes, and the corpus is not; pass float queries, or quantize the corpus")
        return "float32"

    def _check(self, whole: np.ndarray | Tensor) -> None:
        """Raise a ValueError if a block does not fit the queries or the ranges."""
        known = self._known
        if self._ranges is not None and known != "int8" and not self._ranges_optional:
            raise ValueError(f"ranges belong to int8, and the corpus is {known}; remove ranges")
        expected = -(-self._dim // 8) if known.endswith("binary") and not self._coded else self._dim
        if whole.shape[1] != expected:
            fits = f"of dim {self._dim}" if known == "float32" else f"{known} codes of {expected} bytes"
            raise ValueError(
                f"{self._name} has shape {tuple(whole.shape)}, and the queries are {fits}; encode both with the same"
                " model and truncate_dim"
            )

    def _floats(self, block: np.ndarray | Tensor) -> Tensor:
        """The rows as float32 or float64 on the device of the comparison. Shape: (rows, dim)."""
        tensor = tensor_of(block).detach().to(self.device)
        if self._known == "float32":
            return as_floats(tensor)
        return dequantize(tensor, self._known, self._ranges, None if self._coded else self._dim)


def as_floats(tensor: Tensor) -> Tensor:
    """The tensor as float32 or, if it has this dtype, float64."""
    return tensor if tensor.dtype == torch.float64 else tensor.float()


def block_end(start: int, rows: int, total: int) -> int:
    """The end of a block of up to ``rows`` rows; its size is a multiple of ``ALIGNED``, or smaller than that."""
    size = min(rows, total - start)
    return start + (size - size % ALIGNED if size > ALIGNED else size)


@overload
def opened(name: str, given: str | os.PathLike[str]) -> np.ndarray: ...
@overload
def opened(name: str, given: Any) -> np.ndarray | Tensor: ...
def opened(name: str, given: Any) -> np.ndarray | Tensor:
    """An array or a tensor with two dimensions; a file is mapped into memory.

    Args:
        name: Name of the caller's argument, for messages.
        given: Array, tensor, list of vectors, or the path of a ``.npy`` file.

    Raises:
        FileNotFoundError: If the file does not exist.
        TypeError: If it is not an array of numbers.
        ValueError: If it has another shape, or the file cannot be read.
    """
    return matrix(name, _mapped(name, os.fspath(given)) if isinstance(given, (str, os.PathLike)) else given)


def _mapped(name: str, path: str) -> np.ndarray:
    """The array in a file, mapped, or an error that says what is wrong with the file."""
    try:
        mapped = np.load(path, mmap_mode="r")
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


def in_memory(name: str, given: Any) -> Tensor:
    """Vectors in memory as float32 or float64, on a device that has float64."""
    tensor = vectors_of(name, given).detach()
    return tensor if computes_exactly(tensor.device) else tensor.cpu()


def computes_exactly(device: torch.device) -> bool:
    """Whether a device is an accelerator with float64, which exact scores are computed in."""
    if device.type == "xpu":
        return bool(torch.xpu.get_device_properties(device).has_fp64)
    return device.type not in ("cpu", "mps")


def is_int8(whole: np.ndarray | Tensor) -> bool:
    """Whether an array or a tensor has the dtype int8."""
    return whole.dtype in (np.int8, torch.int8)


def _release(whole: np.ndarray | Tensor, low: int, high: int) -> None:
    """Free the memory of mapped rows after reading; the system reads them from the file again when needed."""
    owner: Any = whole
    while isinstance(owner, np.ndarray) and not isinstance(owner, np.memmap):
        owner = owner.base
    # Changes to a map in mode "c" exist in memory only.
    if not isinstance(owner, np.memmap) or owner.mode == "c" or not isinstance(whole, np.ndarray):
        return
    mapped: Any = getattr(owner, "_mmap", None)
    if not whole.flags.c_contiguous or not isinstance(mapped, mmap.mmap) or not hasattr(mmap, "MADV_DONTNEED"):
        return
    first = whole.ctypes.data - np.frombuffer(mapped, np.uint8).ctypes.data
    begin, end = first + low * whole.strides[0], first + high * whole.strides[0]
    begin = max(0, begin - begin % mmap.PAGESIZE - _READAHEAD)
    if end > begin:
        mapped.madvise(mmap.MADV_DONTNEED, begin, end - begin)
