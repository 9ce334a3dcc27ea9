"""Their ``losses``: made with a model and their parameters, they are our losses of vectors.

What the trainer needs from such a loss, the size of a chunk or a guide, stands in its ``for_trainer``.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from functools import wraps
from typing import Any

from torch import Tensor, nn

from sbert import losses
from sbert.integrations.sentence_transformers.forms import DistanceMetric, Form, absent
from sbert.integrations.sentence_transformers.with_model import (  # noqa: F401
    AdaptiveLayerLoss,
    ContrastiveTensionDataLoader,
    ContrastiveTensionLoss,
    ContrastiveTensionLossInBatchNegatives,
    DenoisingAutoEncoderLoss,
    Matryoshka2dLoss,
)
from sbert.losses.module import LossModule

# Arguments for the trainer, which losses here do not take.
_FOR_TRAINER = ("model", "chunk", "chunk_tokens", "guide", "gather")


class Loss(LossModule):
    """A loss of theirs: one of ours, which is made with a model.

    Called with features of texts, it runs the model. Their arguments are its attributes.
    """

    form: Form

    def __new__(cls, *args: Any, **options: Any) -> Any:  # Ours would refuse the model.
        return nn.Module.__new__(cls)

    def __init__(self, *args: Any, **options: Any) -> None:
        theirs = self.form.bind(args, options)
        given = self.form.translate(theirs)
        model, chunk, tokens, guide, gather = (given.pop(name, None) for name in _FOR_TRAINER)
        if gather is False and int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise ValueError("gather_across_devices=False: a loss sees the rows of all processes here; pass True")
        if given.get("teacher_dim") is not None:
            given["dim"] = model.get_embedding_dimension()
        if isinstance(self, losses.CrossEntropyLoss):
            given["classes"] = model.classes
        super().__init__(**given)
        tokens = tokens or (chunk and chunk * (getattr(model, "max_seq_length", None) or 512))
        needed = {"chunk_tokens": tokens, "guide": guide}
        self.for_trainer: dict[str, Any] = {name: value for name, value in needed.items() if value is not None}
        self._settings = {name: value for name, value in given.items() if not callable(value)}
        # Past the registration of modules: the model's weights are not those of the loss.
        vars(self).update({name: value for name, value in theirs.items() if not hasattr(self, name)})

    def extra_repr(self) -> str:
        """What ours was given, by which a checkpoint recognizes the loss."""
        return ", ".join(f"{name}={value!r}" for name, value in self._settings.items())


def loss_class(of: str, ours: type[LossModule]) -> Any:
    """The class of a loss under their name."""
    return Form(of).make_class((Loss, ours), ours, __module__=__name__, forward=_also_of_features(ours.forward))


def _also_of_features(forward: Callable[..., Any]) -> Callable[..., Any]:
    takes_labels = "labels" in inspect.signature(forward).parameters

    @wraps(forward)
    def forward_any(self: Any, *columns: Any, **more: Any) -> Any:
        if columns and isinstance(columns[0], (list, tuple)):
            features, labels = (*columns, *more.values(), None)[:2]
            columns = tuple(self.model(each)["sentence_embedding"] for each in features)
            signature = getattr(self, "signature", None)  # Of a loss that combines others.
            takes = takes_labels if signature is None else "labels" in signature.extras
            more = {"labels": labels} if takes else {}
        return forward(self, *columns, **more)

    return forward_any


def settings(loss: Any) -> dict[str, Any]:
    """The ``for_trainer`` of a loss and of those inside it."""
    inner = loss.modules() if isinstance(loss, nn.Module) else ()
    return {name: value for one in inner for name, value in getattr(one, "for_trainer", {}).items()}


class _Guided(losses.MultipleNegativesRankingLoss):
    def __init__(self, anchors: bool, positives: bool, strategy: str, **options: Any) -> None:
        both = {"anchor-anchor": anchors, "positive-positive": positives}
        contrast = [name for name, wanted in both.items() if wanted]
        super().__init__(contrast=contrast, relative_margin=strategy == "relative", **options)


_CONTRASTS = {
    "query_to_query": ["anchor-anchor"],
    "doc_to_query": ["positive-anchor"],
    "doc_to_doc": ["positive-positive", "positive-negative"],
}
_HARDNESS = {f"{mode}_negatives": mode for mode in ("in_batch", "hard", "all")}


class _Ranking(losses.MultipleNegativesRankingLoss):
    def __init__(
        self,
        directions: Any = ("query_to_doc",),
        partition: str = "joint",
        hardness_mode: str | None = None,
        hardness: float = 0.0,
        **options: Any,
    ) -> None:
        symmetric = partition != "joint" and set(directions) == {"query_to_doc", "doc_to_query"}
        others = [] if symmetric else [each for each in directions if each != "query_to_doc"]
        if (others and partition != "joint") or "query_to_doc" not in directions or set(others) - set(_CONTRASTS):
            raise ValueError(
                f"directions={directions}, partition_mode={partition!r}: pass 'joint', with 'query_to_doc'"
            )
        if hardness_mode is not None:
            options |= {"hardness_mode": _HARDNESS[hardness_mode], "hardness": hardness}
        contrast = [name for each in others for name in _CONTRASTS[each]]
        super().__init__(symmetric=symmetric, contrast=contrast, **options)


class _Symmetric(losses.MultipleNegativesRankingLoss):
    def __init__(self, **options: Any) -> None:
        super().__init__(symmetric=True, **options)


class _Distilled(losses.EmbeddingDistillationLoss):
    def __init__(self, teacher_dim: int | None, dim: int | None = None, distance: str = "mse") -> None:
        super().__init__(dim, teacher_dim, distance)


class _Divergence(losses.DistillKLDivLoss):
    def __init__(self, temperature: float, student: float | None, teacher: float | None, **options: Any) -> None:
        student, teacher = (temperature if own is None else own for own in (student, teacher))
        super().__init__(student, teacher_temperature=teacher, **options)


class _Margin(losses.MarginMSELoss):
    """Also of labels that are the teacher's scores, of the positive and of each negative."""

    def forward(self, anchor: Tensor, positive: Tensor, *negatives: Tensor, labels: Tensor) -> Tensor:
        if labels.ndim == 2 and labels.shape[1] == len(negatives) + 1:
            labels = labels[:, :1] - labels[:, 1:]  # (rows, negatives)
        return super().forward(anchor, positive, *negatives, labels=labels)


