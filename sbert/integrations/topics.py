"""BERTopic and KeyBERT: the embedding model that both take, which otherwise download one of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from sbert.integrations.loading import loaded


def _backend(base: Any, model: Any) -> Any:
    class SbertBackend(base):
        def embed(self, documents: Any, verbose: bool = False) -> npt.NDArray[np.float32]:
            vectors: npt.NDArray[np.float32] = self.embedding_model.encode(list(documents), show_progress_bar=verbose)
            return vectors

    return SbertBackend(embedding_model=loaded(model))


def keybert_backend(model: Any = None) -> Any:
    """What ``KeyBERT(model=)`` takes.

    Args:
        model: An encoder, a folder or a name on the hub. Default: the model of the library.
    """
    from keybert.backend import BaseEmbedder

    return _backend(BaseEmbedder, model)


def bertopic_backend(model: Any = None) -> Any:
    """What ``BERTopic(embedding_model=)`` takes.

    Args:
        model: An encoder, a folder or a name on the hub. Default: the model of the library.
    """
    from bertopic.backend import BaseEmbedder

    return _backend(BaseEmbedder, model)
