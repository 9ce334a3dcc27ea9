"""Their ``cross_encoder``, with its losses and its evaluation: our losses of scores and evaluators of pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sbert.evaluation as own_evaluation
import sbert.losses as own_losses
from sbert.integrations.sentence_transformers.encoders import CrossEncoder
from sbert.integrations.sentence_transformers.evaluation import COMMON, Kind, evaluators
from sbert.integrations.sentence_transformers.forms import Form, absent, factories, make_module
from sbert.integrations.sentence_transformers.training import CrossEncoderTrainer, CrossEncoderTrainingArguments

FORMS = {
    "BinaryCrossEntropyLoss": Form(own_losses.BinaryCrossEntropyLoss, "model=- activation_fn! pos_weight!"),
    "CrossEntropyLoss": Form(lambda model: own_losses.CrossEntropyLoss(model.classes), "model activation_fn!"),
    "MSELoss": Form(own_losses.SquaredErrorLoss, "model=- activation_fn=activation"),
}


def _correlation(pairs: Sequence[Sequence[str]], scores: Any) -> own_evaluation.Evaluator:
    first, second = zip(*pairs, strict=True)
    return own_evaluation.SimilarityEvaluator(first, second, scores)


def _classes(pairs: Sequence[Sequence[str]], labels: Any) -> own_evaluation.Evaluator:
    kind: Any = own_evaluation.LabelEvaluator if max(labels) > 1 else own_evaluation.PairClassificationEvaluator
    evaluator: own_evaluation.Evaluator = kind(*zip(*pairs, strict=True), labels)
    return evaluator


def _reranking(samples: Any, k: int = 10, always_rerank_positives: bool = True) -> own_evaluation.Evaluator:
    """With their default, the positives that a retriever missed are ranked after those that it found."""
    listed = list(samples.values() if isinstance(samples, Mapping) else samples)
    if always_rerank_positives:
        listed = [
            {**one, "documents": [*one["documents"], *one["positive"]]} if "documents" in one else one for one in listed
        ]
    return own_evaluation.RerankingEvaluator(listed, k)


_CORRELATION = Kind(_correlation, f"sentence_pairs=pairs scores {COMMON} prompt_name!", "{name}", "spearman")
_CLASSES = Kind(  # The first metric decides.
    _classes, f"sentence_pairs=pairs labels {COMMON} prompt_name!", "{name}", "", {"macro_f1": "f1_macro"}
)
_RERANKING = Kind(_reranking, f"samples at_k=k always_rerank_positives {COMMON} prompt_name!", "{name}", "ndcg@")
KINDS = {
    "CrossEncoderCorrelationEvaluator": _CORRELATION,
    "CECorrelationEvaluator": _CORRELATION,
    "CrossEncoderClassificationEvaluator": _CLASSES,
    "CEBinaryClassificationEvaluator": _CLASSES,
    "CrossEncoderRerankingEvaluator": _RERANKING,
    "CERerankingEvaluator": _RERANKING,
}
losses = make_module(f"{__name__}.losses", factories(FORMS), "CrossEncoder: losses")
evaluation = make_module(f"{__name__}.evaluation", evaluators(KINDS), "CrossEncoder: evaluation")
__all__ = ["CrossEncoder", "CrossEncoderTrainer", "CrossEncoderTrainingArguments", "evaluation", "losses"]
__getattr__ = absent(__name__, "Training")
