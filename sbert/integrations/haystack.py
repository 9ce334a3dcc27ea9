"""Haystack: components that embed a query, and documents.

>>> from haystack import Document
>>> from sbert.integrations.haystack import SbertDocumentEmbedder, SbertTextEmbedder
>>> documents = SbertDocumentEmbedder().run([Document(content="A cat sleeps.")])["documents"]
>>> len(documents[0].embedding), len(SbertTextEmbedder().run("a sleeping cat")["embedding"])
(256, 256)

- A pipeline can be saved if its model is a name: ``SbertTextEmbedder("all-MiniLM-L6-v2", options={"device": "cpu"})``.
- To load it, name the module: ``Pipeline.loads(text, allowed_modules=["sbert.integrations.haystack"])``.
- Two components of one pipeline may share an encoder that is loaded, and then its memory.
- Set the store's similarity to "cosine", or use a model with ``Normalize``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from haystack import Document, component

from sbert.integrations.loading import load_encoder


@component
class SbertTextEmbedder:
    """The vector of a query.

    Args:
        model: An encoder, a folder or a name on the hub; a pipeline with a name can be saved.
        options: Of ``SentenceEncoder``, if the model is not loaded yet.
    """

    def __init__(self, model: Any = None, options: dict[str, Any] | None = None) -> None:
        self.model: Any = model
        self.options: dict[str, Any] | None = options
        self._encoder = load_encoder(model, **(options or {}))

    @component.output_types(embedding=list[float])
    def run(self, text: str) -> dict[str, list[float]]:
        """The vector under the key "embedding"."""
        return {"embedding": self._encoder.encode_query(text).tolist()}


@component
class SbertDocumentEmbedder:
    """Documents with their vectors.

    Args:
        model: An encoder, a folder or a name on the hub; a pipeline with a name can be saved.
        meta_fields_to_embed: Fields of ``meta`` whose values stand before the text, one per line.
        options: Of ``SentenceEncoder``, if the model is not loaded yet.
    """

    def __init__(
        self, model: Any = None, meta_fields_to_embed: list[str] | None = None, options: dict[str, Any] | None = None
    ) -> None:
        self.model: Any = model
        self.meta_fields_to_embed: list[str] | None = meta_fields_to_embed
        self.options: dict[str, Any] | None = options
        self._encoder = load_encoder(model, **(options or {}))

    @component.output_types(documents=list[Document])
    def run(self, documents: list[Document]) -> dict[str, list[Document]]:
        """Copies of the documents, with vectors, under the key "documents"."""
        vectors = self._encoder.encode_document([self._text(document) for document in documents]).tolist()
        return {"documents": [replace(d, embedding=v) for d, v in zip(documents, vectors, strict=True)]}

    def _text(self, document: Document) -> str:
        fields = [str(document.meta[name]) for name in self.meta_fields_to_embed or () if document.meta.get(name)]
        return "\n".join([*fields, document.content or ""])
