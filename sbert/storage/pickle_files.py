"""Read the names, dtypes and shapes of the weights in a ``pytorch_model.bin`` from its pickle, without running code."""

from __future__ import annotations

import io
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, NamedTuple

# For each storage class of torch: its dtype by the safetensors name, and the bytes per element.
_STORAGES = {
    "DoubleStorage": ("F64", 8),
    "FloatStorage": ("F32", 4),
    "HalfStorage": ("F16", 2),
    "BFloat16Storage": ("BF16", 2),
    "LongStorage": ("I64", 8),
    "IntStorage": ("I32", 4),
    "ShortStorage": ("I16", 2),
    "CharStorage": ("I8", 1),
    "ByteStorage": ("U8", 1),
    "BoolStorage": ("BOOL", 1),
    "ComplexFloatStorage": ("C64", 8),
    "ComplexDoubleStorage": ("C128", 16),
}
# The pickle instructions that torch.save writes for dicts of tensors. Others could allocate any amount of memory.
_INSTRUCTIONS = (
    "PROTO STOP GLOBAL REDUCE NEWOBJ BUILD MARK NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 BINFLOAT BINUNICODE"
    " SHORT_BINSTRING EMPTY_TUPLE EMPTY_LIST EMPTY_DICT TUPLE TUPLE1 TUPLE2 TUPLE3 APPEND APPENDS SETITEM SETITEMS"
    " BINGET LONG_BINGET BINPUT LONG_BINPUT BINPERSID"
).split()
_PICKLE = 2_000_000  # Maximum bytes of the pickle. It contains only names and sizes, about 200 bytes per tensor.
# Maximum number of tensors per storage, on average: the embeddings of T5 have four names. More would exhaust memory.
_SHARED = 8


class Tensor(NamedTuple):
    """A tensor declared by a file: its dtype, by the safetensors name, and its shape."""

    dtype: str
    shape: tuple[int, ...]


class _Storage(NamedTuple):
    kind: str
    key: str
    numbers: int


def _tensor(storage: _Storage, offset: int, shape: tuple[int, ...], *_: Any) -> Tensor:
    if len(shape) > 64 or min(shape, default=0) < 0 or offset < 0 or offset + prod(shape) > storage.numbers:
        raise ValueError(f"a tensor of shape {shape!r:.100} in a storage of {storage.numbers} elements")
    return Tensor(_STORAGES[storage.kind][0], tuple(shape))


def _parameter(tensor: Tensor, *_: Any) -> Tensor:
    return tensor


_NAMES: dict[tuple[str, str], Callable[..., Any]] = {
    ("collections", "OrderedDict"): OrderedDict,
    ("torch._utils", "_rebuild_tensor_v2"): _tensor,
    ("torch._utils", "_rebuild_parameter"): _parameter,
}


class _Unpickler(pickle._Unpickler):
    """Reads a pickle with a fixed set of instructions and names, so that it cannot run code."""

    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = {
        code: pickle._Unpickler.dispatch[code]
        for code in (getattr(pickle, instruction)[0] for instruction in _INSTRUCTIONS)
    }

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(file)
        self.storages: dict[str, int] = {}

    def find_class(self, module: str, name: str) -> Any:
        if module == "torch" and name in _STORAGES:
            return name
        if (module, name) not in _NAMES:
            raise ValueError(f"it refers to {module}.{name}, which floating-point weights never contain")
        return _NAMES[module, name]

    def persistent_load(self, saved: Any) -> _Storage:
        _, kind, key, _, numbers, *_ = saved
        self.storages[str(key)] = numbers * _STORAGES[kind][1]
        return _Storage(kind, str(key), numbers)


def declared(path: Path) -> dict[str, Tensor]:
    """The tensors that a file of ``torch.save`` declares, by name.

    Raises:
        ValueError: If it contains anything but named tensors, or declares more data than the file has.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        if file.read(4) == b"PK\x03\x04":
            unpickler = _Unpickler(io.BytesIO(_record(path, size)))
        else:  # The format before torch 1.6: three pickles of metadata, then the pickle of the tensors.
            file.seek(0)
            stream = io.BytesIO(file.read(_PICKLE))
            for _ in range(3):
                _Unpickler(stream).load()
            unpickler = _Unpickler(stream)
    value = unpickler.load()
    if not isinstance(value, dict) or not all(isinstance(x, Tensor) for x in value.values()):
        raise ValueError("it contains something other than named tensors")
    itemsizes = dict(_STORAGES.values())
    total = sum(prod(tensor.shape) * itemsizes[tensor.dtype] for tensor in value.values())
    if sum(unpickler.storages.values()) > size or total > _SHARED * size:
        raise ValueError(f"it declares tensors of {total} bytes, but the file has {size} bytes")
    return {str(name): tensor for name, tensor in value.items()}


def _record(path: Path, size: int) -> bytes:
    """The pickle in an uncompressed zip file."""
    with zipfile.ZipFile(path) as archive:
        parts = archive.infolist()
        if any(part.file_size != part.compress_size for part in parts) or sum(p.file_size for p in parts) > size:
            raise ValueError("its parts are compressed, which torch.save never does")
        pickles = [part for part in parts if part.filename.endswith("data.pkl")]
        if len(pickles) != 1 or pickles[0].file_size > _PICKLE:
            raise ValueError(f"it contains {len(pickles)} pickles, where one of at most {_PICKLE} bytes is expected")
        return archive.read(pickles[0])
