"""Sentence embeddings: encode sentences as vectors, compare them, train the models that do."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sbert.batch import TokenBatch, TokenEmbeddings
    from sbert.cross_encoder import CrossEncoder
    from sbert.encoder import SentenceEncoder
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
        register_module,
        register_pooling,
    )
    from sbert.training import Trainer, TrainingConfig

__version__ = "0.1.0"

__all__ = [
    "LSTM",
    "CrossEncoder",
    "Dense",
    "Dropout",
    "LayerNorm",
    "Normalize",
    "Pooling",
    "SentenceEncoder",
    "StaticEmbedding",
    "TokenBatch",
    "TokenEmbeddings",
    "Trainer",
    "TrainingConfig",
    "Transformer",
    "WordEmbeddings",
    "register_module",
    "register_pooling",
]
_ELSEWHERE = {
    "CrossEncoder": "sbert.cross_encoder",
    "SentenceEncoder": "sbert.encoder",
    "TokenBatch": "sbert.batch",
    "TokenEmbeddings": "sbert.batch",
    "Trainer": "sbert.training",
    "TrainingConfig": "sbert.training",
}


def __getattr__(name: str) -> Any:
    # torch takes more than a second to import, and nobody who asks for `sbert --help` needs it.
    if name == "search":
        return import_module("sbert.search")
    if name not in __all__:
        raise AttributeError(f"module 'sbert' has no attribute {name!r}")
    return getattr(import_module(_ELSEWHERE.get(name, "sbert.modules")), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
