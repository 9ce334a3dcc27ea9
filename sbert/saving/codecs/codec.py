"""What a codec is: how the modules of one class are read from a folder and written to one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

# The caller's arguments for transformers, by the names that folders have for them.
Arguments = Mapping[str, dict[str, Any]]


class ReadOptions(NamedTuple):
    """What readers need in addition to the folder.

    Args:
        dtype: Dtype of the weights. Default: float32.
        resolve: Returns the folder of a model by its name; an adapter's files name their base model.
        arguments: The caller's arguments for transformers, by the names that folders have for them.
        keep_half: Whether the weights of a transformer stay in half precision where the file has them so, unless there
            is a dtype.
        multi_vector: Whether the settings of a transformer may say how queries and documents are read.
    """

    dtype: torch.dtype | None
    resolve: Callable[[str], Path]
    arguments: Arguments
    keep_half: bool = False
    multi_vector: bool = False


class Codec(NamedTuple):
    """How the modules of one class are read from a folder and written to one.

    Args:
        read: Called with the module's folder and the options; returns the module.
        write: Called with the module, its empty folder and the dimension of the input of each module of the encoder.
    """

    read: Callable[[Path, ReadOptions], nn.Module]
    write: Callable[[Any, Path, Mapping[nn.Module, int]], None]


def write_weights(weights: dict[str, Tensor], folder: Path) -> None:
    """Write tensors to ``model.safetensors``."""
    from safetensors.torch import save_file

    copies = {name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}
    save_file(copies, folder / "model.safetensors", metadata={"format": "pt"})
