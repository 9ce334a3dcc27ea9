"""LangChain: an ``Embeddings`` for vector stores and retrievers.

>>> from langchain_core.vectorstores import InMemoryVectorStore
>>> from sbert.integrations.langchain import SbertEmbeddings
>>> store = InMemoryVectorStore(SbertEmbeddings())  # or SbertEmbeddings("all-MiniLM-L6-v2"), or of an encoder
>>> _ = store.add_texts(["A cat sleeps.", "Taxes rise."])
>>> store.similarity_search("a sleeping cat", k=1)[0].page_content
'A cat sleeps.'

- A store that compares by dot product needs a model with ``Normalize``.
- The interface asks for lists of floats, eight times the memory of an array: for millions of texts, call
  ``encode_document`` with ``out=`` and add the arrays to the store.
- ``aembed_documents`` is LangChain's own and runs in a thread; several at the same time are safe.
"""

from __future__ import annotations

from typing import Any

from langchain_core.embeddings import Embeddings

from sbert.integrations.loading import load_encoder


class SbertEmbeddings(Embeddings):
    """The vectors of a ``SentenceEncoder``; queries and documents get the prompts that the model has for them.

    Args:
        model: An encoder, a folder or a name on the hub. Default: the bundled model.
        options: Of ``SentenceEncoder``, if the model is not loaded yet.
    """

    def __init__(self, model: Any = None, **options: Any) -> None:
        self.model = load_encoder(model, **options)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """One vector per text."""
        vectors: list[list[float]] = self.model.encode_document(texts).tolist()
        return vectors

    def embed_query(self, text: str) -> list[float]:
        """The vector of a query."""
        vector: list[float] = self.model.encode_query(text).tolist()
        return vector
