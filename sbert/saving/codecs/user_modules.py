"""Codec of modules that users define: the arguments in the attribute ``config``, and the weights."""

from __future__ import annotations

import inspect
from pathlib import Path

from torch import nn

from sbert.modules.registry import check_name
from sbert.saving.codecs.codec import Codec, ReadOptions, with_weights, write_weights
from sbert.storage.files import read_object, write_json


def codec(kind: type[nn.Module]) -> Codec:
    """The codec of a class that a user has defined."""

    def read(folder: Path, _: ReadOptions) -> nn.Module:
        path = folder / "config.json"
        return with_weights(folder, path, kind, **read_object(path))

    return Codec(read, _write)


def _write(module: nn.Module, folder: Path, _: int) -> None:
    kind = type(module)
    check_name(kind)
    parameters = inspect.signature(kind).parameters.values()
    config = getattr(module, "config", {})
    # Arguments with a default are required as well: the module may have been made with another value.
    needed = [p.name for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    lacking = [name for name in needed if name not in config]
    if lacking:
        raise ValueError(
            f"{kind.__name__} cannot be saved without its argument {lacking[0]!r};"
            " give it an attribute `config`, a dict of all the arguments it was made with"
        )
    try:
        write_json(folder / "config.json", config)
    except TypeError as error:
        raise ValueError(
            f"the attribute `config` of {kind.__name__} cannot be written as JSON ({error}); use only str, numbers,"
            " bool, None, lists and dicts"
        ) from error
    if module.state_dict():
        write_weights(module.state_dict(), folder)
