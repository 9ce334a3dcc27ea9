"""Modules: the parts of which an encoder is a chain.

The first module reads texts: a ``Transformer``, or ``WordEmbeddings`` and ``StaticEmbedding``, which only look up
vectors. The next pools the token vectors to one vector per text. Others may follow.

| module | input → output |
|---|---|
| ``Transformer``, ``WordEmbeddings`` | texts → token vectors |
| ``StaticEmbedding`` | texts → vectors, the mean of the tokens' own |
| ``LSTM`` | token vectors → token vectors |
| ``Pooling`` | token vectors → vectors |
| ``Dense``, ``LayerNorm``, ``Dropout``, ``Normalize`` | vectors → vectors |
| ``Router`` | one chain of modules for queries, another for documents |

>>> from sbert import Normalize, Pooling, SentenceEncoder, Transformer
>>> base = SentenceEncoder(Transformer(minilm), Pooling("mean"), Normalize())  # or "bert-base-uncased"
>>> base.encode("A cat sleeps.").shape
(384,)

``Pooling`` has the modes ``mean``, ``max``, ``cls``, ``mean_sqrt_len``, ``weightedmean`` and ``lasttoken``, and takes a
list of them.

``Transformer`` takes every encoder that transformers knows: BERT, RoBERTa, XLM-R, MPNet, DistilBERT, ALBERT, ELECTRA,
DeBERTa, ModernBERT, the encoder of T5, and decoders such as Qwen3. ``WordEmbeddings.from_text_file`` reads GloVe and
word2vec files.

## One encoder for queries, another for documents

Queries are short and have to be fast, documents are encoded once. A ``Router`` has a chain of modules for each: here,
queries look up vectors of tokens, without a transformer, in the space of the documents' vectors.

>>> import torch
>>> from sbert import Router, StaticEmbedding
>>> from sbert.losses import MultipleNegativesRankingLoss
>>> from sbert.training import Trainer, TrainingConfig
>>> tokenizer = base.tokenizer.backend_tokenizer
>>> static = StaticEmbedding(tokenizer, torch.randn(tokenizer.get_vocab_size(), 384) / 20)
>>> model = SentenceEncoder(Router({"query": [static], "document": [base[0], base[1]]}), Normalize())
>>> config = TrainingConfig(
...     steps=2,
...     routes={"anchor": "query", "positive": "document"},  # which column takes which route
...     learning_rates={"0.routes.query.*": 0.05},  # a table of vectors takes a larger one than a transformer
... )
>>> rows = [("Who sleeps?", "The cat sleeps."), ("What rises?", "Taxes rise.")]
>>> Trainer(model, rows, MultipleNegativesRankingLoss(), config).fit(show_progress_bar=False)[-1]["step"]
2
>>> scores = model.similarity(model.encode_query(["Who sleeps?"]), model.encode_document(["The cat sleeps."]))
>>> scores.shape
(1, 1)

``encode`` takes the route that ``task=`` names, or else the ``default_route`` of the Router; without one it is an
error. ``model.route("query")`` is an ordinary encoder of one route, which shares the modules: it has a tokenizer and a
maximum length of its own, and can be saved, exported and served alone. sentence-transformers 5 and 6 read and write the
same folders.

## A module of your own

A module has one input and one output. Token vectors come without padding, laid end to end (``sbert.TokenEmbeddings``):
row *i* is ``tokens.values[tokens.offsets[i] : tokens.offsets[i + 1]]``, and ``tokens.padded()`` is a padded matrix with
its mask.

>>> import tempfile
>>> import warnings
>>> import torch
>>> from sbert import register_module
>>> @register_module  # model folders may contain it from now on: what is saved loads again
... class FirstAndLast(torch.nn.Module):
...     '''The vectors of the first and of the last token, side by side.'''
...
...     def forward(self, tokens):
...         first = tokens.values[tokens.offsets[:-1]]  # (rows, dim)
...         last = tokens.values[tokens.offsets[1:] - 1]  # (rows, dim)
...         return torch.cat([first, last], dim=1)  # (rows, 2 * dim)
>>> custom = SentenceEncoder(base[0], FirstAndLast(), Normalize())
>>> custom.encode("A cat sleeps.").shape
(768,)
>>> folder = tempfile.mkdtemp()
>>> with warnings.catch_warnings():
...     warnings.simplefilter("ignore")  # save warns that no other library can load FirstAndLast
...     custom.save(f"{folder}/my-model")
>>> again = SentenceEncoder(f"{folder}/my-model")
>>> bool((again.encode("A cat sleeps.") == custom.encode("A cat sleeps.")).all())
True

A module with arguments keeps them in an attribute ``config``, a dict; its weights are saved with it.
``register_pooling`` does the same for a mode of ``Pooling``. ``examples/custom_pooling.py`` has the padded form.

## Pitfalls

- A class must be registered before a folder with it is loaded: import its file first.
- ``Normalize`` at the end scales vectors to length 1, so dot products are cosine similarities.
- Decoders need ``Pooling("lasttoken")``: the first token of a decoder has seen nothing but itself.
"""

from sbert.inputs.arguments import publish
from sbert.modules.dense import Dense, Dropout, LayerNorm, Normalize
from sbert.modules.lstm import LSTM
from sbert.modules.pooling import Pooling, register_pooling
from sbert.modules.registry import BUILT_IN, register_module
from sbert.modules.router import Router
from sbert.modules.transformer import Transformer
from sbert.modules.word_embeddings import StaticEmbedding, WordEmbeddings

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
    "Router",
    "register_module",
    "register_pooling",
]

BUILT_IN.update({name: globals()[name] for name in __all__ if name[0].isupper()})

publish(__name__)
