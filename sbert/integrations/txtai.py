"""txtai: the function that its external vectors are made with.

>>> import txtai  # doctest: +SKIP
>>> from sbert.integrations.txtai import transform
>>> embeddings = txtai.Embeddings(method="external", transform=transform())  # doctest: +SKIP
>>> embeddings.index(["A cat sleeps.", "Taxes rise."])  # doctest: +SKIP
>>> embeddings.search("a sleeping cat", 1)[0][0]  # doctest: +SKIP
0

- An index that is saved does not store the function: pass ``transform=`` when it is loaded.
- Queries and documents go through the same function, without the prompts of each. For a model with prompts, use
  ``method="sentence-transformers"`` with our class under that name, see ``sbert.integrations``.
- txtai normalizes the vectors of each method.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sbert.integrations.loading import load_encoder


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
