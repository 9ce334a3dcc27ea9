"""Codec of modules that users define: the arguments in the attribute ``config``, and the weights."""

from __future__ import annotations

import inspect
import json
from typing import Any

from torch import nn

from sbert.modules.registry import check_name
from sbert.saving.codecs.codec import Codec, configured


def codec(kind: type[nn.Module]) -> Codec:
    """The codec of a class that a user has defined."""
    return configured(kind, dict, _settings)


def _settings(module: nn.Module, _: int) -> dict[str, Any]:
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
    try:
        json.dumps(config)
    except TypeError as error:
        raise ValueError(
            f"the attribute `config` of {kind.__name__} cannot be written as JSON ({error}); use only str, numbers,"
            " bool, None, lists and dicts"
        ) from error
    return config
