"""Evaluation: how good a model's vectors are."""

from sbert.evaluation.metrics import spearman
from sbert.evaluation.similarity import SimilarityEvaluator

__all__ = ["SimilarityEvaluator", "spearman"]
