"""Their ``cross_encoder``, with its losses and its evaluation: our losses of scores and evaluators of pairs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

import sbert.evaluation as evaluators
import sbert.losses as score_losses
from sbert.integrations.sentence_transformers.encoders import CrossEncoder
from sbert.integrations.sentence_transformers.evaluation import NANOBEIR, EvaluatorSpec, evaluator_class, read_nanobeir
from sbert.integrations.sentence_transformers.forms import LAZY, make_module, offer
from sbert.integrations.sentence_transformers.forms import ModelCardData as CrossEncoderModelCardData
from sbert.integrations.sentence_transformers.losses import loss_class
from sbert.integrations.sentence_transformers.training import CrossEncoderTrainer


class _Binary(score_losses.BinaryCrossEntropyLoss):
    """With the weight of the label 1."""

    def __init__(self, pos_weight: Tensor | None) -> None:
        super().__init__()
        self.pos_weight = pos_weight

    def forward(self, scores: Tensor, *, labels: Tensor) -> Tensor:
        weight = None if self.pos_weight is None else self.pos_weight.to(scores.device)
        scores, labels = self._check_scores(scores, labels, 1)
        return F.binary_cross_entropy_with_logits(scores.squeeze(1), labels.to(scores.dtype), pos_weight=weight)


class _Contrastive(score_losses.LocalizedContrastiveLoss):
    """The sigmoid of the scores, as theirs; without in-batch negatives of texts that are listed for the same query."""

    def __init__(self, temperature: float, in_batch: int | None, activation: Any) -> None:
        super().__init__(temperature, math.inf if in_batch is None else in_batch)
        self.activation = activation

    def forward(self, *scores: Tensor, **more: Any) -> Tensor:
        return super().forward(*map(self.activation, scores), **more)


class _InOrder(score_losses.ListMLELoss):
    """With ``in_order``, the order of a query's documents is the right one, whatever their labels are."""

    def __init__(self, in_order: bool, position_aware: bool = False) -> None:
        super().__init__(position_aware)
        self.in_order = in_order

    def forward(self, *scores: Tensor, labels: Tensor, mask: Tensor | None = None) -> Tensor:
        if self.in_order:
            labels = -torch.arange(labels.shape[1], dtype=torch.float32, device=labels.device).expand_as(labels)
        return super().forward(*scores, labels=labels, mask=mask)


def _correlation(pairs: Sequence[Sequence[str]], scores: Any) -> evaluators.Evaluator:
    first, second = zip(*pairs, strict=True)
    return evaluators.SimilarityEvaluator(first, second, scores)


class _SeveralClasses(evaluators.LabelEvaluator):
    """F1 over all classes, by two means; the first one decides."""

    def measure(self, vectors: evaluators.ModelVectors) -> dict[str, float]:
        """The metrics by their names; the accuracy is the micro-averaged F1."""
        metrics = super().measure(vectors)
        return {"f1_macro": metrics["macro_f1"], "f1_micro": metrics["accuracy"]}


def _classes(pairs: Sequence[Sequence[str]], labels: Any) -> Any:
    kind: Any = _SeveralClasses if max(labels) > 1 else evaluators.PairClassificationEvaluator
    return kind(*zip(*pairs, strict=True), labels)


class _AllPositives(evaluators.RerankingEvaluator):
    """Positives that a retriever missed are ranked, too; its own metrics are 0 for a query of which it found none."""

    def __init__(self, samples: list[dict[str, Any]], k: int) -> None:
        complete = [{**sample, "documents": [*sample["documents"], *sample["positive"]]} for sample in samples]
        super().__init__(complete, k)
        pairs = zip(samples, complete, strict=True)
        retrieved = [few if set(few["documents"]).isdisjoint(few["positive"]) else whole for few, whole in pairs]
        self._retriever = evaluators.RerankingEvaluator(retrieved, k)

    def measure(self, vectors: evaluators.ModelVectors) -> dict[str, float]:
        """The metrics, and those of the retriever."""
        base = self._retriever._rate(self._retriever._grades)
        return super().measure(vectors) | {f"base_{name}": value for name, value in base.items()}


def _reranking(samples: Any, k: int, positives: bool) -> evaluators.Evaluator:
    samples = list(samples.values() if isinstance(samples, Mapping) else samples)
    kind = _AllPositives if positives and "documents" in samples[0] else evaluators.RerankingEvaluator
    return kind(samples, k)


