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
bridges" then knows that the city is Berlin. A document that is longer than the model's maximum length is read in
windows that overlap by a few tokens.

Late chunking takes 1.1 to 1.3 times as long as passages alone (``python -m tests.benchmarks.chunking``, passages of 60
and 120 tokens, models that read 256); with models that read thousands of tokens, more, since the time of
attention grows with the square of the length. On the long documents of TIME, all-MiniLM-L6-v2 finds more by
the best passage: nDCG@10 times 100 is 67.3 for 62.8 with passages of 60 tokens, and 66.1 for 63.5 with 120 (the same,
with ``--data``).

## Pitfalls

- Late chunking helps if passages refer to each other. It needs a pooling over all tokens, such as mean.
- ``max_tokens`` counts the tokens of this model, without special tokens and prompt: another model needs another split.
- Passages of one sentence lose their context, and the vector of a long passage mixes several topics.
"""

from sbert.chunking.boundaries import Chunk
from sbert.chunking.chunks import encode_chunks, split
from sbert.inputs.arguments import publish

__all__ = ["Chunk", "encode_chunks", "split"]

publish(__name__)
