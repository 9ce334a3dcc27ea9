"""RerankingEvaluator: whether a model ranks the relevant candidates of a query first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from sbert.evaluation.checks import texts
from sbert.evaluation.evaluator import Evaluator
from sbert.evaluation.pair_scores import scores_of
from sbert.evaluation.ranking import average_precision_at, ndcg_at, reciprocal_rank_at
from sbert.evaluation.vectors import Vectors
from sbert.functional import SIMILARITIES, check_similarity
from sbert.inputs.arguments import check_positive


class RerankingEvaluator(Evaluator):
    """MAP, MRR and nDCG of the positive texts among each query's own candidates.

    Candidates are ranked by their similarity to the query, or by the scores of a ``CrossEncoder``. Among equal
    scores, negatives come first, so that a model that gives all texts the same vector scores low. Queries are encoded
    with the model's prompt for queries and candidates with its prompt for documents, if it has these.

    Args:
        samples: Dicts with the keys ``query`` (a text), ``positive`` and ``negative`` (lists of texts).
        k: Number of results that MRR and nDCG use.
        similarity: ``"cosine"``, ``"dot"``, ``"euclidean"`` or ``"manhattan"``.
        query_prompt: The prompt before every query, instead of the model's prompt for queries: the name of a prompt,
            a text, or ``""`` for none.
        document_prompt: The prompt before every candidate, instead of the model's prompt for documents.

    Raises:
        ValueError: If there are no samples, a sample lacks a key or has no positive or no negative text, or another
            argument is invalid.
        TypeError: If a text is not a str.

    Example:
        >>> sample = {"query": "A cat.", "positive": ["A kitten."], "negative": ["Taxes rise.", "It rains."]}
        >>> RerankingEvaluator([sample])(model)
        {'map': 1.0, 'mrr@10': 1.0, 'ndcg@10': 1.0}
    """

    def __init__(
        self,
        samples: Iterable[Mapping[str, Any]],
        k: int = 10,
        similarity: str = "cosine",
        *,
        query_prompt: str | None = None,
        document_prompt: str | None = None,
    ) -> None:
        self.query_prompt, self.document_prompt = query_prompt, document_prompt
        self.queries: list[str] = []
        self.candidates: list[list[str]] = []
        self.positives: list[int] = []  # The number of positives, which are the first of the candidates.
        for row, sample in enumerate(samples):
            lists = []
            for key in ("positive", "negative"):
                if key not in sample or "query" not in sample:
                    raise ValueError(f"samples[{row}] has the keys {list(sample)}; pass query, positive and negative")
                lists.append(texts(f"samples[{row}][{key!r}]", sample[key]))
                if not lists[-1]:
                    raise ValueError(f"samples[{row}] has no {key} text, so all orders are equally good; leave it out")
            self.queries += texts(f"samples[{row}]['query']", [sample["query"]])
            self.candidates.append([*lists[0], *lists[1]])
            self.positives.append(len(lists[0]))
        if not self.queries:
            raise ValueError("there are no samples; pass at least one")
        self.k, self.similarity = check_positive("k", k) or 1, check_similarity(similarity)

    def measure(self, vectors: Vectors) -> dict[str, float]:
        scores = self._scores_of_pairs(vectors) if vectors.is_cross_encoder else self._scores(vectors)
        ranked = np.zeros((len(scores), max(map(len, scores))))  # (samples, most candidates)
        for row, own, positive in zip(ranked, scores, self.positives, strict=True):
            good = np.arange(len(own)) < positive
            row[: len(own)] = good[np.lexsort([good, -own])]
        return {
            "map": float(average_precision_at(ranked).mean()),
            f"mrr@{self.k}": float(reciprocal_rank_at(ranked, self.k).mean()),
            f"ndcg@{self.k}": float(ndcg_at(ranked, self.k).mean()),
        }

    def _scores(self, vectors: Vectors) -> list[np.ndarray]:
        queries = vectors(self.queries, "query", self.query_prompt)
        # One call that encodes all texts. Later calls read a query's candidates, of which there may be thousands.
        vectors(list(dict.fromkeys(text for own in self.candidates for text in own)), "document", self.document_prompt)
        compare = SIMILARITIES[self.similarity]
        candidates = (vectors(own, "document", self.document_prompt) for own in self.candidates)
        return [compare(queries[i : i + 1], own)[0] for i, own in enumerate(candidates)]

    def _scores_of_pairs(self, vectors: Vectors) -> list[np.ndarray]:
        counts = [len(own) for own in self.candidates]
        first = [query for query, count in zip(self.queries, counts, strict=True) for _ in range(count)]
        scores = scores_of(vectors, first, [text for own in self.candidates for text in own])
        return np.split(scores, np.cumsum(counts)[:-1])