class _NanoBEIR(evaluators.Evaluator):
    """The means over the data sets, and the metrics of each, whose candidates are those of BM25."""

    def __init__(self, dataset_names: Any, dataset_id: str, rerank: int, k: int, positives: bool) -> None:
        self._parts, self._mean = {}, f"NanoBEIR_R{rerank}_mean"
        if dataset_names is None:  # Theirs leaves out the two whose task is to find arguments.
            dataset_names = [name for name in NANOBEIR.split() if name not in ("ArguAna", "Touche2020")]
        for name, (queries, corpus, relevant, candidates) in read_nanobeir(dataset_id, dataset_names).items():
            samples = [
                {
                    "query": text,
                    "positive": [corpus[document] for document in relevant[query]],
                    "documents": [corpus[document] for document in candidates[query][:rerank]],
                }
                for query, text in queries.items()
            ]
            self._parts[f"{name}_R{rerank}"] = _reranking(samples, k, positives)

    def measure(self, vectors: evaluators.ModelVectors) -> dict[str, float]:
        """The metrics by their names."""
        parts = {name: part.measure(vectors) for name, part in self._parts.items()}
        names = [name for name in next(iter(parts.values())) if name != "recall"]
        names.sort(key=lambda name: not name.startswith("ndcg"))  # The first one decides.
        means = {name: float(np.mean([metrics[name] for metrics in parts.values()])) for name in names}
        parts = {self._mean: means, **parts}
        return {f"{part}_{name}": parts[part][name] for part in parts for name in names}


_LOSSES: dict[str, tuple[Any, ...]] = {
    "BinaryCrossEntropyLoss": (_Binary,),
    "CrossEntropyLoss": (score_losses.CrossEntropyLoss,),
    "MSELoss": (score_losses.SquaredErrorLoss,),
    "MarginMSELoss": (score_losses.ScoreMarginMSELoss,),
    "ListNetLoss": (score_losses.ListNetLoss,),
    "ListMLELoss": (_InOrder,),
    "PListMLELoss": (_InOrder, partial(dict, position_aware=True)),
    "RankNetLoss": (score_losses.LambdaLoss, partial(dict, weighting="none")),
    "LambdaLoss": (score_losses.LambdaLoss,),
    "MultipleNegativesRankingLoss": (_Contrastive,),
    "CachedMultipleNegativesRankingLoss": (_Contrastive,),
}
# Names of weightings, under the names of their classes.
_SCHEMES = {
    "NoWeightingScheme": "none",
    "NDCGLoss1Scheme": "ndcg_loss1",
    "NDCGLoss2Scheme": "ndcg_loss2",
    "NDCGLoss2PPScheme": "ndcg_loss2++",
    "LambdaRankScheme": "lambda_rank",
}
_SPECS = {
    "CrossEncoderCorrelationEvaluator": EvaluatorSpec(_correlation, "{name}", "spearman"),
    "CrossEncoderClassificationEvaluator": EvaluatorSpec(_classes, "{name}", ""),
    "CrossEncoderRerankingEvaluator": EvaluatorSpec(_reranking, "{name}", "ndcg@"),
    "CrossEncoderNanoBEIREvaluator": EvaluatorSpec(_NanoBEIR, "{name}", ""),
}
_OLDER = {"Correlation": "Correlation", "Reranking": "Reranking"}
_OLDER |= dict.fromkeys(("BinaryAccuracy", "BinaryClassification", "F1", "SoftmaxAccuracy"), "Classification")


_loss_classes = {name: loss_class(f"cross_encoder.losses.{name}", *settings) for name, settings in _LOSSES.items()}
_named = {name: evaluator_class(f"cross_encoder.evaluation.{name}", spec) for name, spec in _SPECS.items()}
_named |= {f"CE{old}Evaluator": _named[f"CrossEncoder{new}Evaluator"] for old, new in _OLDER.items()}


def _name_weighting(name: str, value: str) -> type[str]:
    return type(name, (str,), {"__new__": lambda cls, mu=10.0: str.__new__(cls, value)})  # noqa: ARG005


_schemes = {name: _name_weighting(name, value) for name, value in _SCHEMES.items()}
losses = make_module(f"{__name__}.losses", {**_loss_classes, **_schemes})
evaluation = make_module(f"{__name__}.evaluation", _named)
__all__ = ["CrossEncoder", "CrossEncoderModelCardData", "CrossEncoderTrainer", "evaluation", "losses"]
__all__ += [name for name in LAZY if name.startswith("Cross")]
offer(__name__)
