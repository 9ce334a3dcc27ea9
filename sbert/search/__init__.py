"""Search, mining and clustering: what to do with vectors, and search by words.

| task | function |
|---|---|
| the best texts of a corpus for a query | ``semantic_search``, or ``Index`` if texts come and go |
| texts with the words of a query (BM25) | ``Lexical``; results of both in one: ``fuse`` |
| documents by words and meaning, with filters, on disk | ``HybridIndex`` |
| rankings of what was found by the vectors of tokens | ``LateInteraction`` |
| all pairs of similar texts | ``paraphrase_mining``; only the best pair: ``most_similar_pair`` |
| groups of texts that mean the same | ``cluster``, with ``topic_words`` to name them; ``community_detection`` |
| training rows with hard negatives | ``mine_hard_negatives`` |
| vectors in 1 bit or 1 byte per dimension | ``quantize``, ``calibrate``, ``dequantize`` |

All of them take arrays and tensors, and a ``.npy`` file that is larger than memory. The results are exact: they do not
depend on the processor, and of equal scores the first row comes first.

## Search a corpus

Encode the corpus once with ``encode_document`` and each query with ``encode_query``: models that need prompts get them
that way, and other models give the same vectors as with ``encode``.

>>> from sbert import SentenceEncoder
>>> from sbert.search import semantic_search
>>> model = SentenceEncoder()
>>> corpus = ["The cat sleeps.", "A kitten is napping.", "Taxes go up.", "The state raises taxes."]
>>> vectors = model.encode_document(corpus)  # (4, 256)
>>> hits = semantic_search(model.encode_query("Who sleeps?"), vectors, top_k=2)
>>> [corpus[row] for row in hits.indices[0]]  # hits.scores has the scores
['The cat sleeps.', 'A kitten is napping.']

## Keep an index

An ``Index`` has ids, and texts can be added and removed. ``save`` writes all of it or nothing, and damage is noticed
when it is loaded.

>>> import tempfile
>>> from sbert.search import Index
>>> index = Index()
>>> index.add(vectors, ids=["cat", "kitten", "taxes", "state"])
>>> with tempfile.TemporaryDirectory() as folder:
...     index.save(f"{folder}/index")
...     Index.load(f"{folder}/index").search(model.encode_query("Who sleeps?"), top_k=1).ids.tolist()
[['cat']]

``Index(backend="faiss")`` and ``Index(backend="usearch")`` search a graph instead of all rows: faster for millions of
rows, and approximate: they miss a few of the best. They need ``pip install "sbert[search]"``.

## Words, and words and meaning

A name, a number or a rare word is often found better by the word itself than by its meaning. ``Lexical`` is an index of
words, with the methods of ``Index``, and ``fuse`` makes one result of both. A language needs ``pip install
"sbert[search]"``.

>>> from sbert.search import Lexical, fuse
>>> lexical = Lexical(language="english")  # for other languages, see its documentation
>>> lexical.add(corpus, ids=["cat", "kitten", "taxes", "state"])
>>> query = "Does the state tax cats?"
>>> words, meaning = lexical.search(query, top_k=1000), index.search(model.encode_query(query), top_k=1000)
>>> fuse(words, meaning, top_k=2, method="weighted", weights=[0.6, 0.4]).ids.tolist()
[['state', 'cat']]

Pass many candidates, such as 1,000, and few only if they cost too much. ``method="reciprocal_rank"`` compares ranks
alone, and suits results whose scores say little. nDCG@10 times 100, the mean of Cranfield, CACM and TIME
(``python -m tests.benchmarks.hybrid --data path/to/data``, which has all figures):

| | the library's model | all-MiniLM-L6-v2 |
|---|---|---|
| vectors | 47.7 | 49.9 |
| words as they are | 52.1 | 52.1 |
| words with ``language="english"`` | 56.6 | 56.6 |
| vectors and words, ``"weighted"`` as above | 55.7 | 57.2 |
| vectors and words with ``language="english"``, ``"weighted"`` as above | 58.8 | 60.1 |
| the same, ``"reciprocal_rank"`` | 55.0 | 58.0 |

``sbert search --hybrid --language english FILE QUERY`` does the same with the texts of a file.

## Documents by words and meaning

``HybridIndex`` keeps documents in a folder, with their metadata, and searches them by words, by meaning or by both, as
above. Every change is a transaction: after a crash it has happened or not. Long documents can be split into passages
of ``chunk`` tokens, each with a vector; a result is the best passage, with its characters.

>>> from sbert.search import HybridIndex
>>> with tempfile.TemporaryDirectory() as folder:
...     index = HybridIndex(model, f"{folder}/index", language="english")
...     index.add(corpus, metadata=[{"about": "cats"}, {"about": "cats"}, {"about": "taxes"}, {"about": "taxes"}])
...     index.add("Berlin lies on the Spree. The city has many bridges.", metadata=[{"about": "cities"}], chunk=9)
...     index.update(["The cat is awake."], ids=[0])
...     asleep = index.search("Who sleeps?", top_k=1, where={"about": {"cats", "cities"}})
...     bridges = index.search("bridges", top_k=1)
...     index.close()
>>> asleep[0][0].text
'A kitten is napping.'
>>> bridges[0][0].id, bridges[0][0].start, bridges[0][0].text
(4, 26, 'The city has many bridges.')

``where=`` takes a dict or a function of the metadata, and ``rerank=`` a ``CrossEncoder`` or ``LateInteraction(model)``,
which sorts the best 100. Vectors, ids and metadata are held in memory, texts are not. What this costs: ``python -m
tests.benchmarks.hybrid_index``.

## Late interaction

``LateInteraction`` compares the tokens of query and document with the vectors that the encoder computes before its
pooling. No second model is needed, and long documents are read whole. nDCG@10 times 100, the mean of Cranfield, CACM
and TIME, the best 100 reranked (``python -m tests.benchmarks.late_interaction --data path/to/data``):

| | the library's model | all-MiniLM-L6-v2 |
|---|---|---|
| vectors | 47.7 | 49.9 |
| reranked, ``weight=0.6`` | 54.4 | 56.8 |
| vectors and words | 58.8 | 60.1 |
| reranked, ``weight=0.4`` | 59.0 | 61.5 |
| reranked, ``weight=1`` | 40.3 | 56.2 |
| the best order that these 100 have | 91.0 | 92.1 |

Where words are used as well, it adds little: tokens that match are mostly the same words. Its scores alone rank worse
than the search: these models were trained for vectors of whole texts.

## Pairs and groups

>>> from sbert.search import cluster, most_similar_pair, paraphrase_mining, topic_words
>>> most_similar_pair(vectors)[1:]  # the two rows; the matrix of all pairs is never held in memory
(0, 1)
>>> mined = paraphrase_mining(model, corpus, threshold=0.5)
>>> list(zip(mined.first.tolist(), mined.second.tolist()))  # the most similar pair first
[(0, 1), (2, 3)]
>>> labels = cluster(vectors, "community", threshold=0.5, min_community_size=2)
>>> labels.tolist()
[0, 0, 1, 1]
>>> len(topic_words(corpus, labels, top_k=2))
2

``cluster`` also has ``"kmeans"`` and ``"agglomerative"``, with ``pip install "sbert[cluster]"``.

## Hard negatives

``mine_hard_negatives(model, pairs, corpus)`` makes rows for a ``sbert.Trainer``: for each pair of a query and its
answer, texts of the corpus that are similar to the query and are not its answer.

## Less memory: int8 and bits

A corpus can be stored in low precision, and the best candidates compared again in higher precision:

>>> from sbert.search import calibrate, quantize
>>> ranges = calibrate(vectors)  # the range of each dimension; keep it together with the vectors
>>> int8, bits = quantize(vectors, "int8", ranges), quantize(vectors, "ubinary")
>>> int8.shape, bits.shape
((4, 256), (4, 32))
>>> query = model.encode_query("Who sleeps?")
>>> semantic_search(query, bits, top_k=1, rescore=int8, ranges=ranges).indices.tolist()
[[0]]

What this costs, on Cranfield (1,400 documents, 225 queries): of float32's best 10, int8 finds 0.998, bits 0.731, bits
rescored by int8 0.980 and by float32 0.982 (``python examples/search.py --data path/to/cranfield --model
all-MiniLM-L6-v2``). ``sbert benchmark`` measures the same on your own texts.

## Pitfalls

- Bits without ``rescore`` lose a quarter of the best results. Use them as a prefilter only.
- ``ranges`` belong to one model and one corpus: calibrate on vectors of the same kind as those you store.
- A threshold that is right for one model is wrong for another: similarities are not probabilities.
- Long documents are truncated to what the model reads; split them first (``sbert.chunking``).
"""

from sbert.pipeline.quantization import calibrate, dequantize, quantize
from sbert.search.exact.clustering import cluster, community_detection, topic_words
from sbert.search.exact.hard_negatives import mine_hard_negatives
from sbert.search.exact.mining import Pair, Pairs, most_similar_pair, paraphrase_mining
from sbert.search.exact.scores import Hits
from sbert.search.exact.semantic_search import semantic_search
from sbert.search.index.bm25 import BM25
from sbert.search.index.fusion import fuse
from sbert.search.index.hybrid_index import HybridIndex, Result
from sbert.search.index.index import Index, IndexHits
from sbert.search.late_interaction import LateInteraction

__all__ = [
    "semantic_search",
    "Hits",
    "Index",
    "IndexHits",
    "LateInteraction",
    "BM25",
    "fuse",
    "HybridIndex",
    "Result",
    "paraphrase_mining",
    "most_similar_pair",
    "Pairs",
    "Pair",
    "cluster",
    "topic_words",
    "community_detection",
    "mine_hard_negatives",
    "quantize",
    "calibrate",
    "dequantize",
]
