"""Search, mining and clustering: what people do with vectors."""

from sbert.search.clustering import cluster, topic_words
from sbert.search.communities import community_detection
from sbert.search.index import Index
from sbert.search.kept import Found
from sbert.search.nearest import Hits, semantic_search
from sbert.search.negatives import mine_hard_negatives
from sbert.search.pairs import Pair, Pairs, most_similar_pair, paraphrase_mining

__all__ = [
    "Found",
    "Hits",
    "Index",
    "Pair",
    "Pairs",
    "cluster",
    "community_detection",
    "mine_hard_negatives",
    "most_similar_pair",
    "paraphrase_mining",
    "semantic_search",
    "topic_words",
]
