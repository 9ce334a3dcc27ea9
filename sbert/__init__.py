"""Sentence embeddings: encode sentences as vectors, compare them, train the models that do."""

from sbert.batch import TokenBatch, TokenEmbeddings
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
)

__version__ = "0.1.0"

__all__ = [
    "LSTM",
    "Dense",
    "Dropout",
    "LayerNorm",
    "Normalize",
    "Pooling",
    "SentenceEncoder",
    "StaticEmbedding",
    "TokenBatch",
    "TokenEmbeddings",
    "Transformer",
    "WordEmbeddings",
]
