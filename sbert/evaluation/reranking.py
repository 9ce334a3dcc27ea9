"""RerankingEvaluator: whether a model ranks the relevant candidates of a query first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from sbert.evaluation.evaluator import Evaluator
from sbert.evaluation.model_vectors import ModelVectors
from sbert.evaluation.pair_evaluators import score_candidates
from sbert.evaluation.ranking_metrics import average_precision_at, ndcg_at, pad, recall_at, reciprocal_rank_at
from sbert.functional import ALL_SIMILARITIES, check_similarity
from sbert.inputs.arguments import check_count
from sbert.inputs.texts import texts_of


class RerankingEvaluator(Evaluator):
    """MAP, MRR and nDCG of the positive texts among each query's own candidates.

    The candidates are positives and negatives; or, with ``documents``, what a retriever found, best first. Then a
    positive that it missed counts as not found, ``base_map`` and so on are the metrics of its own order, and ``recall``
    is the fraction of the positives that it found, averaged over the queries: no reranker finds more.

    Candidates are ranked by their similarity to the query, or by the scores of a ``CrossEncoder``. Among equal
    scores, negatives come first, so that a model that gives all texts the same vector scores low. Queries are encoded
    with the model's prompt for queries and candidates with its prompt for documents, if it has these.

    Args:
        samples: Dicts with the keys ``query`` (a text), ``positive`` and ``negative`` (lists of texts), or
            ``documents`` in place of ``negative``; the same in all samples. Of ``documents``, one that is listed twice
            counts once.
        k: Number of results that MRR and nDCG use.
        similarity: As in ``RetrievalEvaluator``.
        query_prompt: The prompt before every query, instead of the model's prompt for queries: the name of a prompt,
            a text, or ``""`` for none.
        document_prompt: The prompt before every candidate, instead of the model's prompt for documents.

    Raises:
        ValueError: If there are no samples, a sample lacks a key or has no positive or no negative text, or another
            argument is invalid.
        TypeError: If a text is not a str.

    Example:
        >>> from sbert import SentenceEncoder
        >>> from sbert.evaluation import RerankingEvaluator
        >>> model = SentenceEncoder()
        >>> sample = {"query": "A cat.", "positive": ["A kitten."], "negative": ["Taxes rise.", "It rains."]}
        >>> RerankingEvaluator([sample])(model)
        {'map': 1.0, 'mrr@10': 1.0, 'ndcg@10': 1.0}
        >>> sample = {"query": "A cat.", "positive": ["A kitten.", "Cats."], "documents": ["It rains.", "A kitten."]}
        >>> metrics = RerankingEvaluator([sample])(model)
        >>> metrics["map"], metrics["base_map"], metrics["recall"]
        (0.5, 0.25, 0.5)
    """

    def __init__(
        self,
        samples: Iterable[Mapping[str, Any]],
        k: int = 10,
        similarity: str | None = None,
        *,
        query_prompt: str | None = None,
        document_prompt: str | None = None,
    ) -> None:
        self._prompts, samples = (query_prompt, document_prompt), list(samples)
        if not samples:
            raise ValueError("there are no samples; pass at least one")
        self._queries: list[str] = []
        self._candidates: list[list[str]] = []
        self._grades: list[list[float]] = []  # Of the candidates.
        self._relevant: list[list[float]] = []  # The grades of all positives, whether they are candidates or not.
        self._retrieved = "documents" in samples[0]  # Whether the candidates are those of a retriever.
        other = "documents" if self._retrieved else "negative"
        for row, sample in enumerate(samples):
            if not {"query", "positive", other} <= {*sample} or {"documents", "negative"} <= {*sample}:
                raise ValueError(f"samples[{row}] has the keys {list(sample)}; pass query, positive and {other}")
            self._queries += texts_of([sample["query"]], f"samples[{row}]['query']")
            positive, further = _check_texts(row, sample, "positive"), _check_texts(row, sample, other)
            if self._retrieved:
                positive, candidates = list(dict.fromkeys(positive)), list(dict.fromkeys(further))
                self._grades.append([float(text in positive) for text in candidates])
            else:
                candidates = [*positive, *further]
                self._grades.append([1.0] * len(positive) + [0.0] * len(further))
            self._candidates.append(candidates)
            self._relevant.append([1.0] * len(positive))
        self._k, self._similarity = check_count("k", k), similarity and check_similarity(similarity, ALL_SIMILARITIES)

    def measure(self, vectors: ModelVectors) -> dict[str, float]:
        """MAP, MRR and nDCG; with the candidates of a retriever, the same of its own order, and its recall."""
        scores = score_candidates(vectors, self._queries, self._candidates, self._similarity, self._prompts)
        orders = (np.lexsort((np.asarray(grades), -row)) for grades, row in zip(self._grades, scores, strict=True))
        metrics = self._rate([[grades[i] for i in order] for grades, order in zip(self._grades, orders, strict=True)])
        if self._retrieved:
            metrics |= {f"base_{name}": value for name, value in self._rate(self._grades).items()}
            metrics["recall"] = float(recall_at(pad(self._grades), None, pad(self._relevant)).mean())
        return metrics

    def _rate(self, grades: list[list[float]]) -> dict[str, float]:
        """The metrics from the grades of the candidates in ranked order."""
        ranked, relevant = pad(grades), pad(self._relevant)
        return {
            "map": float(average_precision_at(ranked, None, relevant).mean()),
            f"mrr@{self._k}": float(reciprocal_rank_at(ranked, self._k).mean()),
            f"ndcg@{self._k}": float(ndcg_at(ranked, self._k, relevant).mean()),
        }


def _check_texts(row: int, sample: Mapping[str, Any], key: str) -> list[str]:
    """The texts of a sample, which may only be missing among the candidates of a retriever."""
    texts = texts_of(sample[key], f"samples[{row}][{key!r}]")
    if not texts and key != "documents":
        raise ValueError(f"samples[{row}] has no {key} text, so all orders are equally good; leave it out")
    return texts
