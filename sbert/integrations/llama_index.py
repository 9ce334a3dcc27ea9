"""LlamaIndex: a ``BaseEmbedding`` for its indexes.

>>> from llama_index.core import Document, VectorStoreIndex
>>> from sbert.integrations.llama_index import SbertEmbedding
>>> documents = [Document(text="A cat sleeps."), Document(text="Taxes rise.")]
>>> index = VectorStoreIndex.from_documents(documents, embed_model=SbertEmbedding())
>>> index.as_retriever(similarity_top_k=1).retrieve("a sleeping cat")[0].text
'A cat sleeps.'

- ``Settings.embed_model = SbertEmbedding("all-MiniLM-L6-v2")`` makes it the default of all indexes.
- LlamaIndex splits documents at 1024 tokens of another tokenizer; models with a shorter ``max_seq_length`` truncate
  such a text, with one warning. Set ``Settings.chunk_size`` to it.
- An index that is saved stores no model: pass ``embed_model`` again when it is loaded.
- LlamaIndex' own ``SentenceTransformerRerank(model=name, top_n=5)`` has the cross-encoders of this library after
  ``sbert.integrations.sentence_transformers.install()``.
"""

from __future__ import annotations

import asyncio
from typing import Any

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import PrivateAttr

from sbert.integrations.loading import load_encoder


class SbertEmbedding(BaseEmbedding):
    """The vectors of a ``SentenceEncoder``; queries and texts get the prompts that the model has for them.

    Args:
        model: An encoder, a folder or a name on the hub. Default: the bundled model.
        embed_batch_size: Number of texts of a call; the encoder forms its own batches of them.
        options: Of ``SentenceEncoder``, if the model is not loaded yet.
    """

    _model: Any = PrivateAttr()

    def __init__(self, model: Any = None, embed_batch_size: int = 2048, **options: Any) -> None:
        encoder = load_encoder(model, **options)
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

    # In a thread, so that the event loop goes on.
    async def _aget_query_embedding(self, query: str) -> list[float]:
        return await asyncio.to_thread(self._get_query_embedding, query)

    async def _aget_text_embedding(self, text: str) -> list[float]:
        return await asyncio.to_thread(self._get_text_embedding, text)

    async def _aget_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return await asyncio.to_thread(self._get_text_embeddings, texts)
