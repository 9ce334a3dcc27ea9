"""Their ``cross_encoder``, with its losses and its evaluation: our losses of scores and evaluators of pairs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

import sbert.evaluation as own_evaluation
import sbert.losses as own_losses
from sbert.evaluation.metrics import f1, macro_f1
from sbert.integrations.sentence_transformers.encoders import CrossEncoder
from sbert.integrations.sentence_transformers.evaluation import NANOBEIR, Kind, evaluator_class, read_nanobeir
from sbert.integrations.sentence_transformers.forms import ModelCardData as CrossEncoderModelCardData
from sbert.integrations.sentence_transformers.forms import absent, make_module
from sbert.integrations.sentence_transformers.losses import loss_class
from sbert.integrations.sentence_transformers.training import CrossEncoderTrainer, CrossEncoderTrainingArguments


class _Binary(own_losses.BinaryCrossEntropyLoss):
    """With the weight of the label 1."""

    def __init__(self, pos_weight: Tensor | None) -> None:
        super().__init__()
        self.pos_weight = pos_weight

    def forward(self, scores: Tensor, *, labels: Tensor) -> Tensor:
        weight = None if self.pos_weight is None else self.pos_weight.to(scores.device)
        scores, labels = self._check_scores(scores, labels, 1)
        return F.binary_cross_entropy_with_logits(scores.squeeze(1), labels.to(scores.dtype), pos_weight=weight)


class _Contrastive(own_losses.LocalizedContrastiveLoss):
    """The sigmoid of the scores, as theirs; without in-batch negatives of texts that are listed for the same query."""

    def __init__(self, temperature: float, in_batch: int | None, activation: Any) -> None:
        super().__init__(temperature, math.inf if in_batch is None else in_batch)
        self.activation = activation

    def forward(self, *scores: Tensor, **more: Any) -> Tensor:
        return super().forward(*map(self.activation, scores), **more)


class _InOrder(own_losses.ListMLELoss):
    """With ``in_order``, the order of a query's documents is the right one, whatever their labels are."""

    def __init__(self, in_order: bool, position_aware: bool = False) -> None:
        super().__init__(position_aware)
        self.in_order = in_order

    def forward(self, *scores: Tensor, labels: Tensor, mask: Tensor | None = None) -> Tensor:
        if self.in_order:
            labels = -torch.arange(labels.shape[1], dtype=torch.float32, device=labels.device).expand_as(labels)
        return super().forward(*scores, labels=labels, mask=mask)


class _RankNet(own_losses.LambdaLoss):
    """In the logarithm of theirs."""

    def __init__(self, **options: Any) -> None:
        super().__init__("none", **options)


class _PositionAware(_InOrder):
    def __init__(self, in_order: bool) -> None:
        super().__init__(in_order, position_aware=True)


def _correlation(pairs: Sequence[Sequence[str]], scores: Any) -> own_evaluation.Evaluator:
    first, second = zip(*pairs, strict=True)
    return own_evaluation.SimilarityEvaluator(first, second, scores)


class _SeveralClasses(own_evaluation.LabelEvaluator):
    """F1 over all classes by three means; the first one decides."""

    def measure(self, vectors: own_evaluation.Vectors) -> dict[str, float]:
        """The metrics by their names."""
        predicted, labels = self._score_pairs(vectors).argmax(1), self._labels
        weighted = [f1(predicted == each, labels == each) * np.mean(labels == each) for each in np.unique(labels)]
        return {
            "f1_macro": macro_f1(predicted, labels),
            "f1_micro": float(np.mean(predicted == labels)),
            "f1_weighted": float(sum(weighted)),
        }


def _classes(pairs: Sequence[Sequence[str]], labels: Any) -> Any:
    kind: Any = _SeveralClasses if max(labels) > 1 else own_evaluation.PairClassificationEvaluator
    return kind(*zip(*pairs, strict=True), labels)


class _AllPositives(own_evaluation.RerankingEvaluator):
    """Positives that a retriever missed are ranked, too; its own metrics are 0 for a query of which it found none."""

    def __init__(self, samples: list[dict[str, Any]], k: int) -> None:
        every = [{**one, "documents": [*one["documents"], *one["positive"]]} for one in samples]
        super().__init__(every, k)
        rows = zip(samples, every, strict=True)
        listed = [one if set(one["documents"]).isdisjoint(one["positive"]) else other for one, other in rows]
        self._retriever = own_evaluation.RerankingEvaluator(listed, k)

    def measure(self, vectors: own_evaluation.Vectors) -> dict[str, float]:
        """The metrics, and those of the retriever."""
        base = self._retriever._rate(self._retriever._grades)
        return super().measure(vectors) | {f"base_{name}": value for name, value in base.items()}


