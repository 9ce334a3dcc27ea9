"""Pictures: maps of a corpus, similarities of texts, training curves, and figures of an evaluation.

| function | draws |
|---|---|
| ``corpus_map`` | vectors as points, an image |
| ``map_page`` | points, such as those of ``project``, as one HTML page with search and zoom, without a network |
| ``project`` | nothing itself: the layout of vectors as points, which ``map_page`` takes |
| ``recall_curves`` | the recall at k of several searches, such as vectors, BM25 and both |
| ``similarity_distribution`` | the similarities of pairs by label, with the best threshold |
| ``similarity_heatmap`` | the similarities of all pairs of a few texts |
| ``training_curves`` | the loss and the figures of a training run, from its ``history.jsonl`` |

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

On the command line, ``sbert map texts.txt -o map.html`` does all of it: encode, lay out, draw.

Two models side by side, in the same colours; in a notebook, a cell with ``plt.subplots`` ends in ``;``, since it shows
the figure by itself.

>>> import matplotlib.pyplot as plt
>>> figure, axes = plt.subplots(1, 2, figsize=(12, 5))
>>> for model, ax in zip([model, model], axes):
...     _ = similarity_heatmap(["The cat sleeps.", "A kitten naps.", "Taxes go up."], model, ax=ax, order=True)
>>> plt.close(figure)

## Pitfalls

- A map shows neighbours. Distances between far groups, and the size of a group, mean nothing.
- Pass ``labels`` (``sbert.search.cluster``) for colours: groups that the eye sees in a map may not be groups.
"""

from sbert.visualization.curves import training_curves
from sbert.visualization.distributions import recall_curves, similarity_distribution
from sbert.visualization.heatmap import similarity_heatmap
from sbert.visualization.map_image import corpus_map
from sbert.visualization.map_page import map_page
from sbert.visualization.projection import project

__all__ = [
    "corpus_map",
    "map_page",
    "project",
    "recall_curves",
    "similarity_distribution",
    "similarity_heatmap",
    "training_curves",
]
