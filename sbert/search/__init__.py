"""Search, mining and clustering: what people do with vectors."""

from sbert.pipeline.quantization import calibrate, dequantize, quantize
from sbert.search.clustering import cluster, topic_words
from sbert.search.communities import community_detection
from sbert.search.hard_negatives import mine_hard_negatives
from sbert.search.index import Index
from sbert.search.paraphrases import Pair, Pairs, most_similar_pair, paraphrase_mining
from sbert.search.semantic import Hits, semantic_search
from sbert.search.store import IndexHits

__all__ = [
    "Hits",
    "Index",
    "IndexHits",
    "Pair",
    "Pairs",
    "calibrate",
    "cluster",
    "community_detection",
    "dequantize",
    "mine_hard_negatives",
    "most_similar_pair",
    "paraphrase_mining",
    "quantize",
    "semantic_search",
    "topic_words",
]
