"""Sentence embeddings: encode sentences as vectors, compare them, train the models that do.

A sentence embedding is a vector that represents the meaning of a sentence: sentences of similar meaning have vectors of
similar direction. With vectors, comparing 10,000 sentences takes 10,000 runs of a neural network and not 50 million
([Reimers and Gurevych, 2019](https://arxiv.org/abs/1908.10084)).

| guide | about |
|---|---|
| this page | encoding, prompts, the bundled model, migrating from sentence-transformers |
| ``sbert.pipeline`` | many callers, several devices, the steps of a call |
| ``sbert.vector_files`` | from one file to a cluster: resuming, shards, Ray, Dask, Spark |
| ``sbert.search`` | search, index, paraphrase mining, clustering, hard negatives, int8 and bits |
| ``sbert.chunking`` | long documents |
| ``sbert.training`` | trainer, large batches, several processes, cross-encoders |
| ``sbert.losses`` | which loss for which data, a loss of your own |
| ``sbert.evaluation`` | evaluators, suites, an evaluator of your own |
| ``sbert.data`` | reading texts, training rows and the field's data sets |
| ``sbert.modules`` | building a model, a module of your own |
| ``sbert.saving`` | model folders, verification, the hub |
| ``sbert.backends`` | speed: which way runs when, ``sbert doctor``, ``sbert benchmark`` |
| ``sbert.visualization`` | maps, heatmaps, training curves |
| ``sbert.integrations`` | LangChain, Chroma, scikit-learn, MTEB and others; names of sentence-transformers |
| ``sbert.saving.export`` | ONNX, torch.export |
| ``sbert.cli`` | the command line |

## Encode and compare

>>> from sbert import SentenceEncoder
>>> model = SentenceEncoder()  # the bundled model; or a name on the hub, or a folder
>>> sentences = ["The cat sleeps.", "A kitten is napping.", "Taxes go up."]
>>> vectors = model.encode(sentences)  # NumPy, float32
>>> vectors.shape
(3, 256)
>>> scores = model.similarity(vectors, vectors)  # (3, 3), cosine
>>> bool(scores[0, 1] > scores[0, 2])
True

``encode`` takes a string, or any list, tuple, array, Series, Arrow array, ``datasets`` column or generator of strings.
Equal sentences are encoded once, in batches of similar length. A vector depends on its text, the prompt and the
settings, and not on the other texts of the call. The options of ``encode``:

| argument | effect |
|---|---|
| ``prompt_name=``, ``prompt=`` | put one of the model's prompts, or a text, before each sentence |
| ``batch_tokens=``, ``batch_size=`` | how much the model reads at once, in tokens or in sentences |
| ``normalize_embeddings=True`` | scale each vector to length 1 |
| ``truncate_dim=64`` | keep the first 64 dimensions of each vector |
| ``task="query"`` | the modules of a role, of a model with a ``Router`` |
| ``convert_to_tensor=True`` | a tensor on the model's device, ready for autograd |
| ``output_value="token_embeddings"`` | one tensor (tokens, dim) per sentence |
| ``precision="ubinary"`` | one bit per dimension, eight to a byte |
| ``ranges=`` of ``precision="int8"`` | one byte per dimension; ``sbert.search.calibrate`` computes the ranges |
| ``on_truncate="error"`` | refuse sentences that are too long; the default warns once, with their number |
| ``out="vectors.npy"`` | write to a file while reading, and go on after an interruption (``sbert.vector_files``) |
| ``overwrite=True`` | with ``out=``: start from scratch, and replace a file of other texts or of another model |
| ``shard=(3, 16)`` | with ``out=``: the fourth of 16 parts, for as many machines |
| ``device=["cuda:0", "cuda:1"]`` | share the work between devices |
| ``pool=``, ``chunk_size=`` | share it between the workers of ``model.pool(devices)``, in windows of that size |
| ``show_progress_bar=`` | by default there is a bar from 2,000 sentences on |

## Prompts

Some models need to know what a text is for. They come with prompts, and ``encode_query`` and ``encode_document`` choose
the right one:

>>> questions = model.encode_query(["Who sleeps?"])
>>> documents = model.encode_document(sentences)
>>> sentences[int(model.similarity(questions, documents).argmax())]
'The cat sleeps.'

## The bundled model

``SentenceEncoder()`` is ``sbert-mini``: for English, 9.5 million parameters in 20 MB, vectors of 256 dimensions, texts
of up to 256 tokens. ``examples/default_model/train.py`` trained it on two cores, in 3.8 hours. It is about five times
as fast as all-MiniLM-L6-v2, its teacher, and nearly as good at similarity (STSb 81.4 and 82.0). Alone, it finds less
than BM25; together with it, by ``sbert search --hybrid`` or ``HybridIndex``, on most collections more than either.
``sbert/default_model/README.md`` is its card, ``tests/benchmarks/README.md`` has the figures. With ``truncate_dim=128``
and ``64``, similarity stays near, and retrieval does not (nDCG@10 of Cranfield: 45.5, 42.6 and 35.0).

## Korean and other languages

The bundled model reads English; of texts in other scripts, a warning says that it cannot. These
public models know 50 to 109 languages, with a translation near its original:

| model | for | dim | parameters | max. tokens | licence |
|---|---|---|---|---|---|
| paraphrase-multilingual-MiniLM-L12-v2 | similarity, clusters; the smallest | 384 | 118 million | 128 | Apache-2.0 |
| paraphrase-multilingual-mpnet-base-v2 | the same, larger | 768 | 278 million | 128 | Apache-2.0 |
| LaBSE | to find translations; not for similarity | 768 | 471 million | 256 | Apache-2.0 |
| intfloat/multilingual-e5-small, -base, -large | search | 384 to 1,024 | 118 to 560 million | 512 | MIT |
| BAAI/bge-m3 | search, long documents | 1,024 | 568 million | 8,192 | MIT |

For Korean alone there are jhgan/ko-sroberta-multitask and BM-K/KoSimCSE-roberta (``sbert.integrations`` says how it is
loaded). Only the models of e5 need prompts:
``SentenceEncoder("intfloat/multilingual-e5-small", prompts={"query": "query: ", "document": "passage: "})``; for
similarity, both sides are queries. ``examples/train_korean.py`` trains a Korean model from nothing but text and pairs,
and ``examples/train_second_language.py`` teaches an English model Korean by translations.

## Coming from sentence-transformers

``from sbert import SentenceEncoder as SentenceTransformer`` is all that a script needs that loads, encodes, compares
and saves. ``import sbert.integrations.sentence_transformers as sentence_transformers`` is for those that use its
modules, too: ``util``, ``models``, ``losses``, ``evaluation`` and the trainer; or, without a change of the script,
``sbert.integrations.sentence_transformers.install()`` before its imports.

``sbert.integrations.switching`` lists every public name of sentence-transformers 6.2, and what it is here: the same,
another name, another form, or not here and why.

What differs, on purpose:

- ``None``, NaN and numbers among the sentences are refused, with their row; sentence-transformers embeds them as text.
- Arguments of ``encode`` after the sentences are given by name. An unknown one is a TypeError; ``prompt`` together with
  ``prompt_name`` is an error, so neither silently wins.
- ``similarity`` returns NumPy arrays for NumPy arrays, and a tensor for tensors.
- Vectors are float32 whatever dtype the weights have. Weights are float32 unless you pass ``dtype``; float16 becomes
  float32 on a CPU, which only emulates it. On a CUDA GPU the arithmetic is bfloat16, or float16 where there is no
  bfloat16, unless you pass ``dtype="float32"``.
- Texts that are truncated to ``max_seq_length`` are counted in a warning.
- Models that bring their own code, image models and models of sparse vectors are refused. Pickled weights are read as
  numbers only.
- The figures of evaluators have other names: ``cosine_spearman`` is called ``spearman`` here.
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
        LayerNorm,
        Normalize,
        Pooling,
        Router,
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
