"""BERTopic and KeyBERT: the embedding model that both take.

>>> from keybert import KeyBERT  # doctest: +SKIP
>>> from sbert.integrations.topics import keybert_backend
>>> words = KeyBERT(model=keybert_backend("sbert-mini"))  # doctest: +SKIP
>>> words.extract_keywords("Cats sleep in the warm house while taxes rise.", top_n=1)[0][0]  # doctest: +SKIP
'cats'

- ``BERTopic(embedding_model=bertopic_backend(model))`` is the same for topics.
- Without the backend, both take an encoder for an unknown object and download a model of their own, without a word.
- Many runs over one corpus: encode it once, and pass ``fit_transform(texts, embeddings=vectors)`` (BERTopic), or
  ``extract_keywords(texts, doc_embeddings=…, word_embeddings=…)`` (KeyBERT).
- A topic model that is saved does not contain the backend: pass it to ``BERTopic.load``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from sbert.integrations.loading import load_encoder


def _backend(base: Any, model: Any) -> Any:
    class SbertBackend(base):
        def embed(self, documents: Any, verbose: bool = False) -> npt.NDArray[np.float32]:
            vectors: npt.NDArray[np.float32] = self.embedding_model.encode(list(documents), show_progress_bar=verbose)
            return vectors

    return SbertBackend(embedding_model=load_encoder(model))


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