class _Softmax(losses.SoftmaxLoss):
    def __init__(self, dim: int, classes: int, rep: bool, difference: bool, product: bool) -> None:
        blocks = [*(["u", "v"] if rep else []), *(["|u-v|"] if difference else []), *(["u*v"] if product else [])]
        super().__init__(dim, classes, tuple(blocks))


class _SoftMargin(losses.BatchHardTripletLoss):
    def __init__(self, distance: str) -> None:
        super().__init__(distance, None)


CosineSimilarityLoss = loss_class("losses.CosineSimilarityLoss", losses.CosineSimilarityLoss)
CoSENTLoss = loss_class("losses.CoSENTLoss", losses.CoSENTLoss)
AnglELoss = loss_class("losses.AnglELoss", losses.AnglELoss)
SoftmaxLoss = loss_class("losses.SoftmaxLoss", _Softmax)
MultipleNegativesRankingLoss = loss_class("losses.MultipleNegativesRankingLoss", _Ranking)
CachedMultipleNegativesRankingLoss = loss_class("losses.CachedMultipleNegativesRankingLoss", _Ranking)
MultipleNegativesSymmetricRankingLoss = loss_class("losses.MultipleNegativesSymmetricRankingLoss", _Symmetric)
CachedMultipleNegativesSymmetricRankingLoss = loss_class(
    "losses.CachedMultipleNegativesSymmetricRankingLoss", _Symmetric
)
GISTEmbedLoss = loss_class("losses.GISTEmbedLoss", _Guided)
CachedGISTEmbedLoss = loss_class("losses.CachedGISTEmbedLoss", _Guided)
TripletLoss = loss_class("losses.TripletLoss", losses.TripletLoss)
ContrastiveLoss = loss_class("losses.ContrastiveLoss", losses.ContrastiveLoss)
OnlineContrastiveLoss = loss_class("losses.OnlineContrastiveLoss", losses.OnlineContrastiveLoss)
BatchAllTripletLoss = loss_class("losses.BatchAllTripletLoss", losses.BatchAllTripletLoss)
BatchHardTripletLoss = loss_class("losses.BatchHardTripletLoss", losses.BatchHardTripletLoss)
BatchSemiHardTripletLoss = loss_class("losses.BatchSemiHardTripletLoss", losses.BatchSemiHardTripletLoss)
BatchHardSoftMarginTripletLoss = loss_class("losses.BatchHardSoftMarginTripletLoss", _SoftMargin)
MSELoss = loss_class("losses.MSELoss", _Distilled)
EmbedDistillLoss = loss_class("losses.EmbedDistillLoss", _Distilled)
MarginMSELoss = loss_class("losses.MarginMSELoss", _Margin)
DistillKLDivLoss = loss_class("losses.DistillKLDivLoss", _Divergence)
MegaBatchMarginLoss = loss_class("losses.MegaBatchMarginLoss", losses.MegaBatchMarginLoss)
GlobalOrthogonalRegularizationLoss = loss_class(
    "losses.GlobalOrthogonalRegularizationLoss", losses.GlobalOrthogonalRegularizationLoss
)
MatryoshkaLoss = loss_class("losses.MatryoshkaLoss", losses.MatryoshkaLoss)
TripletDistanceMetric = SiameseDistanceMetric = BatchHardTripletLossDistanceFunction = DistanceMetric
__all__ = [name for name in dir() if name.endswith("Loss") and name not in ("Loss",) and name[0] != "_"]
__all__ += ["BatchHardTripletLossDistanceFunction", "ContrastiveTensionDataLoader"]
__all__ += ["ContrastiveTensionLossInBatchNegatives", "SiameseDistanceMetric", "TripletDistanceMetric"]
__getattr__ = absent(__name__, "losses")
