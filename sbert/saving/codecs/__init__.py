"""How each module is written to a folder and read from one: one codec per class, in one table."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from sbert.modules import (
    LSTM,
    Dense,
    Dropout,
    LayerNorm,
    Normalize,
    Pooling,
    StaticEmbedding,
    Transformer,
    WordEmbeddings,
)
from sbert.modules.registry import registered
from sbert.saving.codecs import layers, transformer, word_embeddings
from sbert.saving.codecs.codec import Codec, ReadOptions, user_codec
from sbert.saving.format import OURS, THEIRS
from sbert.storage.files import UnreadableError

__all__ = ["Codec", "ReadOptions", "class_named", "codec_of", "type_name"]

_BUILT_IN: dict[type[nn.Module], Codec] = {
    Transformer: transformer.CODEC,
    Pooling: layers.POOLING,
    Normalize: layers.NORMALIZE,
    Dense: layers.DENSE,
    LayerNorm: layers.LAYER_NORM,
    Dropout: layers.DROPOUT,
    StaticEmbedding: word_embeddings.STATIC,
    WordEmbeddings: word_embeddings.WORDS,
    LSTM: layers.LSTM_LAYERS,
}


def codec_of(kind: type[nn.Module]) -> Codec:
    """The codec of a class of modules: a built-in one, or one that a user has defined."""
    return _BUILT_IN.get(kind) or user_codec(kind)


def type_name(kind: type[nn.Module]) -> str:
    """The name of a class in modules.json."""
    return f"{THEIRS}models.{kind.__name__}" if kind in _BUILT_IN else f"{OURS}{kind.__name__}"


def class_named(name: str, path: Path) -> type[nn.Module]:
    """The class of a name in modules.json.

    Args:
        name: The full name of a class of sentence-transformers or of this library.
        path: The file that contains the name, for errors.

    Raises:
        ValueError: If the class is neither built in nor registered.
    """
    short, is_ours = name.rpartition(".")[2], name.startswith(OURS)
    built_in = {kind.__name__: kind for kind in _BUILT_IN}
    known = {**built_in, **registered()} if is_ours else built_in if name.startswith(THEIRS) else {}
    if short in known:
        return known[short]
    listed = ", ".join(sorted({*built_in, *registered()}))
    remedy = f"import the code that defines {short}, with @register_module before its class"
    raise UnreadableError(
        path,
        f"names the module type {name!r}, which is not one of {listed}",
        remedy if is_ours else "use another model",
    )
