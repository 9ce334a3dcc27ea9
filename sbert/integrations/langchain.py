"""LangChain: an ``Embeddings`` for vector stores and retrievers."""

from __future__ import annotations

from typing import Any

from langchain_core.embeddings import Embeddings

from sbert.integrations.loading import loaded


class SbertEmbeddings(Embeddings):
    """The vectors of a ``SentenceEncoder``; queries and documents get the prompts that the model has for them.

    Args:
        model: An encoder, a folder or a name on the hub. Default: the model of the library.
        options: Of ``SentenceEncoder``, if the model is not loaded yet.

    Example:
        >>> from sbert.integrations.langchain import SbertEmbeddings  # doctest: +SKIP
        >>> len(SbertEmbeddings().embed_query("Who sleeps?"))  # doctest: +SKIP
        256
    """

    def __init__(self, model: Any = None, **options: Any) -> None:
        self.model = loaded(model, **options)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """One vector per text."""
        vectors: list[list[float]] = self.model.encode_document(texts).tolist()
        return vectors

    def embed_query(self, text: str) -> list[float]:
        """The vector of a query."""
        vector: list[float] = self.model.encode_query(text).tolist()
        return vector
