"""Pictures: maps of a corpus, similarities of texts, and training curves. The guide is ``guide.md`` in this folder.

| function | draws |
|---|---|
| ``corpus_map`` | vectors as points, an image |
| ``map_page`` | points as one HTML page with topics, search, columns and zoom, without a network |
| ``project_vectors`` | nothing itself: the layout of vectors as points (t-SNE or PCA), which both maps take |
| ``find_topics`` | nothing itself: topics of a layout, from coarse to fine, with names |
| ``similarity_heatmap`` | the similarities of all pairs of a few texts |
| ``training_curves`` | the loss and the metrics of a training run, from its ``history.jsonl`` |

Each saves the picture to ``path=``, and a notebook shows what it returns. Images are drawn into ``ax=``, such as one of
several side by side, and keep to matplotlib's style. They need ``pip install "sbert[plot]"``; pages need nothing.

>>> from sbert import SentenceEncoder
>>> from sbert.visualization import similarity_heatmap
>>> figure = similarity_heatmap(["The cat sleeps.", "A kitten naps.", "Taxes go up."], SentenceEncoder())
"""

from sbert.inputs.arguments import publish
from sbert.visualization.curves import training_curves
from sbert.visualization.heatmap import similarity_heatmap
from sbert.visualization.map_image import corpus_map
from sbert.visualization.map_page import map_page
from sbert.visualization.projection import nearest_neighbours, project_vectors
from sbert.visualization.topics import Topics, find_topics

__all__ = [
    "Topics",
    "corpus_map",
    "find_topics",
    "map_page",
    "nearest_neighbours",
    "project_vectors",
    "similarity_heatmap",
    "training_curves",
]

publish(__name__)
