"""Losses: functions of columns of vectors that know no model."""

from sbert.losses.batch_triplet import BatchAllTripletLoss, BatchHardTripletLoss, BatchSemiHardTripletLoss
from sbert.losses.classification import SoftmaxLoss
from sbert.losses.contrastive import ContrastiveLoss, OnlineContrastiveLoss
from sbert.losses.distillation import DistillKLDivLoss, MarginMSELoss, MSELoss
from sbert.losses.ranking import MultipleNegativesRankingLoss
from sbert.losses.regression import AnglELoss, CoSENTLoss, CosineSimilarityLoss
from sbert.losses.triplet import TripletLoss
from sbert.losses.wrappers import MatryoshkaLoss, WeightedSum

__all__ = [
    "AnglELoss",
    "BatchAllTripletLoss",
    "BatchHardTripletLoss",
    "BatchSemiHardTripletLoss",
    "CoSENTLoss",
    "ContrastiveLoss",
    "CosineSimilarityLoss",
    "DistillKLDivLoss",
    "MSELoss",
    "MarginMSELoss",
    "MatryoshkaLoss",
    "MultipleNegativesRankingLoss",
    "OnlineContrastiveLoss",
    "SoftmaxLoss",
    "TripletLoss",
    "WeightedSum",
]
