"""Chroma: an embedding function for collections."""

from __future__ import annotations

from typing import Any

from chromadb.api.types import Documents, EmbeddingFunction, Embeddings
from chromadb.utils.embedding_functions import register_embedding_function

from sbert.integrations.loading import loaded


@register_embedding_function
class SbertEmbeddingFunction(EmbeddingFunction[Documents]):
    """The vectors of a ``SentenceEncoder``; a collection stores the model's name.

    Args:
        model: An encoder, a folder or a name on the hub. Default: the model of the library.
        options: Of ``SentenceEncoder``, if the model is not loaded yet.
    """

    def __init__(self, model: Any = None, **options: Any) -> None:
        self._encoder, self._options = loaded(model, **options), options

    def __call__(self, input: Documents) -> Embeddings:  # noqa: A002
        """One vector per document."""
        return list(self._encoder.encode_document(input))

    def embed_query(self, input: Documents) -> Embeddings:  # noqa: A002
        """One vector per query."""
        return list(self._encoder.encode_query(input))

    @staticmethod
    def name() -> str:
        """Its name in a collection."""
        return "sbert"

    def default_space(self) -> Any:
        """Vectors are compared by their cosine."""
        return "cosine"

    def get_config(self) -> dict[str, Any]:
        """What a collection stores."""
        return {"model": self._encoder.name_or_path or None, "options": self._options}

    @staticmethod
    def build_from_config(config: dict[str, Any]) -> SbertEmbeddingFunction:
        """The function of a collection that is opened again."""
        return SbertEmbeddingFunction(config["model"], **config["options"])
