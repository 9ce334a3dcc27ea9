"""How each module is written to a folder and read from one: one codec per class, in one table."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from sbert.modules.registry import REGISTERED
from sbert.saving.codecs import layers, transformer, word_embeddings
from sbert.saving.codecs.codec import Arguments, Codec, ReadOptions, make_codec, user_settings
from sbert.saving.format import OURS, THEIRS
from sbert.storage.files import UnreadableError

__all__ = ["Arguments", "Codec", "ReadOptions", "find_class", "find_codec", "type_name"]

_BUILT_IN: dict[type[nn.Module], Codec] = {**transformer.CODECS, **layers.CODECS, **word_embeddings.CODECS}
_BY_NAME = {kind.__name__: kind for kind in _BUILT_IN}


def find_codec(kind: type[nn.Module]) -> Codec:
    """The codec of a class of modules: a built-in one, or one that a user has defined."""
    return _BUILT_IN.get(kind) or make_codec(kind, dict, user_settings)


def type_name(kind: type[nn.Module]) -> str:
    """The name of a class in modules.json."""
    return f"{THEIRS}models.{kind.__name__}" if kind in _BUILT_IN else f"{OURS}{kind.__name__}"


def find_class(name: str, path: Path) -> type[nn.Module]:
    """The class of a name in modules.json.

    Args:
        name: The full name of a class of sentence-transformers or of this library.
        path: The file that contains the name, for errors.

    Raises:
        ValueError: If the class is neither built in nor registered.
    """
    short, is_ours = name.rpartition(".")[2], name.startswith(OURS)
    if is_ours and short in REGISTERED:
        return REGISTERED[short]
    if short in _BY_NAME and (is_ours or name.startswith(THEIRS)):
        return _BY_NAME[short]
    remedy = f"import the code that defines {short}, with @register_module before its class"
    known = ", ".join(sorted({*_BY_NAME, *REGISTERED}))
    reason = f"names the module type {name!r}, which is not one of {known}"
    raise UnreadableError(path, reason, remedy if is_ours else "use another model")
