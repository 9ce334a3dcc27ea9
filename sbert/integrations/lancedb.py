"""LanceDB: an embedding function of its registry, under the name "sbert".

>>> from lancedb.embeddings import get_registry
>>> from lancedb.pydantic import LanceModel, Vector
>>> import sbert.integrations.lancedb  # registers it
>>> function = get_registry().get("sbert").create()  # name="all-MiniLM-L6-v2", device="cuda"
>>> class Row(LanceModel):
...     text: str = function.SourceField()
...     vector: Vector(function.ndims()) = function.VectorField()

- ``connect(folder).create_table("texts", schema=Row)`` then embeds what is added, and queries by text.
- A table stores the name, not the model: import this file before you open it again.
- LanceDB compares by Euclidean distance: use a model with ``Normalize``, or ``search(...).distance_type("cosine")``.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from lancedb.embeddings import TextEmbeddingFunction, register

from sbert.integrations.loading import load_encoder


@register("sbert")
class SbertTextFunction(TextEmbeddingFunction):
    """The vectors of a ``SentenceEncoder``; queries and documents get the prompts that the model has for them.

    Args:
        name: A folder, or a name on the hub. Default: the bundled model.
        device: As in ``SentenceEncoder``.
    """

    name: str | None = None
    device: str | None = None

    @cached_property
    def _encoder(self) -> Any:
        return load_encoder(self.name, device=self.device)

    def ndims(self) -> int:
        """Dimension of the vectors."""
        return int(self._encoder.get_sentence_embedding_dimension())

    def generate_embeddings(self, texts: Any, *_: Any, **__: Any) -> list[Any]:
        """One vector per document."""
        return list(self._encoder.encode_document(list(texts)))

    def compute_query_embeddings(self, query: str, *_: Any, **__: Any) -> list[Any]:
        """A list of the query's vector."""
        return [self._encoder.encode_query(query)]
