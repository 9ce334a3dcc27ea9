"""Pictures: maps of a corpus, similarities of texts, and training curves.

| function | draws |
|---|---|
| ``corpus_map`` | vectors as points, an image |
| ``map_page`` | points as one HTML page with topics, search, columns and zoom, without a network |
| ``project_vectors`` | nothing itself: the layout of vectors as points (t-SNE or PCA), which both maps take |
| ``find_topics`` | nothing itself: topics of a layout, from coarse to fine, with names |
| ``similarity_heatmap`` | the similarities of all pairs of a few texts |
| ``training_curves`` | the loss and the metrics of a training run, from its ``history.jsonl`` |

Each saves the picture to ``path=``, and a notebook shows what it returns. Images are drawn into ``ax=``, such as one of
several side by side, and keep to matplotlib's style, such as ``dark_background``. They need ``pip install
"sbert[plot]"``, which also brings the better layout of maps (t-SNE); pages need nothing.

>>> import tempfile
>>> from pathlib import Path
>>> from sbert import SentenceEncoder
>>> from sbert.visualization import similarity_heatmap
>>> model = SentenceEncoder()
>>> with tempfile.TemporaryDirectory() as folder:
...     _ = similarity_heatmap(["The cat sleeps.", "A kitten naps.", "Taxes go up."], model, f"{folder}/heat.png")
...     Path(f"{folder}/heat.png").exists()
True

## A map of a corpus

``sbert map texts.txt -o map.html`` encodes, lays out and draws. On the page, topics become finer as one zooms in; the
search has words in any order, and lists what is similar to its hits below them; a click on a point shows what is like
it; columns colour and filter; an area can be selected and saved as CSV.

    sbert map news.csv --column text --columns topic,date --color-by date -o map.html --image map.svg

The same in Python, where each step can be another one:

>>> from sbert.visualization import find_topics, map_page, nearest_neighbours, project_vectors
>>> texts = [f"{animal} number {row} sleeps" for row in range(20) for animal in ("cat", "dog")]
>>> vectors = model.encode(texts)
>>> neighbours = nearest_neighbours(vectors)
>>> points = project_vectors(vectors, neighbours=neighbours)
>>> page = map_page(texts, points, find_topics(texts, vectors, points), neighbours, {"length": list(map(len, texts))})

Both maps take any points: those of UMAP, for example, in place of those of ``project_vectors``.

## Pictures side by side

Two models side by side, in the same colours; in a notebook, a cell with ``plt.subplots`` ends in ``;``, since it shows
the figure by itself.

>>> import matplotlib.pyplot as plt
>>> figure, axes = plt.subplots(1, 2, figsize=(12, 5))
>>> for model, ax in zip([model, model], axes):
...     _ = similarity_heatmap(["The cat sleeps.", "A kitten naps.", "Taxes go up."], model, ax=ax, order=True)
>>> plt.close(figure)

## Pitfalls

- A map shows neighbours. Distances between far groups, and the size of a group, mean nothing.
- Topics are dense places of the layout. For clusters of the vectors themselves, pass ``labels`` of
  ``sbert.search.cluster`` to ``corpus_map``, or as ``Topics`` to ``map_page``.
- t-SNE needs openTSNE (``sbert[plot]``). PCA, for fewer than 10 texts or without openTSNE, shows no neighbourhoods,
  and its maps get no topics.
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