def _reranking(samples: Any, k: int, positives: bool) -> own_evaluation.Evaluator:
    listed = list(samples.values() if isinstance(samples, Mapping) else samples)
    kind = _AllPositives if positives and "documents" in listed[0] else own_evaluation.RerankingEvaluator
    return kind(listed, k)


class _NanoBEIR(own_evaluation.Evaluator):
    """The means over the data sets, and the figures of each, whose candidates are those of BM25."""

    def __init__(self, dataset_names: Any, dataset_id: str, rerank: int, k: int, positives: bool) -> None:
        self._parts = {}
        if dataset_names is None:  # Theirs leaves out the two whose task is to find arguments.
            dataset_names = [name for name in NANOBEIR.split() if name not in ("ArguAna", "Touche2020")]
        for name, (queries, corpus, relevant, candidates) in read_nanobeir(dataset_id, dataset_names).items():
            rows = [
                {
                    "query": text,
                    "positive": [corpus[each] for each in relevant[query]],
                    "documents": [corpus[each] for each in candidates[query][:rerank]],
                }
                for query, text in queries.items()
            ]
            self._parts[f"{name}_R{rerank}"] = _reranking(rows, k, positives)
        self._mean = f"NanoBEIR_R{rerank}_mean"

    def measure(self, vectors: own_evaluation.Vectors) -> dict[str, float]:
        """The metrics by their names."""
        figures = {name: part.measure(vectors) for name, part in self._parts.items()}
        names = [name for name in next(iter(figures.values())) if name != "recall"]
        metrics = sorted(names, key=lambda name: not name.startswith("ndcg"))  # The first one decides.
        means = {key: float(np.mean([own[key] for own in figures.values()])) for key in metrics}
        return {f"{name}_{key}": own[key] for name, own in {self._mean: means, **figures}.items() for key in metrics}


_LOSSES: dict[str, Any] = {
    "BinaryCrossEntropyLoss": _Binary,
    "CrossEntropyLoss": own_losses.CrossEntropyLoss,
    "MSELoss": own_losses.SquaredErrorLoss,
    "MarginMSELoss": own_losses.ScoreMarginMSELoss,
    "ListNetLoss": own_losses.ListNetLoss,
    "ListMLELoss": _InOrder,
    "PListMLELoss": _PositionAware,
    "RankNetLoss": _RankNet,
    "LambdaLoss": own_losses.LambdaLoss,
    "MultipleNegativesRankingLoss": _Contrastive,
    "CachedMultipleNegativesRankingLoss": _Contrastive,
}
# Names of weightings, under the names of their classes.
_SCHEMES = {
    "NoWeightingScheme": "none",
    "NDCGLoss1Scheme": "ndcg_loss1",
    "NDCGLoss2Scheme": "ndcg_loss2",
    "NDCGLoss2PPScheme": "ndcg_loss2++",
    "LambdaRankScheme": "lambda_rank",
}
_KINDS = {
    "CrossEncoderCorrelationEvaluator": Kind(_correlation, "{name}", "spearman"),
    "CrossEncoderClassificationEvaluator": Kind(_classes, "{name}", ""),
    "CrossEncoderRerankingEvaluator": Kind(_reranking, "{name}", "ndcg@"),
    "CrossEncoderNanoBEIREvaluator": Kind(_NanoBEIR, "{name}", ""),
}
_OLDER = {"Correlation": "Correlation", "Reranking": "Reranking"}
_OLDER |= dict.fromkeys(("BinaryAccuracy", "BinaryClassification", "F1", "SoftmaxAccuracy"), "Classification")


class PListMLELambdaWeight:
    """The weights of PListMLELoss, at their default."""

    def __repr__(self) -> str:
        return "PListMLELambdaWeight()"


_loss_classes = {name: loss_class(f"cross_encoder.losses.{name}", ours) for name, ours in _LOSSES.items()}
_evaluators = {name: evaluator_class(f"cross_encoder.evaluation.{name}", kind) for name, kind in _KINDS.items()}
_evaluators |= {f"CE{old}Evaluator": _evaluators[f"CrossEncoder{new}Evaluator"] for old, new in _OLDER.items()}


def _name_weighting(name: str, value: str) -> type[str]:
    return type(name, (str,), {"__new__": lambda cls, mu=10.0: str.__new__(cls, value)})  # noqa: ARG005


_schemes = {name: _name_weighting(name, value) for name, value in _SCHEMES.items()}
losses = make_module(
    f"{__name__}.losses",
    {**_loss_classes, **_schemes, "PListMLELambdaWeight": PListMLELambdaWeight},
    "CrossEncoder: losses",
)
evaluation = make_module(f"{__name__}.evaluation", _evaluators, "CrossEncoder: evaluation")
__all__ = ["CrossEncoder", "CrossEncoderModelCardData", "CrossEncoderTrainer", "CrossEncoderTrainingArguments"]
__all__ += ["evaluation", "losses"]
__getattr__ = absent(__name__, "Training")
