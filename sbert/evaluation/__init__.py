"""Evaluation: how good a model's vectors are."""

from sbert.evaluation.evaluator import Evaluator, Sequence, Vectors, write_line
from sbert.evaluation.metrics import spearman
from sbert.evaluation.similarity import SimilarityEvaluator

__all__ = ["Evaluator", "Sequence", "SimilarityEvaluator", "Vectors", "spearman", "write_line"]
