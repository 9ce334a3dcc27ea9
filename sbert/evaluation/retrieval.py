"""RetrievalEvaluator: whether a model finds the documents that are relevant to a query."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np

from sbert.evaluation import ranking
from sbert.evaluation.evaluator import Evaluator
from sbert.evaluation.vectors import Floats, Vectors
from sbert.functional import check_similarity
from sbert.inputs.arguments import check_count
from sbert.inputs.texts import texts_of
from sbert.search import semantic_search

Relevant = Mapping[Any, Iterable[Any] | Mapping[Any, float]]

# The metrics of a ranking from the grades of its first results, k, and the grades of all relevant documents.
_METRICS: dict[str, Callable[[np.ndarray, int, np.ndarray], np.ndarray]] = {
    "ndcg": ranking.ndcg_at,
    "accuracy": lambda ranked, k, _: ranking.hit_at(ranked, k),
    "precision": lambda ranked, k, _: ranking.precision_at(ranked, k),
    "recall": ranking.recall_at,
    "mrr": lambda ranked, k, _: ranking.reciprocal_rank_at(ranked, k),
    "map": ranking.average_precision_at,
}


class RetrievalEvaluator(Evaluator):
    """Ranking metrics of a search for each query in a corpus of documents.

    The metrics are means over the queries: ``ndcg@k``, ``accuracy@k`` (the fraction of queries with a relevant
    document among the first k), ``precision@k``, ``recall@k``, ``mrr@k`` and ``map@k``. Queries are encoded with the
    model's prompt for queries and documents with its prompt for documents, if it has these. Documents are encoded and
    compared in blocks, one block in memory at a time; a corpus of a single block is shared with other evaluators.
    Documents with equal scores are ranked in the order of the corpus.

    Args:
        queries: Texts by id.
        corpus: Documents by id.
        relevant: For each query id, either the ids of the relevant documents, or a dict from document ids to grades.
            nDCG uses the grades as gains (1 if there are no grades); the other metrics treat a grade above 0 as
            relevant. Queries without a relevant document are left out.
        accuracy_at: The values of k for accuracy.
        precision_recall_at: The values of k for precision and recall.
        mrr_at: The values of k for MRR.
        ndcg_at: The values of k for nDCG.
        map_at: The values of k for MAP.
        similarity: ``"cosine"``, ``"dot"``, ``"euclidean"`` or ``"manhattan"``.
        block: Number of documents per block.
        query_prompt: The prompt before every query, instead of the model's prompt for queries: the name of a prompt,
            a text, or ``""`` for none.
        document_prompt: The prompt before every document, instead of the model's prompt for documents.

    Raises:
        ValueError: If an id has no text, a grade is not finite, no query has a relevant document, or another argument
            is invalid.
        TypeError: If a text is not a str, a grade or a k is not a number, or the relevant ids are a single str.

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
        self._corpus, self._prompts = texts_of(corpus.values(), "the corpus"), (query_prompt, document_prompt)
        places = {name: place for place, name in enumerate(corpus)}
        known: dict[Any, dict[int, float]] = {}
        for query, judged in relevant.items():
            if query not in queries:
                raise ValueError(f"relevant names the query {query!r}, which has no text; add it to queries")
            known[query] = _grades(query, judged, places)
        # Of each query with relevant documents, their grades by their index in the corpus.
        self._relevant = [graded for graded in known.values() if graded]
        if not self._relevant:
            raise ValueError("no query has a relevant document; pass at least one")
        self._queries = texts_of([queries[query] for query, graded in known.items() if graded], "the queries")
        at = (ndcg_at, accuracy_at, precision_recall_at, precision_recall_at, mrr_at, map_at)
        self._metrics: list[tuple[str, int]] = []  # Each with its k.
        for name, ks in zip(_METRICS, at, strict=True):
            if isinstance(ks, (int, str)):
                raise TypeError(f"the values of k for {name} are {ks!r}; pass a tuple such as (1, 10) or (10,)")
            self._metrics += [(name, check_count(f"{name}_at", k)) for k in ks]
        if not self._metrics:
            raise ValueError("there is no metric to compute; pass ndcg_at=(10,) or another")
        self._block, self._similarity = check_count("block", block), check_similarity(similarity)

    def measure(self, vectors: Vectors) -> dict[str, float]:
        """The metrics, each for its values of k."""
        queries = vectors(self._queries, "query", self._prompts[0])  # (queries, dim)
        depth = max(k for _, k in self._metrics)
        places = semantic_search(queries, self._blocks(vectors), depth, similarity=self._similarity).indices
        ranked = np.array(
            [[own.get(place, 0.0) for place in row] for own, row in zip(self._relevant, places.tolist(), strict=True)]
        )  # (queries, depth)
        # (queries, most relevant documents), padded with 0
        relevant = np.array([*zip_longest(*(own.values() for own in self._relevant), fillvalue=0.0)]).T
        return {f"{name}@{k}": float(_METRICS[name](ranked, k, relevant).mean()) for name, k in self._metrics}

    def _blocks(self, vectors: Vectors) -> Iterator[Floats]:
        if len(self._corpus) <= self._block:
            yield vectors(self._corpus, "document", self._prompts[1])
            return
        for start in range(0, len(self._corpus), self._block):
            yield vectors.fresh(self._corpus[start : start + self._block], "document", self._prompts[1])


def _grades(query: Any, judged: Iterable[Any] | Mapping[Any, float], places: Mapping[Any, int]) -> dict[int, float]:
    """Check the grades of a query's documents, and return those of the relevant ones by their index in the corpus."""
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
    return {places[name]: grade for name, grade in graded.items() if grade > 0}
