"""txtai: the vectors of its indexes.

>>> import txtai
>>> options = {"method": "sbert.integrations.txtai.SbertVectors", "path": "sbert-mini"}
>>> embeddings = txtai.Embeddings(**options)
>>> embeddings.index(["A cat sleeps.", "Taxes rise."])
>>> embeddings.search("a sleeping cat", 1)[0][0]
0

- An index that is saved stores these options, so it loads as it is where this library is installed. Options of
  ``SentenceEncoder`` are passed as ``vectors={"device": "cpu"}``.
- For an encoder that is loaded: ``Embeddings(method="external", transform=transform(encoder))``. Such an index does not
  store the function: ``load(path, config={"transform": transform(encoder)})``. Queries and documents go through the
  same function, without the prompts of each.
- txtai normalizes the vectors of each method.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from txtai.vectors import Vectors

from sbert.encoder import SentenceEncoder
from sbert.integrations.loading import load_encoder


class SbertVectors(Vectors):
    """The vectors of a ``SentenceEncoder``; queries and documents get the prompts that the model has for them."""

    def loadmodel(self, path: str | None) -> SentenceEncoder:
        """The encoder of a folder or a name on the hub."""
        return load_encoder(path, **self.config.get("vectors", {}))

    def encode(self, data: list[str], category: str | None = None) -> npt.NDArray[np.float32]:
        """One vector per text. Shape: (texts, dim)."""
        names = {"query": "encode_query", "data": "encode_document"}
        vectors: npt.NDArray[np.float32] = getattr(self.model, names.get(category or "", "encode"))(data)
        return vectors


def transform(model: Any = None, **options: Any) -> Callable[[list[str]], Any]:
    """A function from texts to vectors, for ``Embeddings(method="external", transform=)``.

    Args:
        model: An encoder, a folder or a name on the hub. Default: the model of the library.
        options: Of ``SentenceEncoder``, if the model is not loaded yet.

    Example:
        >>> transform()(["A cat sleeps."]).shape
        (1, 256)
    """
    encoder = load_encoder(model, **options)

    def vectors(texts: list[str]) -> Any:
        return encoder.encode(list(texts))

    return vectors
