"""Weights in model folders: headers are checked before memory of the declared size is allocated."""

from __future__ import annotations

import re
import threading
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import (
    register_module_buffer_registration_hook,
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)

from sbert.storage import pickle_files as pickled
from sbert.storage.files import UnreadableError, check_file, inside, read_object, reading

WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
_HEADER = 10_000_000  # Maximum bytes of a safetensors header; those of the largest models have about 1 MB.
_FLOATS = {"F64", "F32", "F16", "BF16"}
# Position and mask tables that old versions of transformers saved with the weights.
_TABLES = re.compile(r"(^|\.)(position_ids|token_type_ids|inv_freq|num_batches_tracked|att(entio)?n\.(masked_)?bias)$")
# What a model may have beyond the weights in its file (a pooler, a head, position tables): elements and modules.
_MORE_NUMBERS, _MORE_PARTS = 1 << 24, 1000


@dataclass(frozen=True)
class Header:
    """The tensors that a weights file declares.

    Args:
        path: The file; for several files, their index.
        tensors: Dtypes and shapes by tensor name.
    """

    path: Path
    tensors: dict[str, pickled.Tensor]

    @property
    def numbers(self) -> int:
        """Number of elements of all tensors together."""
        return sum(prod(tensor.shape) for tensor in self.tensors.values())

    def check_dtypes(self, integers: Iterable[str] = ()) -> None:
        """Raise a ValueError for weights that are not floating-point numbers.

        Args:
            integers: Names of tensors that may be integers.
        """
        for name, tensor in self.tensors.items():
            if tensor.dtype not in _FLOATS and name not in integers and not _TABLES.search(name):
                reason = f"contains {name} as {tensor.dtype}, where {', '.join(sorted(_FLOATS))} is expected"
                raise UnreadableError(self.path, reason, "use a copy of the model with floating-point weights")


def weights_file(folder: Path, names: Sequence[str] = WEIGHTS) -> Path:
    """The file with the weights of a folder, or the index of several such files."""
    for name in names:
        if (folder / name).exists():
            return folder / name
    single = [name for name in names if not name.endswith(".json")]
    raise UnreadableError(folder, f"contains neither {' nor '.join(single)}")


def read_header(folder: Path, names: Sequence[str] = WEIGHTS) -> Header:
    """Read the header of the weights of a folder.

    Args:
        folder: The folder of the weights.
        names: Possible file names, in order of preference.

    Raises:
        ValueError: If there are no weights, or a file is damaged; the message names it.
    """
    path = weights_file(folder, names)
    if path.suffix != ".json":
        return Header(path, _declared(path))
    tensors: dict[str, pickled.Tensor] = {}
    for shard in sorted({str(shard) for shard in read_object(path).field("weight_map", dict, {}).values()}):
        tensors.update(_declared(inside(folder, shard, path)))
    return Header(path, tensors)


def _declared(path: Path) -> dict[str, pickled.Tensor]:
    with reading(path, "safetensors weights" if path.suffix == ".safetensors" else "weights"):
        check_file(path)
        if path.suffix != ".safetensors":
            return pickled.declared(path)
        from safetensors import safe_open

        with path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
        if size > _HEADER:
            raise UnreadableError(path, f"begins with a header of {size} bytes, where at most {_HEADER} are expected")
        with safe_open(path, "pt") as file:
            slices = ((name, file.get_slice(name)) for name in file.keys())  # noqa: SIM118 (it is no dict)
            return {name: pickled.Tensor(part.get_dtype(), tuple(part.get_shape())) for name, part in slices}


def read_weights(folder: Path, integers: Iterable[str] = ()) -> dict[str, torch.Tensor]:
    """The tensors of ``model.safetensors``, or else of ``pytorch_model.bin`` (without running its code).

    Args:
        folder: The folder of the weights.
        integers: Names of tensors that may be integers.
    """
    from safetensors.torch import load_file

    header = read_header(folder)
    header.check_dtypes(integers)
    with reading(header.path, "weights"):
        if header.path.suffix == ".safetensors":
            return dict(load_file(header.path))
        return dict(torch.load(header.path, map_location="cpu", weights_only=True))


@contextmanager
def within(header: Header, source: Path) -> Iterator[None]:
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
    limits = {
        "elements": 2 * header.numbers + _MORE_NUMBERS,
        "tensors": 4 * tensors + _MORE_PARTS,
        "modules": 16 * tensors + 8 * _MORE_PARTS,
    }
    counted: Counter[tuple[str, str, bool]] = Counter()
    seen: set[int] = set()  # Tied weights are registered several times, but count once.

    def add(what: str, kind: str, meta: bool, count: int) -> None:
        counted[what, kind, meta] += count
        if counted[what, kind, meta] > limits[what]:
            weights = f"{tensors} weights with {header.numbers} elements"
            raise UnreadableError(source, f"describes a model far larger than the {weights} in {header.path}")

    def count(kind: str, tensor: torch.Tensor | None) -> None:
        if tensor is not None and threading.get_ident() == here and id(tensor) not in seen:
            seen.add(id(tensor))
            add("elements", kind, tensor.is_meta, tensor.numel())
            add("tensors", kind, tensor.is_meta, 1)

    def count_module() -> None:
        if threading.get_ident() == here:
            add("modules", "", False, 1)

    hooks: list[Any] = [
        register_module_parameter_registration_hook(lambda _module, _name, tensor: count("parameters", tensor)),
        register_module_buffer_registration_hook(lambda _module, _name, tensor: count("buffers", tensor)),
        register_module_module_registration_hook(lambda _module, _name, _part: count_module()),
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


# Names that transformers gives the heads for pretraining and for tasks.
_HEADS = set(
    "cls classifier decoder discriminator_predictions embed_out entity_predictions generator_lm_head"
    " generator_predictions head lm_head lm_loss lm_predictions logit_scale logits_proj mask_predictions pooler"
    " pre_classifier pred_layer predictions qa_outputs score seq_relationship sequence_summary sop_classifier"
    " vocab_layer_norm vocab_projector vocab_transform".split()
)


def warn_of_unused(header: Header, unused: Iterable[str], model: nn.Module, prefix: str = "") -> None:
    """Warn once about weights in a file that the model does not use, except heads for other tasks.

    Args:
        header: Header of the weights file.
        unused: Names of the unused weights.
        model: The model that was read.
        prefix: Name of this model inside a model with a head.
    """
    parts = {name for name, _ in model.named_children()}
    headed = prefix not in parts and any(name.startswith(f"{prefix}.") for name in header.tensors)

    def known(name: str) -> bool:
        if headed and not name.startswith(f"{prefix}."):
            return True  # The file is of a model with a head, and the head is not needed.
        first = name.removeprefix(f"{prefix}.").partition(".")[0]
        return bool(_TABLES.search(name)) or (first in _HEADS and first not in parts)

    names = sorted(name for name in unused if not known(name))
    if names:
        more = "" if len(names) <= 3 else f" and {len(names) - 3} more"
        warnings.warn(
            f"{header.path} contains weights that the model does not use: {', '.join(names[:3])}{more};"
            " check that config.json is the one they were saved with",
            stacklevel=2,
        )
