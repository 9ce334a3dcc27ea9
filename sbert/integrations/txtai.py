"""txtai: the function that its external vectors are made with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sbert.integrations.loading import loaded


def transform(model: Any = None, **options: Any) -> Callable[[list[str]], Any]:
    """A function from texts to vectors, for ``Embeddings(method="external", transform=)``.

    Args:
        model: An encoder, a folder or a name on the hub. Default: the model of the library.
        options: Of ``SentenceEncoder``, if the model is not loaded yet.

    Example:
        >>> transform()(["A cat sleeps."]).shape
        (1, 256)
    """
    encoder = loaded(model, **options)

    def vectors(texts: list[str]) -> Any:
        return encoder.encode(list(texts))

    return vectors
