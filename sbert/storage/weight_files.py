"""Weights and vocabularies of model folders: the sizes that a file declares are checked before memory is allocated."""

from __future__ import annotations

import json
import re
import threading
import warnings
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from math import prod
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules import module as registration

from sbert.storage.files import UnreadableError, check_file, inside, read_object, reading

WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
_FLOATS = {"F64", "F32", "F16", "BF16", "torch.float64", "torch.float32", "torch.float16", "torch.bfloat16"}
_HALF = {"BF16": torch.bfloat16, "F16": torch.float16}
_HALF |= {str(dtype): dtype for dtype in _HALF.values()}
# Position and mask tables that old versions of transformers saved with the weights.
_TABLES = re.compile(r"(^|\.)(position_ids|token_type_ids|inv_freq|num_batches_tracked|att(entio)?n\.(masked_)?bias)$")
# What a model may have beyond the weights in its file (a pooler, a head, position tables): elements, and parameters and
# modules together.
_MORE_NUMBERS, _MORE_PARTS = 1 << 24, 9000
# Of a file of ``torch.save``: maximum bytes of its pickle, which has about 200 per tensor; and of tensors per byte of
# the file, since tensors may share memory: the embeddings of T5 have four names.
_PICKLE, _SHARED = 2_000_000, 8
# Largest id of a token: copying a tokenizer takes time proportional to it.
_LAST_ID, _LARGE_ID = 10_000_000, re.compile(rb":\s*[1-9]\d{7}")


class Declared(NamedTuple):
    """The dtype and the shape of a tensor in a file."""

    dtype: str
    shape: tuple[int, ...]


class WeightsHeader(NamedTuple):
    """The tensors that a weights file declares.

    Args:
        path: The file; for several files, their index.
        tensors: Dtypes and shapes by tensor name.
    """

    path: Path
    tensors: dict[str, Declared]

    def check_dtypes(self, integers: Iterable[str] = ()) -> None:
        """Raise a ValueError for weights that are not floating-point numbers.

        Args:
            integers: Names of tensors that may be integers.
        """
        for name, tensor in self.tensors.items():
            if tensor.dtype not in _FLOATS and name not in integers and not _TABLES.search(name):
                reason = f"contains {name} as {tensor.dtype}, where floating-point numbers are expected"
                raise UnreadableError(self.path, reason, "use a copy of the model with floating-point weights")


def half_precision_of(folder: Path) -> torch.dtype | None:
    """bfloat16 or float16, if all weights in a folder have this dtype."""
    dtypes = {tensor.dtype for name, tensor in read_header(folder).tensors.items() if not _TABLES.search(name)}
    return _HALF.get(dtypes.pop()) if len(dtypes) == 1 else None


def weights_file(folder: Path, names: Sequence[str] = WEIGHTS) -> Path:
    """The file with the weights of a folder, or the index of several such files."""
    for name in names:
        if (folder / name).exists():
            return folder / name
    single = [name for name in names if not name.endswith(".json")]
    raise UnreadableError(folder, f"contains neither {' nor '.join(single)}")


def read_header(folder: Path, names: Sequence[str] = WEIGHTS) -> WeightsHeader:
    """Read the header of the weights of a folder.

    Args:
        folder: The folder of the weights.
        names: Possible file names, in order of preference.

    Raises:
        ValueError: If there are no weights, or a file is damaged; the message names it.
    """
    path = weights_file(folder, names)
    if path.suffix != ".json":
        return WeightsHeader(path, _read_declared(path))
    tensors: dict[str, Declared] = {}
    for shard in sorted({str(shard) for shard in read_object(path).field("weight_map", dict, {}).values()}):
        tensors.update(_read_declared(inside(folder, shard, path)))
    return WeightsHeader(path, tensors)


def _read_declared(path: Path) -> dict[str, Declared]:
    from safetensors import safe_open

    with reading(path, "safetensors weights" if path.suffix == ".safetensors" else "weights"):
        check_file(path)
        if path.suffix != ".safetensors":
            return _read_pickled(path)
        with safe_open(path, "pt") as file:
            slices = ((name, file.get_slice(name)) for name in file.keys())  # noqa: SIM118 (it is no dict)
            return {name: Declared(part.get_dtype(), tuple(part.get_shape())) for name, part in slices}


