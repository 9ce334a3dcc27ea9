"""RetrievalEvaluator: whether a model finds the documents that are relevant to a query, or ranks candidates well."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from sbert.evaluation import ranking_metrics
from sbert.evaluation.evaluator import Evaluator
from sbert.evaluation.model_vectors import ModelVectors
from sbert.evaluation.pair_evaluators import score_candidates
from sbert.functional import ALL_SIMILARITIES, check_similarity
from sbert.inputs.arguments import check_count, check_number
from sbert.inputs.texts import texts_of
from sbert.search import semantic_search

Relevant = Mapping[Any, Iterable[Any] | Mapping[Any, float]]

# The metrics of a ranking from the grades of its first results, k, and the grades of all relevant documents.
_METRICS: dict[str, Callable[[np.ndarray, int, np.ndarray], np.ndarray]] = {
    "ndcg": ranking_metrics.ndcg_at,
    "accuracy": lambda ranked, k, _: ranking_metrics.hit_at(ranked, k),
    "precision": lambda ranked, k, _: ranking_metrics.precision_at(ranked, k),
    "recall": ranking_metrics.recall_at,
    "mrr": lambda ranked, k, _: ranking_metrics.reciprocal_rank_at(ranked, k),
    "map": ranking_metrics.average_precision_at,
}

# Numbers of a block of vectors: 256 MB.
_NUMBERS = 1 << 26


class RetrievalEvaluator(Evaluator):
    """Ranking metrics of a search for each query in a corpus of documents.

    The metrics are means over the queries: ``ndcg@k``, ``accuracy@k`` (the fraction of queries with a relevant
    document among the first k), ``precision@k``, ``recall@k``, ``mrr@k`` and ``map@k``. Queries are encoded with the
    model's prompt for queries and documents with its prompt for documents, if it has these. Documents are encoded and
    compared in blocks, one block in memory at a time; a corpus of a single block is shared with other evaluators.
    Documents with equal scores are ranked in the order of the corpus. Of sparse vectors, ``query_active_dims`` and
    ``document_active_dims`` are the mean numbers of dimensions that are not 0.

    With ``candidates``, the model ranks only the first ``rerank`` candidates of each query, as a reranker after another
    search; it may then be a ``CrossEncoder``, too. A relevant document that is not among them counts as not found.
    ``base_ndcg@10`` and so on are the metrics of the candidates in their given order, which equal scores keep.

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
        similarity: ``"cosine"``, ``"dot"``, ``"euclidean"`` or ``"manhattan"``; ``"maxsim"`` of multi-vector encoders.
            Default: that of sparse and multi-vector encoders, else the cosine.
        block: Maximum number of documents per block; fewer if their vectors would not fit 256 MB.
        candidates: For each query id, the ids of the documents that another search found, best first.
        rerank: Number of candidates of each query that the model ranks.
        query_prompt: The prompt before every query, instead of the model's prompt for queries: the name of a prompt,
            a text, or ``""`` for none.
        document_prompt: The prompt before every document, instead of the model's prompt for documents.

    Raises:
        ValueError: If an id has no text, a grade is not finite, no query has a relevant document, or another argument
            is invalid.
        TypeError: If an argument is not a dict by id, a text is not a str, a grade or a k is not a number, or the
            relevant ids are a single str.

    References:
        Thakur et al., 2021 (BEIR). https://arxiv.org/abs/2104.08663

    Example:
        >>> from sbert import SentenceEncoder
        >>> from sbert.evaluation import RetrievalEvaluator
        >>> model = SentenceEncoder()
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
        similarity: str | None = None,
        block: int = 50_000,
        candidates: Mapping[Any, Sequence[Any]] | None = None,
        rerank: int = 100,
        query_prompt: str | None = None,
        document_prompt: str | None = None,
    ) -> None:
        for name, texts in {"queries": queries, "corpus": corpus, "relevant": relevant}.items():
            if not isinstance(texts, Mapping):
                raise TypeError(f"{name} is of type {type(texts).__name__}; pass a dict by id: dict(enumerate({name}))")
        self._corpus, self._prompts = texts_of(corpus.values(), "the corpus"), (query_prompt, document_prompt)
        positions = {name: position for position, name in enumerate(corpus)}
        grades: dict[Any, dict[int, float]] = {}
        for query, judged in relevant.items():
            if query not in queries:
                raise ValueError(f"relevant names the query {query!r}, which has no text; add it to queries")
            grades[query] = _check_grades(query, judged, positions)
        # Of each query with relevant documents, their grades by their index in the corpus.
        self._relevant = [graded for graded in grades.values() if graded]
        if not self._relevant:
            raise ValueError("no query has a relevant document; pass at least one")
        asked = [query for query, graded in grades.items() if graded]
        self._queries = texts_of([queries[query] for query in asked], "the queries")
        rerank = check_count("rerank", rerank)
        self._candidates = (
            None if candidates is None else [_check_candidates(q, candidates, positions, rerank) for q in asked]
        )
        at = (ndcg_at, accuracy_at, precision_recall_at, precision_recall_at, mrr_at, map_at)
        by_name = zip(_METRICS, at, strict=True)
        self._metrics = [(name, check_count(f"{name}_at", k)) for name, ks in by_name for k in ks]
        self._block = check_count("block", block)
        self._similarity = similarity and check_similarity(similarity, ALL_SIMILARITIES)

    def measure(self, vectors: ModelVectors) -> dict[str, float]:
        """The metrics, each for its values of k."""
        active: dict[str, float] = {}
        if self._candidates is None:
            rankings = {"": self._search(vectors, active)}
        else:
            rankings = {"": self._rerank(vectors, self._candidates), "base_": self._candidates}
        relevant = ranking_metrics.pad(graded.values() for graded in self._relevant)  # (queries, most relevant)
        metrics = {}
        for prefix, rows in rankings.items():
            grades = ([graded.get(i, 0.0) for i in row] for graded, row in zip(self._relevant, rows, strict=True))
            ranked = ranking_metrics.pad(grades)  # (queries, depth)
            for name, k in self._metrics:
                metrics[f"{prefix}{name}@{k}"] = float(_METRICS[name](ranked, k, relevant).mean())
        return metrics | active

    def _search(self, vectors: ModelVectors, active: dict[str, float]) -> list[list[int]]:
        """The indices of the most similar documents for each query; sets the means of active dimensions."""
        queries = vectors(self._queries, "query", self._prompts[0])  # (queries, dim)
        block_size = max(1, min(self._block, _NUMBERS // max(1, sum(map(np.size, queries[:1])))))
        encode = vectors if len(self._corpus) <= block_size else vectors.encode_uncached
        depth = max(k for _, k in self._metrics)
        scores, indices, count = np.empty((len(queries), 0), np.float32), np.empty((len(queries), 0), np.int64), 0
        for start in range(0, len(self._corpus), block_size):
            block = encode(self._corpus[start : start + block_size], "document", self._prompts[1])
            count += int(np.count_nonzero(block)) if vectors.is_sparse else 0
            new = semantic_search(queries, block, depth, similarity=vectors.choose_similarity(self._similarity))
            scores = np.concatenate([scores, new.scores], 1)
            indices = np.concatenate([indices, new.indices + start], 1)
            order = np.argsort(-scores, axis=1, kind="stable")[:, :depth]  # Equal scores: earlier documents first.
            scores, indices = np.take_along_axis(scores, order, 1), np.take_along_axis(indices, order, 1)
        if vectors.is_sparse:
            active["query_active_dims"] = np.count_nonzero(queries) / len(queries)
            active["document_active_dims"] = count / len(self._corpus)
        listed: list[list[int]] = indices.tolist()
        return listed

    def _rerank(self, vectors: ModelVectors, candidates: list[list[int]]) -> list[list[int]]:
        """The candidates of each query by descending score."""
        texts = [[self._corpus[position] for position in row] for row in candidates]
        scores = score_candidates(vectors, self._queries, texts, self._similarity, self._prompts)
        orders = [np.argsort(-row, kind="stable") for row in scores]
        return [[row[i] for i in order] for row, order in zip(candidates, orders, strict=True)]


def _check_candidates(
    query: Any, candidates: Mapping[Any, Sequence[Any]], positions: Mapping[Any, int], most: int
) -> list[int]:
    """The indices of a query's first candidates in the corpus."""
    listed = candidates.get(query)
    if not listed or isinstance(listed, str) or not positions.keys() >= {*listed}:
        raise ValueError(f"candidates[{query!r}] is {listed!r:.60}; pass a list of one or more ids of the corpus")
    return [positions[name] for name in dict.fromkeys(listed)][:most]


def _check_grades(
    query: Any, judged: Iterable[Any] | Mapping[Any, float], positions: Mapping[Any, int]
) -> dict[int, float]:
    """Check the grades of a query's documents, and return those of the relevant ones by their index in the corpus."""
    if isinstance(judged, (str, bytes)):
        raise TypeError(f"relevant[{query!r}] is {judged!r}; pass a set of ids, or a dict of grades by id")
    graded = dict(judged) if isinstance(judged, Mapping) else dict.fromkeys(judged, 1.0)
    for name, grade in graded.items():
        if name not in positions:
            raise ValueError(f"relevant[{query!r}] names the document {name!r}, which is not in the corpus")
        check_number(f"relevant[{query!r}][{name!r}]", grade)
    return {positions[name]: grade for name, grade in graded.items() if grade > 0}
