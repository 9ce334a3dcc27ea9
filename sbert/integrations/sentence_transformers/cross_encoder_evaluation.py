"""Their ``cross_encoder.evaluation``: our evaluators of pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sbert import evaluation
from sbert.integrations.sentence_transformers.evaluation import COMMON, Kind, evaluators
from sbert.integrations.sentence_transformers.forms import absent


def _correlation(pairs: Sequence[Sequence[str]], scores: Any) -> evaluation.Evaluator:
    first, second = zip(*pairs, strict=True)
    return evaluation.SimilarityEvaluator(first, second, scores)


def _classes(pairs: Sequence[Sequence[str]], labels: Any) -> evaluation.Evaluator:
    kind = evaluation.LabelEvaluator if max(labels) > 1 else evaluation.PairClassificationEvaluator
    first, second = zip(*pairs, strict=True)
    made: evaluation.Evaluator = kind(first, second, labels)
    return made


def _reranking(samples: Any, k: int = 10, always_rerank_positives: bool = True) -> evaluation.Evaluator:
    """With their default, the positives that a retriever missed are ranked after those that it found."""
    listed = list(samples.values() if isinstance(samples, Mapping) else samples)
    if always_rerank_positives:
        listed = [
            {**one, "documents": [*one["documents"], *one["positive"]]} if "documents" in one else one for one in listed
        ]
    return evaluation.RerankingEvaluator(listed, k)


_CORRELATION = Kind(_correlation, f"sentence_pairs=pairs scores {COMMON} prompt_name!", "{name}", "spearman")
_CLASSES = Kind(  # The first metric decides.
    _classes, f"sentence_pairs=pairs labels {COMMON} prompt_name!", "{name}", "", {"macro_f1": "f1_macro"}
)
_RERANKING = Kind(
    _reranking,
    f"samples at_k=k always_rerank_positives {COMMON} prompt_name!",
    "{name}",
    "ndcg@",
)
KINDS = {
    "CrossEncoderCorrelationEvaluator": _CORRELATION,
    "CECorrelationEvaluator": _CORRELATION,
    "CrossEncoderClassificationEvaluator": _CLASSES,
    "CEBinaryClassificationEvaluator": _CLASSES,
    "CrossEncoderRerankingEvaluator": _RERANKING,
    "CERerankingEvaluator": _RERANKING,
}
globals().update(evaluators(KINDS))
__all__ = [*KINDS]
__getattr__ = absent(__name__)
