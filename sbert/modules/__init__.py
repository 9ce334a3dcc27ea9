"""Modules: the parts of which an encoder is a chain. The guide is ``guide.md`` in this folder.

| module | input → output |
|---|---|
| ``Transformer``, ``WordEmbeddings`` | texts → token vectors |
| ``StaticEmbedding`` | texts → vectors, the mean of the tokens' own |
| ``SparseStaticEmbedding`` | texts → sparse vectors, a weight for each word |
| ``LSTM`` | token vectors → token vectors |
| ``Pooling`` | token vectors → vectors |
| ``Dense``, ``LayerNorm``, ``Dropout``, ``Normalize`` | vectors → vectors |
| ``LateInteraction`` | token vectors → the same; how queries and documents are read |
| ``Router`` | one chain of modules for queries, another for documents |

>>> from sbert import Normalize, Pooling, SentenceEncoder
>>> transformer = SentenceEncoder()[0]  # or Transformer("bert-base-uncased")
>>> model = SentenceEncoder(transformer, Pooling("mean"), Normalize())
>>> model.encode("A cat sleeps.").shape
(384,)
"""

from sbert.inputs.arguments import publish
from sbert.modules.dense import Dense, Dropout, LayerNorm, Normalize
from sbert.modules.late_interaction import LateInteraction
from sbert.modules.lstm import LSTM
from sbert.modules.pooling import Pooling, register_pooling
from sbert.modules.registry import BUILT_IN, register_module
from sbert.modules.router import Router
from sbert.modules.transformer import Transformer
from sbert.modules.word_embeddings import SparseStaticEmbedding, StaticEmbedding, WordEmbeddings

__all__ = [
    "Transformer",
    "Pooling",
    "Normalize",
    "Dense",
    "Dropout",
    "LayerNorm",
    "LSTM",
    "WordEmbeddings",
    "StaticEmbedding",
    "SparseStaticEmbedding",
    "LateInteraction",
    "Router",
    "register_module",
    "register_pooling",
]

BUILT_IN.update({name: globals()[name] for name in __all__ if name[0].isupper()})

publish(__name__)
