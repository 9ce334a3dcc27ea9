"""Documents longer than a model reads: split at the ends of sentences, and encoded passage by passage.

A model reads a fixed number of tokens (``model.max_seq_length``) and truncates what comes after them. For search in
long documents, split them into passages and search the passages. ``split`` returns the passages, and ``encode_chunks``
the passages and their vectors.

>>> from sbert import SentenceEncoder
>>> from sbert.chunking import encode_chunks
>>> from sbert.search import semantic_search
>>> model = SentenceEncoder()
>>> document = "Berlin lies on the Spree. The city has many bridges. Taxes go up."
>>> chunks, passages = encode_chunks(model, document, max_tokens=9, late=True)
>>> best = semantic_search(model.encode_query("bridges in Berlin"), passages, top_k=1).indices[0, 0]
>>> chunks[best].start, chunks[best].text([document])  # where it stands, and what it says
(26, 'The city has many bridges.')

## Early or late

By default each passage is encoded alone. With ``late=True`` the model reads the whole document first, and the passages
are pooled from its token vectors ([late chunking](https://arxiv.org/abs/2409.04701)): the vector of "The city has many
bridges" then knows that the city is Berlin.

## Pitfalls

- Late chunking helps if passages refer to each other. It needs a pooling over all tokens, such as mean.
- ``max_tokens`` counts the tokens of this model, without special tokens and prompt: another model needs another split.
- Passages of one sentence lose their context, and the vector of a long passage mixes several topics.
"""

from sbert.chunking.boundaries import Chunk
from sbert.chunking.encode import encode_chunks, split

__all__ = ["Chunk", "encode_chunks", "split"]
