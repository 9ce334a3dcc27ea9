"""Their ``cross_encoder.losses``: our losses of scores."""

from __future__ import annotations

from typing import Any

from torch import nn

from sbert import losses
from sbert.integrations.sentence_transformers.forms import Form, absent, factories


def _crossentropy(model: Any) -> nn.Module:
    return losses.CrossEntropyLoss(model.classes)


def _binary(model: Any) -> nn.Module:
    return losses.BinaryCrossEntropyLoss()


def _squared(model: Any, activation: Any = None) -> nn.Module:
    return losses.SquaredErrorLoss(activation)


FORMS = {
    "BinaryCrossEntropyLoss": Form(_binary, "model activation_fn! pos_weight!"),
    "CrossEntropyLoss": Form(_crossentropy, "model activation_fn!"),
    "MSELoss": Form(_squared, "model activation_fn=activation"),
}

globals().update(factories(FORMS))
__all__ = [*FORMS]
__getattr__ = absent(__name__)
