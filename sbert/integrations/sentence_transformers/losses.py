"""Their ``losses``: made with a model and their parameters, they are our losses of vectors.

What the trainer needs from such a loss, the size of a chunk or a guide, stands in its ``for_trainer``.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from functools import partial, wraps
from typing import Any

from torch import Tensor, nn

from sbert import losses
from sbert.integrations.sentence_transformers.forms import DistanceMetric, SignatureAdapter, offer
from sbert.losses.module import LossModule

# Arguments for the trainer, which losses here do not take.
_FOR_TRAINER = ("model", "chunk", "chunk_tokens", "guide", "gather")


class NamedLoss(LossModule):
    """A loss of theirs: one of ours, which is made with a model.

    Called with features of texts, it runs the model. Their arguments are its attributes.
    """

    adapter: SignatureAdapter
    settings_of: Callable[..., dict[str, Any]]

    def __new__(cls, *args: Any, **options: Any) -> Any:  # Ours would refuse the model.
        return nn.Module.__new__(cls)

    def __init__(self, *args: Any, **options: Any) -> None:
        arguments = self.adapter.bind(args, options)
        settings = self.adapter.translate(arguments)
        model, chunk, tokens, guide, gather = (settings.pop(name, None) for name in _FOR_TRAINER)
        if gather is False and int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise ValueError("gather_across_devices=False: a loss sees the rows of all processes here; pass True")
        if settings.get("teacher_dim") is not None:
            settings["dim"] = model.get_embedding_dimension()
        if isinstance(self, losses.CrossEntropyLoss):
            settings["classes"] = model.classes
        settings = self.settings_of(**settings)
        super().__init__(**settings)
        tokens = tokens or (chunk and chunk * (getattr(model, "max_seq_length", None) or 512))
        needed = {"chunk_tokens": tokens, "guide": guide}
        self.for_trainer: dict[str, Any] = {name: value for name, value in needed.items() if value is not None}
        self._settings = {name: value for name, value in settings.items() if not callable(value)}
        # Past the registration of modules: the model's weights are not those of the loss.
        vars(self).update({name: value for name, value in arguments.items() if not hasattr(self, name)})

    def extra_repr(self) -> str:
        """The settings of ours, by which a checkpoint recognizes the loss."""
        return ", ".join(f"{name}={value!r}" for name, value in self._settings.items())


def loss_class(of: str, ours: type[LossModule], settings_of: Callable[..., dict[str, Any]] = dict) -> Any:
    """The class of a loss under their name; ``settings_of`` makes the settings of ours of the translated arguments."""
    members = {"settings_of": staticmethod(settings_of), "forward": _also_of_features(ours.forward)}
    return SignatureAdapter(of).make_class((NamedLoss, ours), __module__=__name__, **members)


def _also_of_features(forward: Callable[..., Any]) -> Callable[..., Any]:
    takes_labels = "labels" in inspect.signature(forward).parameters

    @wraps(forward)
    def forward_any(self: Any, *columns: Any, **more: Any) -> Any:
        if columns and isinstance(columns[0], (list, tuple)):
            features, labels = (*columns, *more.values(), None)[:2]
            columns = tuple(self.model(column)["sentence_embedding"] for column in features)
            signature = getattr(self, "signature", None)  # Of a loss that combines others.
            takes = takes_labels if signature is None else "labels" in signature.extras
            more = {"labels": labels} if takes else {}
        return forward(self, *columns, **more)

    return forward_any


def trainer_settings(loss: Any) -> dict[str, Any]:
    """The ``for_trainer`` of a loss and of those inside it."""
    parts = loss.modules() if isinstance(loss, nn.Module) else ()
    return {name: value for part in parts for name, value in getattr(part, "for_trainer", {}).items()}


# ------------------------------------------------------------------------- from their arguments to those of ours

_CONTRASTS = {
    "query_to_query": ["anchor-anchor"],
    "doc_to_query": ["positive-anchor"],
    "doc_to_doc": ["positive-positive", "positive-negative"],
}
_HARDNESS = {f"{mode}_negatives": mode for mode in ("in_batch", "hard", "all")}


def _ranking(
    directions: Any, partition: str, hardness_mode: str | None, hardness: float, **options: Any
) -> dict[str, Any]:
    symmetric = partition != "joint" and set(directions) == {"query_to_doc", "doc_to_query"}
    others = [] if symmetric else [direction for direction in directions if direction != "query_to_doc"]
    if (others and partition != "joint") or "query_to_doc" not in directions or set(others) - set(_CONTRASTS):
        raise ValueError(f"directions={directions}, partition_mode={partition!r}: pass 'joint', with 'query_to_doc'")
    if hardness_mode is not None:
        options |= {"hardness_mode": _HARDNESS[hardness_mode], "hardness": hardness}
    return {**options, "symmetric": symmetric, "contrast": [name for other in others for name in _CONTRASTS[other]]}


def _guide_settings(anchors: bool, positives: bool, strategy: str, **options: Any) -> dict[str, Any]:
    contrast = ["anchor-anchor"] * anchors + ["positive-positive"] * positives
    return {**options, "contrast": contrast, "relative_margin": strategy == "relative"}


def _divergence(temperature: float, student: float | None, teacher: float | None, **options: Any) -> dict[str, Any]:
    student, teacher = (temperature if value is None else value for value in (student, teacher))
    return {**options, "temperature": student, "teacher_temperature": teacher}


def _softmax(dim: int, classes: int, rep: bool, difference: bool, product: bool) -> dict[str, Any]:
    blocks = ["u", "v"] * rep + ["|u-v|"] * difference + ["u*v"] * product
    return {"dim": dim, "classes": classes, "concatenation": tuple(blocks)}


class _Margin(losses.MarginMSELoss):
    """Also of labels that are the teacher's scores, of the positive and of each negative."""

    def forward(self, anchor: Tensor, positive: Tensor, *negatives: Tensor, labels: Tensor) -> Tensor:
        if labels.ndim == 2 and labels.shape[1] == len(negatives) + 1:
            labels = labels[:, :1] - labels[:, 1:]  # (rows, negatives)
        return super().forward(anchor, positive, *negatives, labels=labels)


