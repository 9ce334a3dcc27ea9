"""Losses: functions of columns of vectors that know no model. The guide is ``guide.md`` in this folder.

| a row is | loss |
|---|---|
| two texts and a score | ``CoSENTLoss``, ``AnglELoss``, ``CosineSimilarityLoss`` |
| a question and its answer, with or without hard negatives | ``MultipleNegativesRankingLoss``, also as GISTEmbed |
| a question and its answer, in batches of hundreds | ``MegaBatchMarginLoss`` |
| anchor, positive, negative | ``TripletLoss``, or ``MultipleNegativesRankingLoss`` |
| two texts, and whether they belong together | ``OnlineContrastiveLoss``, ``ContrastiveLoss`` |
| two texts and a class, such as entailment | ``SoftmaxLoss``, with any concatenation of the paper's ablation |
| a text alone | ``ContrastiveTensionLoss``, or each text twice with ``MultipleNegativesRankingLoss`` (SimCSE) |
| a text and a class | ``BatchAllTripletLoss``, ``BatchHardTripletLoss``, ``BatchSemiHardTripletLoss`` |
| scores or vectors of a teacher | ``MarginMSELoss``, ``DistillKLDivLoss``; ``MSELoss``, ``EmbeddingDistillationLoss`` |
| pairs for a ``sbert.CrossEncoder`` | ``CrossEntropyLoss``, ``BinaryCrossEntropyLoss``, ``SquaredErrorLoss`` |
| a query, documents and their grades, for a ``CrossEncoder`` | ``LambdaLoss``, ``RankNetLoss``, ``ListMLELoss`` |
| the same with a teacher's scores | ``ListNetLoss``, ``ScoreMarginMSELoss`` |
| the same with the relevant document first, and negatives in the batch | ``LocalizedContrastiveLoss`` |
| any of these, around another loss | ``MatryoshkaLoss``, ``WeightedSum``; for sparse vectors, ``SpladeLoss`` |

A loss never sees the model; the trainer does. The names of its parameters are those of the data's columns.

>>> import torch
>>> from sbert.losses import CosineSimilarityLoss
>>> first, second = torch.eye(2), torch.eye(2)
>>> CosineSimilarityLoss()(first, second, labels=torch.tensor([1.0, 0.0]))
tensor(0.5000)
"""

from sbert.inputs.arguments import publish
from sbert.losses.distillation import DistillKLDivLoss, EmbeddingDistillationLoss, MarginMSELoss, MSELoss
from sbert.losses.lists import LambdaLoss, ListMLELoss, ListNetLoss, LocalizedContrastiveLoss, RankNetLoss
from sbert.losses.lists import ScoreMarginMSELoss as ScoreMarginMSELoss
from sbert.losses.margin_losses import (
    BatchAllTripletLoss,
    BatchHardTripletLoss,
    BatchSemiHardTripletLoss,
    ContrastiveLoss,
    OnlineContrastiveLoss,
    TripletLoss,
)
from sbert.losses.pair_losses import (
    AnglELoss,
    CoSENTLoss,
    CosineSimilarityLoss,
    GlobalOrthogonalRegularizationLoss,
    SoftmaxLoss,
)
from sbert.losses.ranking import ContrastiveTensionLoss, MegaBatchMarginLoss, MultipleNegativesRankingLoss
from sbert.losses.score_losses import BinaryCrossEntropyLoss, CrossEntropyLoss, SquaredErrorLoss
from sbert.losses.wrappers import MatryoshkaLoss, SpladeLoss, WeightedSum

__all__ = [
    "AnglELoss",
    "BatchAllTripletLoss",
    "BatchHardTripletLoss",
    "BatchSemiHardTripletLoss",
    "BinaryCrossEntropyLoss",
    "CoSENTLoss",
    "ContrastiveLoss",
    "ContrastiveTensionLoss",
    "CosineSimilarityLoss",
    "CrossEntropyLoss",
    "DistillKLDivLoss",
    "EmbeddingDistillationLoss",
    "GlobalOrthogonalRegularizationLoss",
    "LambdaLoss",
    "ListMLELoss",
    "ListNetLoss",
    "LocalizedContrastiveLoss",
    "MSELoss",
    "MarginMSELoss",
    "MatryoshkaLoss",
    "MegaBatchMarginLoss",
    "MultipleNegativesRankingLoss",
    "OnlineContrastiveLoss",
    "RankNetLoss",
    "ScoreMarginMSELoss",
    "SoftmaxLoss",
    "SpladeLoss",
    "SquaredErrorLoss",
    "TripletLoss",
    "WeightedSum",
]

publish(__name__)
