"""``SentenceTransformer`` and ``CrossEncoder``: ours, with tensors of similarities and the old ``fit``."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sbert import cross_encoder, encoder
from sbert.integrations.sentence_transformers import fitting


class SentenceTransformer(encoder.SentenceEncoder):
    """A ``SentenceEncoder`` whose similarities are tensors, and that has the old ``fit``."""

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Tensor:  # type: ignore[override]
        """The similarity of each row of one and each of the other: (rows, rows)."""
        return torch.as_tensor(super().similarity(embeddings1, embeddings2))

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Tensor:  # type: ignore[override]
        """The similarities of the rows of both in turn: (rows,)."""
        return torch.as_tensor(super().similarity_pairwise(embeddings1, embeddings2))

    def fit(self, train_objectives: Any, evaluator: Any = None, **options: Any) -> None:
        """Train with a ``DataLoader`` of ``InputExample`` and a loss, or several such pairs in turn."""
        fitting.fit(self, list(train_objectives), evaluator, **options)

    old_fit = fit


class CrossEncoder(cross_encoder.CrossEncoder):
    """Ours, with the old ``fit``."""

    def fit(self, train_dataloader: Any, evaluator: Any = None, loss_fct: Any = None, **options: Any) -> None:  # type: ignore[override]
        """Train with a ``DataLoader`` of ``InputExample``; ``loss_fct`` is one of our losses of scores."""
        fitting.fit(self, [(train_dataloader, loss_fct)], evaluator, **options)

    old_fit = fit
