"""RerankingEvaluator: whether a model puts the good ones of a query's candidates first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from sbert.evaluation.checks import texts
from sbert.evaluation.evaluator import Evaluator, Vectors
from sbert.evaluation.pair_scores import scores_of
from sbert.evaluation.ranking import average_precision_at, ndcg_at, reciprocal_rank_at
from sbert.functional import SIMILARITIES, check_similarity
from sbert.inputs.arguments import check_positive


class RerankingEvaluator(Evaluator):
    """How far up a query's own candidates the positive ones come: MAP, MRR and nDCG.

    Candidates are ranked by their similarity to the query, or by the scores of a ``CrossEncoder``. Of equal scores,
    negative candidates come first, so that a model to which all texts are the same gets no credit for it. Queries are
    encoded with the model's prompt of queries and candidates with that of documents, if it has them.

    Args:
        samples: Each a dict with the ``query``, its ``positive`` texts and its ``negative`` ones.
        k: Of MRR and nDCG.
        similarity: ``"cosine"``, ``"dot"``, ``"euclidean"`` or ``"manhattan"``.
        query_prompt: Before every query, in place of the model's for queries: the name of one of its prompts, or a
            text; ``""`` for none.
        document_prompt: Before every candidate, in place of the model's for documents.

    Raises:
        ValueError: If there are no samples, one lacks a key or has no positive or no negative text, or another
            argument does not fit.
        TypeError: If a text is no str.

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
        self.positives: list[int] = []  # How many of the candidates, from the first on.
        for row, sample in enumerate(samples):
            lists = []
            for key in ("positive", "negative"):
                if key not in sample or "query" not in sample:
                    raise ValueError(f"samples[{row}] has the keys {list(sample)}; pass query, positive and negative")
                lists.append(texts(f"samples[{row}][{key!r}]", sample[key]))
                if not lists[-1]:
                    raise ValueError(
                        f"samples[{row}] has no {key} text, so no order is better than another; leave it out"
                    )
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
        # All in one call, but not laid out at once: there may be a thousand candidates a query.
        vectors(list(dict.fromkeys(text for own in self.candidates for text in own)), "document", self.document_prompt)
        compare = SIMILARITIES[self.similarity]
        candidates = (vectors(own, "document", self.document_prompt) for own in self.candidates)
        return [compare(queries[i : i + 1], own)[0] for i, own in enumerate(candidates)]

    def _scores_of_pairs(self, vectors: Vectors) -> list[np.ndarray]:
        counts = [len(own) for own in self.candidates]
        first = [query for query, count in zip(self.queries, counts, strict=True) for _ in range(count)]
        scores = scores_of(vectors, first, [text for own in self.candidates for text in own])
        return np.split(scores, np.cumsum(counts)[:-1])
