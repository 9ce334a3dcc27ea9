"""Evaluation: how good a model's vectors are."""

from sbert.evaluation.classification import LabelEvaluator, PairClassificationEvaluator
from sbert.evaluation.evaluator import Evaluator, SequentialEvaluator, Vectors, write_line
from sbert.evaluation.metrics import accuracy, f1, macro_f1, pearson, precision, recall, spearman
from sbert.evaluation.paraphrase import ParaphraseMiningEvaluator
from sbert.evaluation.ranking import average_precision_at, hit_at, ndcg_at, precision_at, recall_at, reciprocal_rank_at
from sbert.evaluation.reranking import RerankingEvaluator
from sbert.evaluation.retrieval import RetrievalEvaluator
from sbert.evaluation.similarity import SimilarityEvaluator
from sbert.evaluation.sts import STSSuite
from sbert.evaluation.thresholds import average_precision, best_threshold, cuts
from sbert.evaluation.transfer import TransferSuite
from sbert.evaluation.translation import TranslationEvaluator
from sbert.evaluation.triplet import TripletEvaluator

__all__ = [
    "Evaluator",
    "LabelEvaluator",
    "PairClassificationEvaluator",
    "ParaphraseMiningEvaluator",
    "RerankingEvaluator",
    "RetrievalEvaluator",
    "STSSuite",
    "SequentialEvaluator",
    "SimilarityEvaluator",
    "TransferSuite",
    "TranslationEvaluator",
    "TripletEvaluator",
    "Vectors",
    "accuracy",
    "average_precision",
    "average_precision_at",
    "best_threshold",
    "cuts",
    "f1",
    "hit_at",
    "macro_f1",
    "ndcg_at",
    "pearson",
    "precision",
    "precision_at",
    "recall",
    "recall_at",
    "reciprocal_rank_at",
    "spearman",
    "write_line",
]
