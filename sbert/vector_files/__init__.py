"""Vectors on disk: ``encode(out=)`` for inputs larger than memory, interrupted calls, shards, and their joining.

The guide is ``guide.md`` in this folder. A file of vectors has a manifest beside it, which says from which texts, model
and settings the vectors are: the same call again continues, and another one is an error.

>>> import os, tempfile
>>> from sbert import SentenceEncoder
>>> model = SentenceEncoder()
>>> with tempfile.TemporaryDirectory() as folder:
...     vectors = model.encode(["A cat sleeps.", "Taxes rise."], out=f"{folder}/vectors.npy")
...     vectors.shape, sorted(os.listdir(folder))
((2, 256), ['vectors.npy', 'vectors.npy.manifest'])
"""

from sbert.inputs.arguments import publish
from sbert.vector_files.formats import VectorFiles
from sbert.vector_files.shards import merge

__all__ = ["VectorFiles", "merge"]

publish(__name__)
