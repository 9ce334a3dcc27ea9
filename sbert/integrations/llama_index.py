"""LlamaIndex: a ``BaseEmbedding`` for its indexes."""

from __future__ import annotations

from typing import Any

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import PrivateAttr

from sbert.integrations.loading import loaded


class SbertEmbedding(BaseEmbedding):
    """The vectors of a ``SentenceEncoder``; queries and texts get the prompts that the model has for them.

    Args:
        model: An encoder, a folder or a name on the hub. Default: the model of the library.
        embed_batch_size: Number of texts of a call; the encoder forms its own batches of them.
        options: Of ``SentenceEncoder``, if the model is not loaded yet.

    Example:
        >>> from llama_index.core import Settings  # doctest: +SKIP
        >>> Settings.embed_model = SbertEmbedding("all-MiniLM-L6-v2")  # doctest: +SKIP
    """

    _model: Any = PrivateAttr()

    def __init__(self, model: Any = None, embed_batch_size: int = 2048, **options: Any) -> None:
        encoder = loaded(model, **options)
        super().__init__(model_name=encoder.name_or_path or "sbert-mini", embed_batch_size=embed_batch_size)
        self._model = encoder

    @classmethod
    def class_name(cls) -> str:
        """Its name in saved settings."""
        return "SbertEmbedding"

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        vectors: list[list[float]] = self._model.encode_document(texts).tolist()
        return vectors

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embeddings([text])[0]

    def _get_query_embedding(self, query: str) -> list[float]:
        vector: list[float] = self._model.encode_query(query).tolist()
        return vector

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_query_embedding(query)
