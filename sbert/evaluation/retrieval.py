"""RetrievalEvaluator: whether a model finds the documents that answer a query."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from sbert.evaluation.checks import texts
from sbert.evaluation.evaluator import Evaluator, Vectors
from sbert.evaluation.ranking import average_precision_at, hit_at, ndcg_at, precision_at, recall_at, reciprocal_rank_at
from sbert.functional import check_similarity
from sbert.inputs.arguments import check_positive
from sbert.search import semantic_search

Relevant = Mapping[Any, Iterable[Any] | Mapping[Any, float]]


class RetrievalEvaluator(Evaluator):
    """How well the documents that are most similar to each query are those that are relevant to it.

    Figures, each a mean over the queries: ``ndcg@k``, ``accuracy@k`` (of queries with something relevant among the
    first k), ``precision@k``, ``recall@k``, ``mrr@k`` and ``map@k``. Queries are encoded with the model's prompt of
    queries and documents with that of documents, if it has them. Documents are encoded and compared in blocks, of which
    one at a time is in memory; a corpus of one block is shared with other evaluators. Of documents with equal scores,
    the first in the corpus comes first.

    Args:
        queries: Texts by id.
        corpus: Documents by id.
        relevant: For ids of queries, either the ids of the documents that are relevant, or the grades of documents by
            id. The gain of nDCG is the grade, or 1 where there are no grades; for all else, what counts is whether the
            grade is over 0. Queries to which nothing is relevant are left out.
        accuracy_at: Each k of accuracy.
        precision_recall_at: Each k of precision and recall.
        mrr_at: Each k of MRR.
        ndcg_at: Each k of nDCG.
        map_at: Each k of MAP.
        similarity: ``"cosine"``, ``"dot"``, ``"euclidean"`` or ``"manhattan"``.
        block: Documents in a block.
        query_prompt: Before every query, in place of the model's for queries: the name of one of its prompts, or a
            text; ``""`` for none.
        document_prompt: Before every document, in place of the model's for documents.

    Raises:
        ValueError: If an id has no text, a grade is not finite, nothing is relevant to any query, or another argument
            does not fit.
        TypeError: If a text is no str, a grade or a k is no number, or the ids that are relevant are a single str.

    References:
        Thakur et al., 2021 (BEIR). https://arxiv.org/abs/2104.08663

    Example:
        >>> corpus = {"a": "A kitten naps on the sofa.", "b": "Taxes rise again."}
        >>> evaluator = RetrievalEvaluator({"q": "Where does the cat sleep?"}, corpus, {"q": {"a"}})
        >>> evaluator(model)["ndcg@10"]
        1.0
    """

    def __init__(
        self,
        queries: Mapping[Any, str],
        corpus: Mapping[Any, str],
        relevant: Relevant,
        *,
        accuracy_at: Sequence[int] = (1, 3, 5, 10),
        precision_recall_at: Sequence[int] = (1, 3, 5, 10),
        mrr_at: Sequence[int] = (10,),
        ndcg_at: Sequence[int] = (10,),
        map_at: Sequence[int] = (100,),
        similarity: str = "cosine",
        block: int = 50_000,
        query_prompt: str | None = None,
        document_prompt: str | None = None,
    ) -> None:
        self.query_prompt, self.document_prompt = query_prompt, document_prompt
        self.corpus = texts("the corpus", corpus.values())
        places = {name: place for place, name in enumerate(corpus)}
        # For each query with anything relevant, the grades of documents by their places in the corpus.
        self.relevant: dict[Any, dict[int, float]] = {}
        for query, judged in relevant.items():
            if query not in queries:
                raise ValueError(f"relevant names the query {query!r}, which has no text; pass it in queries, too")
            found = {places[name]: grade for name, grade in _grades(query, judged, places).items() if grade > 0}
            if found:
                self.relevant[query] = found
        if not self.relevant:
            raise ValueError("nothing is relevant to any query; pass at least one document that is")
        self.queries = texts("the queries", [queries[query] for query in self.relevant])
        self.at = {
            "ndcg": ndcg_at,
            "accuracy": accuracy_at,
            "precision": precision_recall_at,
            "recall": precision_recall_at,
            "mrr": mrr_at,
            "map": map_at,
        }
        for name, ks in self.at.items():
            if isinstance(ks, (int, str)):
                raise TypeError(f"the k of {name} are {ks!r}; pass several, such as (1, 10), or one as (10,)")
        self.depth = max((check_positive(f"{name}_at", k) or 0 for name, ks in self.at.items() for k in ks), default=0)
        if not self.depth:
            raise ValueError("there is nothing to measure; pass ndcg_at=(10,) or another")
        self.similarity, self.block = check_similarity(similarity), check_positive("block", block) or 1

    def measure(self, vectors: Vectors) -> dict[str, float]:
        asked = vectors(self.queries, "query", self.query_prompt)
        places = semantic_search(asked, self._blocks(vectors), self.depth, similarity=self.similarity).indices
        grades = list(self.relevant.values())
        # (queries, depth), and (queries, most that are relevant to one), 0 where there are fewer
        ranked = np.array(
            [[own.get(place, 0.0) for place in row] for own, row in zip(grades, places.tolist(), strict=True)]
        )
        relevant = np.zeros((len(grades), max(map(len, grades))))
        for row, own in zip(relevant, grades, strict=True):
            row[: len(own)] = list(own.values())
        figures = {
            "ndcg": lambda k: ndcg_at(ranked, k, relevant),
            "accuracy": lambda k: hit_at(ranked, k),
            "precision": lambda k: precision_at(ranked, k),
            "recall": lambda k: recall_at(ranked, k, relevant),
            "mrr": lambda k: reciprocal_rank_at(ranked, k),
            "map": lambda k: average_precision_at(ranked, k, relevant),
        }
        return {f"{name}@{k}": float(figures[name](k).mean()) for name, ks in self.at.items() for k in ks}

    def _blocks(self, vectors: Vectors) -> Iterator[np.ndarray]:
        if len(self.corpus) <= self.block:
            yield vectors(self.corpus, "document", self.document_prompt)
            return
        for start in range(0, len(self.corpus), self.block):
            yield vectors.fresh(self.corpus[start : start + self.block], "document", self.document_prompt)


def _grades(query: Any, judged: Iterable[Any] | Mapping[Any, float], places: Mapping[Any, int]) -> dict[Any, float]:
    """Grades by id, checked."""
    if isinstance(judged, (str, bytes)):
        raise TypeError(f"relevant[{query!r}] is {judged!r}; pass a set of ids, or a dict of grades by id")
    graded = dict(judged) if isinstance(judged, Mapping) else dict.fromkeys(judged, 1.0)
    for name, grade in graded.items():
        if name not in places:
            raise ValueError(f"relevant[{query!r}] names the document {name!r}, which is not in the corpus")
        if not isinstance(grade, (int, float, np.number, np.bool_)):
            raise TypeError(f"relevant[{query!r}] has the grade {grade!r} for {name!r}; pass numbers")
        if not np.isfinite(grade):
            raise ValueError(f"relevant[{query!r}] has the grade {grade} for {name!r}; pass finite numbers")
    return graded
