"""Detect whether other programs would compute different vectors from a model folder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from torch import nn

from sbert.modules import Dense, Dropout, Normalize, Pooling, Transformer
from sbert.modules.registry import REGISTERED, is_built_in
from sbert.saving.format import POOLING_KEYS

_MODES = set(POOLING_KEYS.values())
# What text-embeddings-inference and llama.cpp support. With Dropout, the former leaves out every Dense.
_POOLINGS, _ACTIVATIONS = (("cls",), ("mean",), ("lasttoken",)), ("Tanh", "Identity")
_SUPPORTED = (Transformer, Pooling, Dense, Normalize)


def differences(modules: Sequence[nn.Module]) -> str | None:
    """Which parts of an encoder other programs ignore or refuse; None if there are none.

    According to the sources of text-embeddings-inference and of llama.cpp's ``convert_hf_to_gguf.py``. Both only read
    encoders that begin with a transformer, so others are not checked.
    """
    kinds = [type(module) for module in modules]
    modes = [mode for module in modules if isinstance(module, Pooling) for mode in module.modes]
    custom = [kind for kind in kinds if not is_built_in(kind)]
    if names := [*(kind.__name__ for kind in custom), *(mode for mode in modes if mode not in _MODES)]:
        reason = f"{_join(names)} is known to sbert alone, and no other library loads this model"
        unregistered = [kind.__name__ for kind in custom if REGISTERED.get(kind.__name__) is not kind]
        remedy = f"; put @register_module before the class {_join(unregistered)}, so that sbert loads it"
        return reason + remedy * bool(unregistered)
    parts = [part for module in modules for part in _list_unsupported(module, Dense in kinds)]
    if kinds[0] is not Transformer or not (parts or Dense in kinds):
        return None
    if not parts:
        return "llama.cpp leaves out Dense"
    return f"text-embeddings-inference and llama.cpp do not support {_join(parts)}" + ", Dense" * (Dense in kinds)


def _list_unsupported(module: Any, has_dense: bool) -> Iterator[str]:
    """What both programs do not support of a module."""
    kind = type(module)
    if kind not in _SUPPORTED and (kind is not Dropout or has_dense):
        yield kind.__name__
    elif kind is Pooling:
        if module.modes not in _POOLINGS:
            yield f"the pooling {' + '.join(module.modes)}"
        if not module.include_prompt:
            yield "include_prompt=False"
    elif kind is Dense:
        if module.activation not in _ACTIVATIONS:
            yield f"the activation {module.activation}"
        if module.use_residual:
            yield "the residual of Dense"
    elif kind is Transformer and module.lower_case:
        yield "lower_case=True"


def _join(names: Sequence[str]) -> str:
    return ", ".join(dict.fromkeys(names))
