"""Documents longer than a model reads: split at the ends of sentences, and encoded passage by passage."""

from sbert.chunking.encode import encode_chunks, split

__all__ = ["encode_chunks", "split"]
