"""Search, mining and clustering: what to do with vectors, and BM25 for words.

| task | function |
|---|---|
| the best texts of a corpus for a query | ``semantic_search``, or ``Index`` if texts come and go |
| texts with the words of a query | ``BM25``; results of both in one: ``fuse`` |
| documents by words and vectors, with filters, on disk | ``HybridIndex`` |
| all pairs of similar texts | ``paraphrase_mining``; only the best pair: ``most_similar_pair`` |
| groups of texts that mean the same | ``cluster``, with ``topic_words`` to name them; ``community_detection`` |
| training rows with hard negatives | ``mine_hard_negatives`` |
| a teacher's scores, to be distilled | ``score_lists`` |
| vectors in 1 bit or 1 byte per dimension | ``quantize``, ``calibrate``, ``dequantize`` |

All of them take arrays and tensors, and a ``.npy`` file that is larger than memory. The results are exact: scores are
computed in float64 and rounded to float32, and of equal scores the first row comes first. So the rows are those of an
exhaustive search in float64, in its order, but for ties within rounding.

## Search a corpus

Encode the corpus once with ``encode_document`` and each query with ``encode_query``: models that need prompts get them
that way, and other models give the same vectors as with ``encode``.

>>> from sbert import SentenceEncoder
>>> from sbert.search import semantic_search
>>> model = SentenceEncoder()
>>> corpus = ["The cat sleeps.", "A kitten is napping.", "Taxes go up.", "The state raises taxes."]
>>> vectors = model.encode_document(corpus)  # (4, 256)
>>> hits = semantic_search(model.encode_query("Who sleeps?"), vectors, top_k=2)
>>> for hit in hits[0]:  # those of the first query
...     print(f"{hit.score:.2f}  {corpus[hit.row]}")
0.49  The cat sleeps.
0.31  A kitten is napping.

``hits.indices`` and ``hits.scores`` are the rows and the scores of all queries as arrays. ``hits.with_texts(corpus)``
is a table with the texts, and ``hits.to_frame()`` a data frame of pandas.

## Keep an index

An ``Index`` has ids, and texts can be added and removed. ``save`` writes all of it or nothing, and damage is noticed
when it is loaded. All rows are compared, a million in a tenth of a second. For many more, pass the vectors to an
approximate index, such as that of faiss or usearch, or to a database (``sbert.integrations``).

>>> import tempfile
>>> from sbert.search import Index
>>> index = Index()
>>> index.add(vectors, ids=["cat", "kitten", "taxes", "state"])
>>> with tempfile.TemporaryDirectory() as folder:
...     index.save(f"{folder}/index")
...     Index.load(f"{folder}/index").search(model.encode_query("Who sleeps?"), top_k=1).ids.tolist()
[['cat']]

## Documents by words and vectors

A name, a number or a rare word is often found better by the word itself than by its meaning. ``HybridIndex`` keeps
documents in a folder, with their metadata, and searches them with ``by="lexical"`` (BM25), ``"dense"`` (vectors) or
``"hybrid"``, both in one, which ranks best on most collections. Every change is a transaction: after a crash it has
happened or not. Long documents can be split into passages of ``chunk`` tokens; documents are compared by their best
passage, which is the result. Words are stemmed in the language of the model, which is English here; ``language=`` sets
another one, or None for words as they are.

>>> from sbert.search import HybridIndex
>>> with tempfile.TemporaryDirectory() as folder:
...     index = HybridIndex(model, f"{folder}/index")
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

``where=`` takes the forms that Chroma and MongoDB have. All entries of a dict must hold:

| form | documents with |
|---|---|
| ``{"year": 2031}`` or ``{"year": {"$eq": 2031}}`` | this value, or a list that has it |
| ``{"year": {2030, 2031}}`` or ``{"year": {"$in": [2030, 2031]}}`` | one of these values, or a list that has one |
| ``{"year": {"$gt": 2000, "$lte": 2031}}``, also ``$gte``, ``$lt`` | such a number or string, or a list that has one |
| ``{"tags": {"$contains": "a"}}`` | a list that has this value |
| ``{"year": {"$ne": 2031}}``, ``{"year": {"$nin": [2030, 2031]}}`` | all others, also without the field |
| ``{"$or": [{"year": 2031}, {"tags": "a"}]}``, also ``$and`` | one of these or, with ``$and``, all |

Types are those of JSON: ``1`` and ``1.0`` are the same number, and neither is ``True`` or ``"1"``. Strings are compared
character by character, so dates as ``"2031-05-01"`` are in their order. A document whose value is of another type is no
match. What could match no document at all is an error: an unknown operator, a misspelt field, a string
where all values are numbers. For all else, pass a function of the metadata.

>>> index = HybridIndex(model)
>>> index.add(corpus, metadata=[{"year": 2029, "tags": ["pet"]}, {"year": 2030}, {"year": 2031}, {"tags": ["state"]}])
>>> found = index.search("Who sleeps?", where={"$or": [{"year": {"$gte": 2031}}, {"tags": {"$contains": "state"}}]})
>>> sorted(result.id for result in found[0])
[2, 3]
>>> index.search("Who sleeps?", where={"yaer": 2030})
Traceback (most recent call last):
ValueError: where: 'yaer' is no field of any document; did you mean 'year'?

``rerank=`` takes a ``CrossEncoder``, which sorts the best 100. ``BM25`` and ``fuse`` do the same with vectors and ids
of your own: pass ``fuse`` many candidates, such as 1,000, and ``method="weighted", weights=[0.6, 0.4]`` for BM25 and
vectors. Figures: ``python -m tests.benchmarks.hybrid --data path/to/data``.

## Pairs and groups

>>> from sbert.search import cluster, most_similar_pair, paraphrase_mining, topic_words
>>> most_similar_pair(vectors)[1:]  # the two rows; the matrix of all pairs is never held in memory
(0, 1)
>>> mined = paraphrase_mining(model, corpus, threshold=0.5)
>>> list(zip(mined.first.tolist(), mined.second.tolist()))  # the most similar pair first
[(0, 1), (2, 3)]
>>> labels = cluster(vectors, "community", threshold=0.5, min_community_size=2)
>>> labels.tolist(), len(topic_words(corpus, labels, top_k=2))
([0, 0, 1, 1], 2)

``cluster`` also has ``"kmeans"``, with ``pip install "sbert[cluster]"``.
``mine_hard_negatives(model, pairs, corpus)`` makes rows for a ``sbert.Trainer``: for each pair of a query and its
answer, texts of the corpus that are similar to the query and are not its answer. ``score_lists(teacher, rows)`` adds
the scores of a ``CrossEncoder`` to such rows, from which a smaller model learns (see ``sbert.training``).

## Less memory: int8 and bits

A corpus can be stored in low precision, and the best candidates compared again in higher precision. int8 loses next to
nothing; bits alone lose a quarter of the best results, so use them as a prefilter only
(``python examples/search.py --data path/to/cranfield``).

>>> from sbert.search import calibrate, quantize
>>> ranges = calibrate(vectors)  # the range of each dimension; keep it together with the vectors
>>> int8, bits = quantize(vectors, "int8", ranges), quantize(vectors, "ubinary")  # (4, 256) and (4, 32)
>>> semantic_search(model.encode_query("Who sleeps?"), bits, top_k=1, rescore=int8, ranges=ranges).indices.tolist()
[[0]]

## Pitfalls

- ``ranges`` belong to one model and one corpus: calibrate on vectors of the same kind as those you store.
- A threshold that is right for one model is wrong for another: similarities are not probabilities.
- Long documents are truncated to what the model reads; split them first (``sbert.chunking``).
"""

from sbert.inputs.arguments import publish
from sbert.pipeline.quantization import calibrate, dequantize, quantize
from sbert.search.exact.clustering import cluster, community_detection, topic_words
from sbert.search.exact.comparison import Hit, Hits
from sbert.search.exact.mining import SimilarPair, SimilarPairs, most_similar_pair, paraphrase_mining
from sbert.search.exact.semantic_search import semantic_search
from sbert.search.index.bm25 import BM25
from sbert.search.index.fusion import Result, fuse
from sbert.search.index.hybrid_index import HybridIndex
from sbert.search.index.index import Index
from sbert.search.training_rows import mine_hard_negatives, score_lists

__all__ = [
    "semantic_search",
    "Hit",
    "Hits",
    "Index",
    "BM25",
    "fuse",
    "HybridIndex",
    "Result",
    "paraphrase_mining",
    "most_similar_pair",
    "SimilarPairs",
    "SimilarPair",
    "cluster",
    "topic_words",
    "community_detection",
    "mine_hard_negatives",
    "score_lists",
    "quantize",
    "calibrate",
    "dequantize",
]

publish(__name__)
