"""Chroma: an embedding function for collections.

>>> import chromadb
>>> from sbert.integrations.chroma import SbertEmbeddingFunction
>>> client = chromadb.EphemeralClient()
>>> pets = client.create_collection("pets", embedding_function=SbertEmbeddingFunction("sbert-mini"))
>>> pets.add(ids=["1", "2"], documents=["A cat sleeps.", "Taxes rise."])
>>> pets.query(query_texts=["a sleeping cat"], n_results=1)["documents"]
[['A cat sleeps.']]

- A collection stores the model's name, prompts, ``truncate_dim`` and options; import this file before
  ``get_collection`` opens it again. It stores no weights: save a model that was trained, and load it by its folder.
- New collections compare by cosine. For one that was made by another model, make a new one: vectors do not mix.
- Chroma takes ``client.get_max_batch_size()`` documents per ``add``, 5,461 of them here.
"""

from __future__ import annotations

from typing import Any

from chromadb.api.types import Documents, EmbeddingFunction, Embeddings
from chromadb.utils.embedding_functions import register_embedding_function

from sbert.integrations.loading import load_encoder


@register_embedding_function
class SbertEmbeddingFunction(EmbeddingFunction[Documents]):
    """The vectors of a ``SentenceEncoder``; a collection stores the model's name.

    Args:
        model: An encoder, a folder or a name on the hub. Default: the bundled model.
        options: Of ``SentenceEncoder``, if the model is not loaded yet.
    """

    def __init__(self, model: Any = None, **options: Any) -> None:
        self._encoder, self._options = load_encoder(model, **options), options

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
        settings = ("prompts", "default_prompt_name", "truncate_dim")
        options = {**self._options, **{name: getattr(self._encoder, name) for name in settings}}
        return {"model": self._encoder.name_or_path or None, "options": options}

    @staticmethod
    def build_from_config(config: dict[str, Any]) -> SbertEmbeddingFunction:
        """The function of a collection that is opened again."""
        return SbertEmbeddingFunction(config["model"], **config["options"]) if config["model"] else _Nameless()


class _Nameless(SbertEmbeddingFunction):
    """That of an encoder without a name. An error in its constructor would make Chroma use another model."""

    def __init__(self) -> None:
        """No model is loaded."""

    def __call__(self, input: Documents) -> Embeddings:  # noqa: A002, ARG002
        raise ValueError("this collection was made by an encoder without a name; pass embedding_function= with it")

    embed_query = __call__
