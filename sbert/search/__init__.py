"""Search, mining and clustering: what to do with vectors, and BM25 for words. The guide is ``guide.md`` in this folder.

| task | function |
|---|---|
| the best texts of a corpus for a query | ``semantic_search``, or ``Index`` if texts come and go |
| texts with the words of a query | ``BM25``; results of both in one: ``fuse`` |
| sparse vectors, such as those of SPLADE | ``SparseIndex`` |
| documents by words and vectors, with filters, on disk | ``HybridIndex`` |
| all pairs of similar texts | ``paraphrase_mining``; only the best pair: ``most_similar_pair`` |
| groups of texts that mean the same | ``cluster``, with ``topic_words`` to name them; ``community_detection`` |
| training rows with hard negatives | ``mine_hard_negatives`` |
| a teacher's scores, to be distilled | ``score_lists`` |
| vectors in 1 bit or 1 byte per dimension | ``quantize``, ``calibrate``, ``dequantize`` |

All of them take arrays and tensors, and a ``.npy`` file that is larger than memory. The results are exact: scores are
computed in float64 and rounded to float32, and of equal scores the first row comes first.

>>> from sbert import SentenceEncoder
>>> from sbert.search import semantic_search
>>> model = SentenceEncoder()
>>> corpus = ["The cat sleeps.", "A kitten is napping.", "Taxes go up."]
>>> hits = semantic_search(model.encode_query("Who sleeps?"), model.encode_document(corpus), top_k=2)
>>> for hit in hits[0]:  # those of the first query
...     print(f"{hit.score:.2f}  {corpus[hit.row]}")
0.60  The cat sleeps.
0.42  A kitten is napping.
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
from sbert.search.index.sparse_index import SparseIndex
from sbert.search.training_rows import mine_hard_negatives, score_lists

__all__ = [
    "semantic_search",
    "Hit",
    "Hits",
    "Index",
    "BM25",
    "SparseIndex",
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
