"""Sentence embeddings: encode sentences as vectors, compare them, search them, and train the models that do.

A sentence embedding is a vector that represents the meaning of a sentence: sentences of similar meaning have vectors of
similar direction. With vectors, comparing 10,000 sentences takes 10,000 runs of a neural network and not 50 million
([Reimers and Gurevych, 2019](https://arxiv.org/abs/1908.10084)).

>>> from sbert import SentenceEncoder
>>> model = SentenceEncoder()  # the bundled model; or a folder, or a name such as "all-MiniLM-L6-v2"
>>> vectors = model.encode(["The cat sleeps.", "A kitten is napping.", "Taxes go up."])
>>> model.similarity(vectors, vectors).round(2)
array([[1.  , 0.75, 0.29],
       [0.75, 1.  , 0.28],
       [0.29, 0.28, 1.  ]], dtype=float32)

Each package has a guide, the file ``guide.md`` in its folder:

| package | guide |
|---|---|
| ``sbert.pipeline`` | encoding: options, prompts, which model, several devices, many clients |
| ``sbert.search`` | search, index, words and vectors, pairs, groups, int8 and bits |
| ``sbert.chunking`` | long documents |
| ``sbert.training`` | training: data, loss, evaluation, options; cross-encoders; adapters |
| ``sbert.losses`` | which loss for which data, a loss of your own |
| ``sbert.evaluation`` | evaluators, standard tasks, an evaluator of your own |
| ``sbert.data`` | reading texts, training rows and common data sets |
| ``sbert.vector_files`` | from one file to a cluster: interruptions, shards, Ray, Dask, Spark |
| ``sbert.modules`` | building a model, a module of your own |
| ``sbert.saving`` | model folders, verification, the hub |
| ``sbert.saving.export`` | ONNX, torch.export |
| ``sbert.backends`` | speed: which backend runs when, dtype, GPUs |
| ``sbert.visualization`` | heat maps, maps of a corpus, training curves |
| ``sbert.integrations`` | LangChain, Chroma, scikit-learn, MTEB and others; which models load |
| ``sbert.cli`` | the command line |
"""

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
        LateInteraction,
        LayerNorm,
        Normalize,
        Pooling,
        Router,
        SparseStaticEmbedding,
        StaticEmbedding,
        Transformer,
        WordEmbeddings,
        register_module,
        register_pooling,
    )
    from sbert.training import Trainer, TrainingConfig

__version__ = "0.1.0"

__all__ = [
    "SentenceEncoder",
    "CrossEncoder",
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
    "Trainer",
    "TrainingConfig",
    "TokenBatch",
    "TokenEmbeddings",
    "register_module",
    "register_pooling",
]
ROOMS = "chunking data evaluation functional integrations losses modules pipeline saving search training".split()
ROOMS += "vector_files visualization".split()
_ELSEWHERE = {
    "CrossEncoder": "sbert.cross_encoder",
    "SentenceEncoder": "sbert.encoder",
    "TokenBatch": "sbert.batch",
    "TokenEmbeddings": "sbert.batch",
    "Trainer": "sbert.training",
    "TrainingConfig": "sbert.training",
}


def __getattr__(name: str) -> Any:
    # torch takes more than a second to import, which `sbert --help` does not need.
    if name in ROOMS:
        return import_module(f"sbert.{name}")
    if name not in __all__:
        import_module("sbert.inputs.arguments").raise_missing("sbert", name, [*__all__, *ROOMS])
    return getattr(import_module(_ELSEWHERE.get(name, "sbert.modules")), name)


def __dir__() -> list[str]:
    return sorted([*__all__, *ROOMS, *(name for name in globals() if name.startswith("__"))])