def _read_pickled(path: Path) -> dict[str, Declared]:
    """The tensors of a file of ``torch.save``, which runs no code and, on the device "meta", copies no data."""
    size = path.stat().st_size
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            parts = archive.infolist()
            pickles = [part for part in parts if part.filename.endswith(".pkl")]
            if sum(part.file_size for part in parts) > size or any(part.file_size > _PICKLE for part in pickles):
                raise ValueError("its parts are larger than those of weights, or compressed")
            # The one function that torch lets a pickle call for any amount of memory.
            if any(b"bytearray" in archive.read(part) for part in pickles):
                raise ValueError("it contains something other than named tensors")
    tensors = torch.load(path, map_location="meta", weights_only=True)
    if not isinstance(tensors, dict) or not all(isinstance(tensor, Tensor) for tensor in tensors.values()):
        raise ValueError("it contains something other than named tensors")
    storages = {tensor.untyped_storage()._cdata: tensor.untyped_storage().nbytes() for tensor in tensors.values()}
    total = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    if sum(storages.values()) > size or total > _SHARED * size:
        raise ValueError(f"it declares tensors of {total} bytes, but the file has {size} bytes")
    return {str(name): Declared(str(tensor.dtype), tuple(tensor.shape)) for name, tensor in tensors.items()}


def read_weights(header: WeightsHeader, integers: Iterable[str] = ()) -> dict[str, Tensor]:
    """The tensors of the file of a header: safetensors, or else a pickle whose code is not run.

    Args:
        header: Header of the file.
        integers: Names of tensors that may be integers.
    """
    from safetensors.torch import load_file

    header.check_dtypes(integers)
    with reading(header.path, "weights"):
        if header.path.suffix == ".safetensors":
            return dict(load_file(header.path))
        return dict(torch.load(header.path, map_location="cpu", weights_only=True))


@contextmanager
def within(header: WeightsHeader, source: Path) -> Iterator[None]:
    """Stop the construction of modules if they have far more weights than a file contains.

    Parameters and buffers of any class are counted when they are registered: before they are filled and, on the device
    "meta", before memory is allocated.

    Args:
        header: Header of the weights file.
        source: The file that describes the modules, for errors.

    Raises:
        ValueError: If there are far more weights than in the file.
    """
    here, tensors = threading.get_ident(), len(header.tensors)
    numbers = sum(map(prod, map(attrgetter("shape"), header.tensors.values())))
    limits = {"parts": 20 * tensors + _MORE_PARTS, **dict.fromkeys(("real", "meta"), 2 * numbers + _MORE_NUMBERS)}
    counts, seen = dict.fromkeys(limits, 0), set[int]()  # Tied weights are registered several times, but count once.

    def count(_module: nn.Module, _name: str, part: nn.Module | Tensor | None) -> None:
        if part is None or threading.get_ident() != here or id(part) in seen:
            return
        seen.add(id(part))
        counts["parts"] += 1
        if isinstance(part, Tensor):
            counts["meta" if part.is_meta else "real"] += part.numel()
        if any(counts[kind] > limits[kind] for kind in limits):
            weights = f"{tensors} weights with {numbers} elements"
            raise UnreadableError(source, f"describes a model far larger than the {weights} in {header.path}")

    with (
        registration.register_module_parameter_registration_hook(count),
        registration.register_module_buffer_registration_hook(count),
        registration.register_module_module_registration_hook(count),
    ):
        yield


def warn_of_unused(path: Path, unused: Iterable[str], model: nn.Module | None = None, prefix: str = "") -> None:
    """Warn once about weights in a file that the model does not use, except heads for other tasks.

    Args:
        path: The file.
        unused: Names of the unused weights.
        model: A transformer: weights of parts that it does not have are those of a head for another task.
        prefix: Name of this model inside a model with a head.
    """
    parts = None if model is None else {name for name, _ in model.named_children()}
    names = sorted(
        name
        for name in unused
        if parts is None or (name.removeprefix(f"{prefix}.").split(".")[0] in parts and not _TABLES.search(name))
    )
    if names:
        more = "" if len(names) <= 3 else f" and {len(names) - 3} more"
        warnings.warn(
            f"{path} contains weights that the model does not use: {', '.join(names[:3])}{more};"
            " check that config.json is the one they were saved with",
            stacklevel=2,
        )


def check_ids(path: Path, content: bytes | None = None) -> None:
    """Raise a ValueError if the id of a token is larger than any vocabulary needs.

    Args:
        path: A tokenizer.json or a vocab.json.
        content: The content of the file, if it has been read before.
    """
    with reading(path, "JSON"):
        if content is None:
            check_file(path)
            content = path.read_bytes()
        if not _LARGE_ID.search(content):  # Ten times faster than parsing.
            return
        value = json.loads(content)
        vocabulary = value["model"]["vocab"] if path.name == "tokenizer.json" else value
        ids = vocabulary.items() if isinstance(vocabulary, dict) else ()
        token, last = max(ids, key=lambda item: item[1], default=("", 0))
        if last > _LAST_ID:
            reason = f"gives the token {token!r:.40} the id {last}, where at most {_LAST_ID} is expected"
            raise UnreadableError(path, reason)
