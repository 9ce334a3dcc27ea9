"""LanceDB: an embedding function, which tables store by its name and arguments.

>>> import lancedb
>>> from lancedb.embeddings import EmbeddingFunctionConfig
>>> from sbert.integrations.lancedb import SbertFunction
>>> function = SbertFunction.create(name="sbert-mini", truncate_dim=64)
>>> columns = EmbeddingFunctionConfig(source_column="text", vector_column="vector", function=function)
>>> rows = [{"text": "A cat sleeps."}, {"text": "Taxes rise."}]
>>> table = lancedb.connect("memory://").create_table("pets", rows, embedding_functions=[columns])
>>> table.search("a sleeping cat").limit(1).to_list()[0]["text"]
'A cat sleeps.'

- In a ``LanceModel``, ``function.SourceField()`` and ``function.VectorField()`` are those of any other function, which
  ``get_registry().get("sbert").create(...)`` gives, too.
- LanceDB's own function "sentence-transformers" ignores every argument but ``name``, ``device`` and ``normalize``, a
  ``truncate_dim`` too; this one passes them to ``SentenceEncoder``, which refuses what it does not know.
- Import this file before a table is opened again.
- Tables compare by Euclidean distance unless ``search(...).distance_type("cosine")`` is called.
"""

from __future__ import annotations

from typing import Any

from lancedb.embeddings import TextEmbeddingFunction, register

from sbert.integrations.loading import load_encoder


@register("sbert")
class SbertFunction(TextEmbeddingFunction, extra="allow"):  # type: ignore[call-arg]
    """The vectors of a ``SentenceEncoder``; queries and documents get the prompts that the model has for them.

    Args:
        name: A folder or a name on the hub. Default: the bundled model.
        options: Of ``SentenceEncoder``.
    """

    name: str = "sbert-mini"
    _encoder: Any = None

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._encoder = load_encoder(self.name, **(self.model_extra or {}))

    def ndims(self) -> int:
        """The dimension of the vectors."""
        return len(self.generate_embeddings([""])[0])

    def compute_query_embeddings(self, query: Any) -> list[Any]:
        """One vector per query."""
        return list(self._encoder.encode_query(self.sanitize_input(query)))

    def generate_embeddings(self, texts: Any) -> list[Any]:
        """One vector per document."""
        return list(self._encoder.encode_document(list(texts)))
