"""Evaluation: how good a model's vectors are. The guide is ``guide.md`` in this folder.

An evaluator holds texts and what is known about them, and measures any model: it returns a flat dict of floats.

| evaluator | measures |
|---|---|
| ``SimilarityEvaluator`` | Spearman and Pearson correlation of similarities and human scores |
| ``LabelEvaluator`` | accuracy and macro F1 of the head of a ``SoftmaxLoss`` |
| ``PairClassificationEvaluator`` | average precision, and accuracy and F1 at their best thresholds, of pairs |
| ``TripletEvaluator`` | how often an anchor is nearer to its positive than to its negative |
| ``RetrievalEvaluator`` | nDCG, accuracy, precision, recall, MRR and MAP at k |
| ``RerankingEvaluator`` | MAP, MRR and nDCG of each query's own candidates |
| ``ParaphraseMiningEvaluator`` | whether the most similar of all pairs are those that mean the same |
| ``TranslationEvaluator`` | whether a sentence and its translation are nearest to each other, both ways |
| ``MSEEvaluator`` | how near a student's vectors are to a teacher's, also for texts in another language |
| ``STSSuite`` | Spearman on STS12 to STS16, STS benchmark and SICK |
| ``NanoBEIRSuite`` | nDCG, recall, MRR and MAP on the data sets of NanoBEIR, by a search or by reranking candidates |
| ``SequentialEvaluator`` | several of them, each text encoded once |

>>> from sbert import SentenceEncoder
>>> from sbert.evaluation import RetrievalEvaluator
>>> documents = {"d1": "A kitten is napping.", "d2": "Taxes go up."}
>>> evaluator = RetrievalEvaluator({"q": "Who sleeps?"}, documents, relevant={"q": {"d1"}})
>>> evaluator(SentenceEncoder())["ndcg@10"]
1.0
"""

from sbert.evaluation import metrics, ranking_metrics
from sbert.evaluation.evaluator import Evaluator, SequentialEvaluator, write_line
from sbert.evaluation.metrics import paired_bootstrap
from sbert.evaluation.model_vectors import ModelVectors
from sbert.evaluation.nanobeir import NanoBEIRSuite
from sbert.evaluation.pair_evaluators import (
    LabelEvaluator,
    PairClassificationEvaluator,
    SimilarityEvaluator,
    TripletEvaluator,
)
from sbert.evaluation.paraphrase import ParaphraseMiningEvaluator
from sbert.evaluation.reranking import RerankingEvaluator
from sbert.evaluation.retrieval import RetrievalEvaluator
from sbert.evaluation.sts import STSSuite
from sbert.evaluation.translation import MSEEvaluator, TranslationEvaluator
from sbert.inputs.arguments import publish

__all__ = [
    "Evaluator",
    "LabelEvaluator",
    "MSEEvaluator",
    "ModelVectors",
    "NanoBEIRSuite",
    "PairClassificationEvaluator",
    "ParaphraseMiningEvaluator",
    "RerankingEvaluator",
    "RetrievalEvaluator",
    "STSSuite",
    "SequentialEvaluator",
    "SimilarityEvaluator",
    "TranslationEvaluator",
    "TripletEvaluator",
    "metrics",
    "paired_bootstrap",
    "ranking_metrics",
    "write_line",
]

publish(__name__)
