"""txtai: the vectors of its indexes.

>>> import txtai
>>> options = {"method": "sbert.integrations.txtai.SbertVectors", "path": "sbert-mini"}
>>> embeddings = txtai.Embeddings(**options)
>>> embeddings.index(["A cat sleeps.", "Taxes rise."])
>>> embeddings.search("a sleeping cat", 1)[0][0]
0

- An index that is saved stores these options, so it loads as it is where this library is installed. Options of
  ``SentenceEncoder`` are passed as ``vectors={"device": "cpu"}``.
- For a loaded encoder, pass a function: ``Embeddings(method="external", transform=lambda t: encoder.encode(t))``.
  Such an index does not store it, so pass it again: ``load(path, config={"transform": ...})``. Queries and documents go
  through the same function, without their prompts.
- txtai normalizes the vectors of each method.
"""

from __future__ import annotations

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
