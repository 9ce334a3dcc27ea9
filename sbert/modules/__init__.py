"""The modules that an encoder chains."""

from sbert.modules.dense import Dense, Dropout, LayerNorm, Normalize
from sbert.modules.lstm import LSTM
from sbert.modules.pooling import Pooling, register_pooling
from sbert.modules.registry import register_module
from sbert.modules.transformer import Transformer
from sbert.modules.word_embeddings import StaticEmbedding, WordEmbeddings

__all__ = [
    "LSTM",
    "Dense",
    "Dropout",
    "LayerNorm",
    "Normalize",
    "Pooling",
    "StaticEmbedding",
    "Transformer",
    "WordEmbeddings",
    "register_module",
    "register_pooling",
]
