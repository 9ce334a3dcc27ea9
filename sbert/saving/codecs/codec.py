"""What a codec is, and the codec of modules that have settings in a file and perhaps weights."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from sbert.modules.registry import check_name
from sbert.storage.files import JsonObject, read_object, reading, write_json
from sbert.storage.weight_files import WEIGHTS, WeightsHeader, read_header, read_weights, within

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
    """

    dtype: torch.dtype | None
    resolve: Callable[[str], Path]
    arguments: Arguments
    keep_half: bool = False


class Codec(NamedTuple):
    """How the modules of one class are read from a folder and written to one.

    Args:
        read: Called with the module's folder and the options; returns the module.
        write: Called with the module, its empty folder and the dimension of the input of each module of the encoder.
    """

    read: Callable[[Path, ReadOptions], nn.Module]
    write: Callable[[Any, Path, Mapping[nn.Module, int]], None]


def make_codec(
    kind: type[nn.Module],
    arguments: Callable[[JsonObject], dict[str, Any]],
    settings: Callable[[Any, Mapping[nn.Module, int]], dict[str, Any]],
    file: str = "config.json",
) -> Codec:
    """The codec of a class whose folders hold a file of settings and, if there are any, weights.

    Args:
        kind: The class.
        arguments: Arguments of ``kind`` from the settings.
        settings: Settings from a module and the dimension of the input of each module of the encoder.
        file: Name of the file.
    """

    def read(folder: Path, _: ReadOptions) -> nn.Module:
        config = read_object(folder / file)
        return _construct(folder, kind, arguments(config), config.path)

    def write(module: nn.Module, folder: Path, input_dims: Mapping[nn.Module, int]) -> None:
        write_json(folder / file, settings(module, input_dims))
        if state := module.state_dict():
            write_weights(state, folder)

    return Codec(read, write)


def _construct(folder: Path, kind: type[nn.Module], arguments: dict[str, Any], path: Path) -> nn.Module:
    """A module with the weights of a folder, which must match exactly; ``path`` is the file of its arguments."""
    has_weights = any((folder / name).exists() for name in WEIGHTS)
    header = read_header(folder) if has_weights else WeightsHeader(folder, {})
    with reading(path, f"the arguments of {kind.__name__}"), within(header, path):
        module = kind(**arguments)
    state = module.state_dict()
    if state:
        header = header if has_weights else read_header(folder)  # The error says which files are expected.
        weights = read_weights(header, [name for name, value in state.items() if not value.is_floating_point()])
        with reading(header.path, f"the weights of {kind.__name__}"):
            module.load_state_dict(weights)
    return module


def user_settings(module: nn.Module, _: object) -> dict[str, Any]:
    """The settings of a module of a class that a user has defined: its arguments, in the attribute ``config``."""
    kind = type(module)
    check_name(kind)
    config: dict[str, Any] = getattr(module, "config", {})
    # Arguments with a default are required as well: the module may have been made with another value.
    for parameter in inspect.signature(kind).parameters.values():
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD) and parameter.name not in config:
            raise ValueError(
                f"{kind.__name__} cannot be saved without its argument {parameter.name!r};"
                " give it an attribute `config`, a dict of all the arguments it was made with"
            )
    return config


def write_weights(weights: dict[str, Tensor], folder: Path) -> None:
    """Write tensors to ``model.safetensors``."""
    from safetensors.torch import save_file

    copies = {name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}
    save_file(copies, folder / "model.safetensors", metadata={"format": "pt"})
