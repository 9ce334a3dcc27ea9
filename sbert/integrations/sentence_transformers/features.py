"""Their dictionaries of features, around models, modules and losses that take tokens and vectors here."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from inspect import signature
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from sbert.batch import TokenBatch, TokenEmbeddings
from sbert.losses.module import is_model_like
from sbert.losses.signature import Signature
from sbert.modules import register_module

LABELS = ("label", "labels", "score", "scores")


def padded_features(model: Any, texts: Iterable[Any]) -> dict[str, Tensor]:
    """The padded features of texts, or of pairs of texts."""
    length = model.max_seq_length
    limit = {"truncation": length is not None, "max_length": length}
    return dict(model.tokenizer(list(texts), padding=True, return_tensors="pt", **limit))


def add_embeddings(model: Any, features: dict[str, Any]) -> dict[str, Any]:
    """Add the vectors of an encoder to features; those that have vectors stay as they are."""
    if "sentence_embedding" in features:
        return features
    mask = features["attention_mask"].to(model.device).bool()  # (rows, longest)
    offsets = nn.functional.pad(mask.sum(1).cumsum(0), (1, 0))
    values: Any = TokenBatch(features["input_ids"].to(model.device)[mask], offsets)
    for module in model:
        values = module(values)
        if isinstance(values, TokenEmbeddings):
            features["token_embeddings"] = values.padded()[0]
    features["sentence_embedding"] = values
    return features


class Module(nn.Module):
    """A module of the caller that takes features and returns them; ``config_keys`` are saved with it.

    Its features are ``token_embeddings`` and ``attention_mask``, or ``sentence_embedding``.
    """

    config_keys: ClassVar[list[str]] = []

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        register_module(cls)

    @property
    def config(self) -> dict[str, Any]:
        """The arguments of the class, by name."""
        return {name: getattr(self, name) for name in self.config_keys}

    def __call__(self, values: Any) -> Any:
        """Features for features, vectors for tokens or vectors.

        Raises:
            TypeError: If the module reads another feature.
        """
        if isinstance(values, dict):
            return super().__call__(values)
        features, mask = {"sentence_embedding": values}, None
        if not isinstance(values, Tensor):
            padded, mask = values.padded()
            features = {"token_embeddings": padded, "attention_mask": mask.long()}
        try:
            result = super().__call__(features)
        except KeyError as error:
            what = f"{type(self).__name__} reads the feature {error}; it gets {' and '.join(features)}"
            raise TypeError(f"{what}: derive it from these, or write a module of sbert.modules") from error
        if "sentence_embedding" in result:
            return result["sentence_embedding"]
        return replace(values, values=result["token_embeddings"][mask])


class FeaturesModule(Module):
    """A module that takes features and inherits from ``nn.Module`` alone."""

    config_keys: ClassVar[list[str]] = ["module"]  # No JSON: as there, it cannot be saved.

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, features: dict[str, Any]) -> Any:
        return self.module(features)


def adapt_module(module: Any) -> Any:
    """The module, or one around it if it takes features as modules of theirs do."""
    is_plain = isinstance(module, nn.Module) and type(module).__call__ is nn.Module.__call__
    return FeaturesModule(module) if is_plain and "features" in signature(module.forward).parameters else module


class LossOfFeatures(nn.Module):
    """A loss of features as one of vectors: for its model, the features have their vectors already."""

    def __init__(self, loss: nn.Module) -> None:
        super().__init__()
        for name in [name for name, part in loss.named_children() if is_model_like(part)]:
            vars(loss)[name] = loss._modules.pop(name)  # Its weights are trained already.
        self.loss = loss

    def forward(self, *sentences: Tensor, labels: Tensor | None = None) -> Tensor:
        value = self.loss([{"sentence_embedding": column} for column in sentences], labels)
        return torch.stack(list(value.values())).sum() if isinstance(value, dict) else value


def join_documents(rows: Any, loss: Any) -> Any:
    """Rows with one column per document as rows of a query, documents and labels, for a loss of lists."""
    names = list(getattr(rows, "column_names", None) or ())
    label = next((name for name in names if name in LABELS), None)
    query, *documents = [name for name in names if name != label] or [""]
    if not documents or not Signature.of(loss).takes_lists or not isinstance(rows[0][documents[0]], str):
        return rows
    joined = [{"query": row[query], "documents": [row[name] for name in documents]} for row in rows]
    for new, row in zip(joined, rows, strict=True):
        if label is not None:  # Labels of negatives alone are differences from the positive's.
            values = np.atleast_1d(row[label]).tolist()
            new["labels"] = values if len(values) == len(documents) else [0.0, *(-margin for margin in values)]
    return joined


def as_loss(loss: Any) -> Any:
    """The loss, which takes vectors afterwards if it took features.

    Raises:
        TypeError: If it takes the texts of pairs, as losses of their cross-encoders do.
    """
    names = list(signature(loss.forward).parameters) if isinstance(loss, nn.Module) else [""]
    if names[:1] == ["inputs"]:
        name = type(loss).__name__
        raise TypeError(
            f"{name} takes texts; a loss of a CrossEncoder takes scores here: forward(self, scores, *, labels)"
        )
    return LossOfFeatures(loss) if names[:1] in (["sentence_features"], ["features"]) else loss