_SAME = (
    "CosineSimilarityLoss CoSENTLoss AnglELoss TripletLoss ContrastiveLoss OnlineContrastiveLoss BatchAllTripletLoss"
    " BatchHardTripletLoss BatchSemiHardTripletLoss MegaBatchMarginLoss GlobalOrthogonalRegularizationLoss"
    " MatryoshkaLoss"
).split()
_RANKING, _DISTILLATION = losses.MultipleNegativesRankingLoss, losses.EmbeddingDistillationLoss
_MADE: dict[str, tuple[Any, ...]] = {
    **{name: (getattr(losses, name),) for name in _SAME},
    "SoftmaxLoss": (losses.SoftmaxLoss, _softmax),
    "MultipleNegativesRankingLoss": (_RANKING, _ranking),
    "CachedMultipleNegativesRankingLoss": (_RANKING, _ranking),
    "MultipleNegativesSymmetricRankingLoss": (_RANKING, partial(dict, symmetric=True)),
    "CachedMultipleNegativesSymmetricRankingLoss": (_RANKING, partial(dict, symmetric=True)),
    "GISTEmbedLoss": (_RANKING, _guide_settings),
    "CachedGISTEmbedLoss": (_RANKING, _guide_settings),
    "BatchHardSoftMarginTripletLoss": (losses.BatchHardTripletLoss, partial(dict, margin=None)),
    "MSELoss": (_DISTILLATION, partial(dict, distance="mse")),
    "EmbedDistillLoss": (_DISTILLATION,),
    "MarginMSELoss": (_Margin,),
    "DistillKLDivLoss": (losses.DistillKLDivLoss, _divergence),
}
_NAMED: dict[str, Any] = {name: loss_class(f"losses.{name}", *settings) for name, settings in _MADE.items()}
_DISTANCES = ("TripletDistanceMetric", "SiameseDistanceMetric", "BatchHardTripletLossDistanceFunction")
_NAMED |= dict.fromkeys(_DISTANCES, DistanceMetric)
globals().update(_NAMED)
__all__ = list(_NAMED)
offer(__name__)
