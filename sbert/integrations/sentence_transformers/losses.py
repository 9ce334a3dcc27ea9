"""Their ``losses``: made with a model and their parameters, they are our losses of vectors.

What the trainer needs from such a loss, the size of a chunk or a guide, stands in its ``for_trainer``.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from typing import Any

from torch import nn

from sbert import losses
from sbert.integrations.sentence_transformers.forms import DistanceMetric, Form, absent, factories

_CHUNKS = " mini_batch_size=chunk mini_batch_num_tokens=chunk_tokens show_progress_bar=-"
_GATHER = " gather_across_devices=gather"
_SCALED = "scale=temperature similarity_fct=similarity"
_MODES = f"{_GATHER} directions! partition_mode! hardness_mode! hardness_strength!"
_DISTANCE = "distance_metric=distance margin"
_GUIDED = "guide temperature"
_CONTRAST = " margin_strategy=strategy margin=guide_margin contrast_anchors=anchors contrast_positives=positives"


_Ranking = losses.MultipleNegativesRankingLoss


def for_trainer(make: Callable[..., Any]) -> Callable[..., Any]:
    """A function that makes a loss, and leaves what the trainer needs in its ``for_trainer``."""

    @wraps(make)
    def make_loss(
        model: Any, chunk: int | None = None, chunk_tokens: int | None = None, guide: Any = None, **more: Any
    ) -> nn.Module:
        if more.pop("gather", None) is False and int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise ValueError("gather_across_devices=False: a loss sees the rows of all processes here; pass True")
        loss: nn.Module = make(**more)
        tokens = chunk_tokens or (chunk and chunk * (getattr(model, "max_seq_length", None) or 512))
        needed = {"chunk_tokens": tokens, "guide": guide}
        loss.for_trainer = {name: value for name, value in needed.items() if value is not None}  # type: ignore[assignment]
        return loss

    return make_loss


def settings(loss: Any) -> dict[str, Any]:
    """The ``for_trainer`` of a loss and of those inside it."""
    inner = loss.modules() if isinstance(loss, nn.Module) else ()
    return {name: value for one in inner for name, value in getattr(one, "for_trainer", {}).items()}


def _with_guide(anchors: bool = True, positives: bool = True, strategy: str = "absolute", **options: Any) -> nn.Module:
    both = {"anchor-anchor": anchors, "positive-positive": positives}
    contrast = [name for name, wanted in both.items() if wanted]
    return losses.MultipleNegativesRankingLoss(contrast=contrast, relative_margin=strategy == "relative", **options)


def _divergence(
    temperature: float = 1.0, student: float | None = None, teacher: float | None = None, **options: Any
) -> nn.Module:
    student, teacher = (temperature if own is None else own for own in (student, teacher))
    return losses.DistillKLDivLoss(student, teacher_temperature=teacher, **options)


def _cosent(similarity: str = "cosine", **options: Any) -> nn.Module:
    if similarity != "cosine":
        raise ValueError(f"CoSENTLoss compares by cosine, not {similarity!r}; write a loss of your own")
    return losses.CoSENTLoss(**options)


def _softmax(dim: int, classes: int, rep: bool = True, difference: bool = True, product: bool = False) -> nn.Module:
    blocks = [*(["u", "v"] if rep else []), *(["|u-v|"] if difference else []), *(["u*v"] if product else [])]
    return losses.SoftmaxLoss(dim, classes, tuple(blocks))


def _form(make: Callable[..., Any], names: str = "", **values: Any) -> Form:
    return Form(for_trainer(make), f"model {names}", values)


FORMS = {
    "CosineSimilarityLoss": _form(losses.CosineSimilarityLoss, "loss_fct! cos_score_transformation!"),
    "CoSENTLoss": _form(_cosent, _SCALED),
    "AnglELoss": _form(losses.AnglELoss, "scale=temperature"),
    "SoftmaxLoss": _form(
        _softmax,
        "sentence_embedding_dimension=dim num_labels=classes concatenation_sent_rep=rep"
        " concatenation_sent_difference=difference concatenation_sent_multiplication=product loss_fct!"
        " embedding_dimension=dim",
    ),
    "MultipleNegativesRankingLoss": _form(_Ranking, _SCALED + _MODES),
    "CachedMultipleNegativesRankingLoss": _form(_Ranking, _SCALED + _CHUNKS + _MODES, chunk=32),
    "MultipleNegativesSymmetricRankingLoss": _form(_Ranking, _SCALED + _GATHER, symmetric=True),
    "CachedMultipleNegativesSymmetricRankingLoss": _form(
        _Ranking, _SCALED + _CHUNKS + _GATHER, symmetric=True, chunk=32
    ),
    "GISTEmbedLoss": _form(_with_guide, _GUIDED + _CONTRAST + _GATHER, temperature=0.01),
    "CachedGISTEmbedLoss": _form(_with_guide, _GUIDED + _CHUNKS + _CONTRAST + _GATHER, temperature=0.01, chunk=32),
    "TripletLoss": _form(losses.TripletLoss, "distance_metric=distance triplet_margin=margin", margin=5.0),
    "ContrastiveLoss": _form(losses.ContrastiveLoss, f"{_DISTANCE} size_average!"),
    "OnlineContrastiveLoss": _form(losses.OnlineContrastiveLoss, _DISTANCE),
    "BatchAllTripletLoss": _form(losses.BatchAllTripletLoss, _DISTANCE),
    "BatchHardTripletLoss": _form(losses.BatchHardTripletLoss, _DISTANCE),
    "BatchSemiHardTripletLoss": _form(losses.BatchSemiHardTripletLoss, _DISTANCE),
    "BatchHardSoftMarginTripletLoss": _form(losses.BatchHardTripletLoss, "distance_metric=distance", margin=None),
    "MSELoss": _form(losses.MSELoss, "projection_dim!"),
    "MarginMSELoss": _form(losses.MarginMSELoss, "similarity_fct=similarity"),
    "DistillKLDivLoss": _form(
        _divergence,
        "similarity_fct=similarity temperature student_temperature=student teacher_temperature=teacher",
    ),
    "MatryoshkaLoss": _form(
        losses.MatryoshkaLoss, "loss matryoshka_dims=dims matryoshka_weights=weights n_dims_per_step!"
    ),
}

TripletDistanceMetric = SiameseDistanceMetric = BatchHardTripletLossDistanceFunction = DistanceMetric
for _name, _make in factories(FORMS).items():
    _make.makes_a_loss = True  # Trainers take the class, too.
    globals()[_name] = _make
__all__ = [*FORMS, "BatchHardTripletLossDistanceFunction", "SiameseDistanceMetric", "TripletDistanceMetric"]
__getattr__ = absent(__name__, "losses")
