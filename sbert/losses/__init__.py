"""Losses: functions of columns of vectors that know no model.

A loss never sees the model; the trainer does: ``Trainer(model, rows, CosineSimilarityLoss())``. The names of its
parameters are those of the data's columns; ``sbert.training.Signature`` has the rule.

**Rows that teach nothing.** Some losses compare the rows of a batch: MultipleNegativesRankingLoss without negatives
needs two rows, CoSENTLoss and AnglELoss two of different labels, OnlineContrastiveLoss two, the losses of batch
triplets two of one label and one of another. Losses with a classifier or of scores (SoftmaxLoss, CrossEntropyLoss,
BinaryCrossEntropyLoss, SquaredErrorLoss) need labels that differ, or one answer would do for all texts. All others
learn from any row: CosineSimilarityLoss and ContrastiveLoss from labels that are all 1, too, which draw texts together
and none apart, so put others beside them.

- Data that can teach a loss nothing is an error of the trainer before the first step, by the loss's ``check_data``.
- A batch that happens to teach nothing, such as the last of an epoch with one row, has the value 0 and no gradient.
  One class in a batch still teaches a classifier.

A loss of your own may have both methods, too: ``check_labels(labels)`` raises for labels that it does not take, and
``check_data(data)`` by ``data.rows`` of the largest batch, ``data.columns`` of text, and all ``data.labels``.

Example:
    >>> loss = CosineSimilarityLoss()
    >>> loss(torch.eye(2), torch.ones(2, 2), labels=torch.ones(2)).round(decimals=4)
    tensor(0.0858)
"""

from sbert.losses.batch_triplet import BatchAllTripletLoss, BatchHardTripletLoss, BatchSemiHardTripletLoss
from sbert.losses.classification import SoftmaxLoss
from sbert.losses.contrastive import ContrastiveLoss, OnlineContrastiveLoss
from sbert.losses.distillation import DistillKLDivLoss, MarginMSELoss, MSELoss
from sbert.losses.ranking import MultipleNegativesRankingLoss
from sbert.losses.regression import AnglELoss, CoSENTLoss, CosineSimilarityLoss
from sbert.losses.scores import BinaryCrossEntropyLoss, CrossEntropyLoss, SquaredErrorLoss
from sbert.losses.triplet import TripletLoss
from sbert.losses.wrappers import MatryoshkaLoss, WeightedSum

__all__ = [
    "AnglELoss",
    "BatchAllTripletLoss",
    "BatchHardTripletLoss",
    "BatchSemiHardTripletLoss",
    "BinaryCrossEntropyLoss",
    "CoSENTLoss",
    "ContrastiveLoss",
    "CosineSimilarityLoss",
    "CrossEntropyLoss",
    "DistillKLDivLoss",
    "MSELoss",
    "MarginMSELoss",
    "MatryoshkaLoss",
    "MultipleNegativesRankingLoss",
    "OnlineContrastiveLoss",
    "SoftmaxLoss",
    "SquaredErrorLoss",
    "TripletLoss",
    "WeightedSum",
]
