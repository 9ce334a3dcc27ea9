"""What a codec is, and how codecs read and write dimensions and weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from sbert.storage.files import JsonObject, read_object, reading, write_json
from sbert.storage.weight_files import WEIGHTS, Header, read_header, read_weights, within


@dataclass(frozen=True)
class ReadOptions:
    """What readers need in addition to the folder.

    Args:
        dtype: Dtype of the weights. Default: float32.
        resolve: Returns the folder of a model by its name; an adapter's files name their base model.
        arguments: The caller's arguments for transformers, by the names that folders have for them.
    """

    dtype: torch.dtype | None
    resolve: Callable[[str], Path]
    arguments: Mapping[str, dict[str, Any]] = field(default_factory=dict)


class Codec(NamedTuple):
    """How the modules of one class are read from a folder and written to one.

    Args:
        read: Called with the module's folder and the options; returns the module.
        write: Called with the module, its empty folder and the dimension of the module's input.
    """

    read: Callable[[Path, ReadOptions], nn.Module]
    write: Callable[[Any, Path, int], None]


def with_weights(folder: Path, path: Path, kind: type[nn.Module], arguments: dict[str, Any]) -> nn.Module:
    """Construct a module and load its weights, which must match exactly.

    Args:
        folder: The folder of the weights.
        path: The file that gives the arguments, for errors.
        kind: The class of the module.
        arguments: Arguments of ``kind``.
    """
    has_weights = any((folder / file).exists() for file in WEIGHTS)
    header = read_header(folder) if has_weights else Header(folder, {})
    with reading(path, f"the arguments of {kind.__name__}"), within(header, path):
        module = kind(**arguments)
    state = module.state_dict()
    if state:
        weights = read_weights(folder, integers=[key for key, value in state.items() if not value.is_floating_point()])
        with reading(header.path, f"the weights of {kind.__name__}"):
            module.load_state_dict(weights)
    return module


def configured(
    kind: type[nn.Module],
    arguments: Callable[[JsonObject], dict[str, Any]],
    settings: Callable[[Any, int], dict[str, Any]],
    file: str = "config.json",
) -> Codec:
    """The codec of a class whose folders hold a file of settings and, if there are any, weights.

    Args:
        kind: The class.
        arguments: Arguments of ``kind`` from the settings.
        settings: Settings from a module and the dimension of its input.
        file: Name of the file.
    """

    def read(folder: Path, _: ReadOptions) -> nn.Module:
        config = read_object(folder / file)
        return with_weights(folder, config.path, kind, arguments(config))

    def write(module: nn.Module, folder: Path, input_dim: int) -> None:
        write_json(folder / file, settings(module, input_dim))
        if state := module.state_dict():
            write_weights(state, folder)

    return Codec(read, write)


def write_weights(weights: dict[str, Tensor], folder: Path) -> None:
    """Write tensors to ``model.safetensors``."""
    from safetensors.torch import save_file

    copies = {name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}
    save_file(copies, folder / "model.safetensors", metadata={"format": "pt"})
