"""RerankingEvaluator: whether a model ranks the relevant candidates of a query first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from sbert.evaluation.evaluator import Evaluator
from sbert.evaluation.pairs import scores_of
from sbert.evaluation.ranking import average_precision_at, ndcg_at, reciprocal_rank_at
from sbert.evaluation.vectors import Floats, Vectors
from sbert.functional import SIMILARITIES, check_similarity
from sbert.inputs.arguments import check_count
from sbert.inputs.texts import texts_of


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
        self._prompts = query_prompt, document_prompt
        self._queries: list[str] = []
        self._candidates: list[list[str]] = []
        self._positives: list[int] = []  # The number of positives, which are the first of the candidates.
        for row, sample in enumerate(samples):
            if not {"query", "positive", "negative"} <= {*sample}:
                raise ValueError(f"samples[{row}] has the keys {list(sample)}; pass query, positive and negative")
            self._queries += texts_of([sample["query"]], f"samples[{row}]['query']")
            positive, negative = (_candidates(row, sample, key) for key in ("positive", "negative"))
            self._candidates.append([*positive, *negative])
            self._positives.append(len(positive))
        if not self._queries:
            raise ValueError("there are no samples; pass at least one")
        self._k, self._similarity = check_count("k", k), check_similarity(similarity)

    def measure(self, vectors: Vectors) -> dict[str, float]:
        """MAP, MRR and nDCG."""
        scores = self._scores_of_pairs(vectors) if vectors.is_cross_encoder else self._scores(vectors)
        ranked = np.zeros((len(scores), max(map(len, scores))))  # (samples, most candidates)
        for row, own, positive in zip(ranked, scores, self._positives, strict=True):
            good = np.arange(len(own)) < positive
            row[: len(own)] = good[np.lexsort([good, -own])]
        return {
            "map": float(average_precision_at(ranked).mean()),
            f"mrr@{self._k}": float(reciprocal_rank_at(ranked, self._k).mean()),
            f"ndcg@{self._k}": float(ndcg_at(ranked, self._k).mean()),
        }

    def _scores(self, vectors: Vectors) -> list[Floats]:
        queries = vectors(self._queries, "query", self._prompts[0])
        # One call that encodes all texts. Later calls read a query's candidates, of which there may be thousands.
        vectors(list(dict.fromkeys(text for own in self._candidates for text in own)), "document", self._prompts[1])
        candidates = (vectors(own, "document", self._prompts[1]) for own in self._candidates)
        compare = SIMILARITIES[self._similarity]
        return [compare(query, own)[0] for query, own in zip(queries, candidates, strict=True)]

    def _scores_of_pairs(self, vectors: Vectors) -> list[Floats]:
        counts = [len(own) for own in self._candidates]
        first = [query for query, count in zip(self._queries, counts, strict=True) for _ in range(count)]
        scores = scores_of(vectors, first, [text for own in self._candidates for text in own])
        return np.split(scores, np.cumsum(counts)[:-1])


def _candidates(row: int, sample: Mapping[str, Any], key: str) -> list[str]:
    texts = texts_of(sample[key], f"samples[{row}][{key!r}]")
    if not texts:
        raise ValueError(f"samples[{row}] has no {key} text, so all orders are equally good; leave it out")
    return texts
