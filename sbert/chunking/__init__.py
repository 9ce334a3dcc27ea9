"""Documents longer than a model reads: split at the ends of sentences, and encoded passage by passage.

The guide is ``guide.md`` in this folder. ``split`` returns the passages, and ``encode_chunks`` the passages and their
vectors; with ``late=True``, the vector of a passage knows the rest of its document.

>>> from sbert import SentenceEncoder
>>> from sbert.chunking import encode_chunks
>>> document = "Berlin lies on the Spree. The city has many bridges. Taxes go up."
>>> chunks, vectors = encode_chunks(SentenceEncoder(), document, max_tokens=9, late=True)
>>> [chunk.text([document]) for chunk in chunks]
['Berlin lies on the Spree.', 'The city has many bridges.', 'Taxes go up.']
"""

from sbert.chunking.boundaries import Chunk
from sbert.chunking.chunks import encode_chunks, split
from sbert.inputs.arguments import publish

__all__ = ["Chunk", "encode_chunks", "split"]

publish(__name__)
