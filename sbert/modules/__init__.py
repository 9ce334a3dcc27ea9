"""The modules that an encoder chains."""

from sbert.modules.pooling import Pooling, register_pooling
from sbert.modules.projection import Dense, Dropout, LayerNorm, Normalize
from sbert.modules.recurrent import LSTM
from sbert.modules.registry import register_module
from sbert.modules.static import StaticEmbedding, WordEmbeddings
from sbert.modules.transformer import Transformer

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
