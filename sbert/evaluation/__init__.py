"""Evaluation: how good a model's vectors are.

An evaluator holds texts and what is known of them, and measures any model: it returns a flat dict of floats.

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

``SequentialEvaluator`` runs several of them, and encodes each text once:

>>> import tempfile
>>> from sbert import SentenceEncoder
>>> from sbert.evaluation import RetrievalEvaluator, SequentialEvaluator, SimilarityEvaluator
>>> first, second = ["The cat sleeps."] * 3, ["A kitten is napping.", "The dog sleeps.", "Taxes go up."]
>>> similarity = SimilarityEvaluator(first, second, scores=[4.6, 2.5, 0.0])
>>> answers = {"a": "A kitten is napping.", "b": "Taxes go up."}
>>> retrieval = RetrievalEvaluator({"q": "Who sleeps?"}, answers, relevant={"q": {"a"}})
>>> everything = SequentialEvaluator({"sts": similarity, "search": retrieval})
>>> model = SentenceEncoder()
>>> metrics = everything(model, output=f"{tempfile.mkdtemp()}/results.csv")  # adds a line; .jsonl works, too
>>> metrics["search_ndcg@10"], metrics["sts_spearman"]
(1.0, 1.0)

Rows of the readers in ``sbert.data`` and tuples are taken as they are by ``SimilarityEvaluator.from_rows(rows)``, as by
the evaluators of triplets, labels and pair classification.

Given to a ``sbert.Trainer``, an evaluator runs every ``evaluate_every`` steps, and its first figure decides which model
is the best. Under ``torchrun`` the processes share the work. The model may be any object with ``encode(list of str)``;
``prompt=``, or ``query_prompt=`` and ``document_prompt=``, replace the model's own prompts. A ``sbert.CrossEncoder`` is
accepted where pairs are scored: similarity, labels, pair classification, triplets and reranking.

## An evaluator of your own

It is a class with one method. ``vectors`` encodes texts, and each text only once for all evaluators:

>>> from sbert.evaluation import Evaluator
>>> class Spread(Evaluator):
...     '''The standard deviation of the vectors of some sentences: 0 if all vectors are equal.'''
...
...     def measure(self, vectors):
...         return {"spread": vectors(second).std(axis=0).mean()}
>>> Spread()(model)["spread"] > 0
True

The metrics are also functions of arrays, in ``sbert.evaluation.metrics`` and ``sbert.evaluation.ranking_metrics``.
``paired_bootstrap`` says whether a difference of two systems on the same queries is more than chance.

## Pitfalls

- ``STSSuite``: the score of a year is that of all its pairs in one list (SentEval's *all*), as in most tables.
  ``STS12_mean`` and so on are the means over the sub-sets. Other papers report these; compare equal metrics only.
- ``RetrievalEvaluator``: relevance is a set of ids, or grades by id, which are the gain of nDCG. The corpus is encoded
  and searched in blocks, so its vectors need not fit in memory.
- ``PairClassificationEvaluator`` chooses the threshold on the data that it measures: a metric for a product needs a
  threshold from other data (``metrics.best_threshold``).
- The transfer tasks of SentEval are in ``examples/paper/transfer.py``, an evaluator like any other.
- Equal scores share a rank; no metric depends on the order of rows.
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
