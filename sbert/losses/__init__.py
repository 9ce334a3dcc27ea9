"""Losses: functions of columns of vectors that know no model."""

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
