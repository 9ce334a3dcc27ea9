"""Fusion: one result from several, such as those of BM25, of vectors, and of a reranker."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from sbert.inputs.arguments import check_choice, check_count, check_number, known_arguments
from sbert.pipeline.notebook import Table
from sbert.search.exact.comparison import Hits
from sbert.search.index.bm25 import Postings, terms_of
from sbert.search.index.index_folder import Id

CANDIDATES = 1000  # Of each result in a hybrid search.
_BEST = 100  # Of the result of BM25, in which terms side by side count.
_OTHERS = {1: (1.0,), 2: (0.6, 0.4)}  # How vectors, or vectors and sparse vectors, share what BM25 leaves.


@known_arguments
def fuse(
    *hits: Hits,
    top_k: int = 10,
    method: str = "reciprocal_rank",
    weights: Sequence[float] | None = None,
    constant: float = 60,
) -> Hits:
    r"""The best ids of several results for the same queries.

    The score of an id is the sum, over the results that contain it,

    - for ``"reciprocal_rank"`` of ``weight / (constant + rank)``, with ranks from 1;
    - for ``"weighted"`` of ``weight * (score - min) / (max - min)``, with the least and the greatest score of the query
      in that result.

    In a result without negative scores for a query, a score of 0 means that a document has nothing in common with it:
    ``BM25`` returns such documents if no others remain. They do not count. Ids with equal scores are in the
    order of the first result, then of the second, and so on.

    Args:
        *hits: Results of ``semantic_search``, ``Index.search`` and ``BM25.search``, in any order and of any size. A
            result should have several times ``top_k`` ids per query: an id that one result has at rank 30 may be the
            best of all.
        top_k: Number of ids per query.
        method: ``"reciprocal_rank"``, which needs no comparable scores, or ``"weighted"``.
        weights: One weight of at least 0 per result; default: 1 for each.
        constant: Constant of reciprocal rank fusion, at least 0: the greater, the less the first ranks stand out.

    Shape:
        Each output: (queries, top_k), or fewer columns if the results have fewer different ids for a query.

    Raises:
        ValueError: If the results are of different numbers of queries, or an argument does not fit.
        TypeError: If a result is not ``Hits``, or the ids of one are integers, and of another strings.

    References:
        Cormack et al., 2009, Reciprocal rank fusion outperforms Condorcet and individual rank learning methods.
        https://doi.org/10.1145/1571941.1572114

    Example:
        >>> import numpy as np
        >>> from sbert.search import Hits, fuse
        >>> lexical = Hits(np.array([[9.0, 4.0, 0.0]]), np.array([[7, 5, 1]]))
        >>> dense = Hits(np.array([[0.8, 0.7, 0.1]]), np.array([[5, 2, 7]]))
        >>> fuse(lexical, dense, top_k=2).ids
        array([[5, 7]])
        >>> fuse(lexical, dense, top_k=2, method="weighted", weights=[1, 3]).scores.round(4)
        array([[3.4444, 2.5714]], dtype=float32)
    """
    count = check_count("top_k", top_k)
    check_choice("method", method, ("reciprocal_rank", "weighted"))
    if check_number("constant", constant) < 0:
        raise ValueError(f"constant={constant} is negative; pass at least 0")
    if not all(isinstance(result, Hits) and np.isfinite(result.scores).all() for result in hits):
        raise TypeError("a result is not Hits of finite scores; pass those of semantic_search or of a search method")
    counts = [len(result.ids) for result in hits]
    if len(set(counts)) != 1:
        raise ValueError(f"{len(hits)} results for {counts} queries were given; pass results for the same queries")
    if len({result.ids.dtype.kind for result in hits if result.ids.size}) > 1:
        raise TypeError("the ids of one result are integers, those of another strings; use the same ids in both")
    factors = [1.0] * len(hits) if weights is None else [check_number("a weight", weight) for weight in weights]
    if len(factors) != len(hits) or min(factors) < 0:
        raise ValueError(f"weights={weights} for {len(hits)} results; pass one of at least 0 for each")
    return blend(hits, count, factors, constant if method == "reciprocal_rank" else None)


def hybrid_hits(
    hits: Sequence[Hits], queries: Sequence[str], postings: Postings, language: str | None, top_k: int
) -> Hits:
    """The best of a hybrid search, from the results of BM25, of vectors and, if there are three, of sparse vectors.

    Their ids are positions. BM25 weighs a fiftieth of the mean number of terms of a document, between 0.3 and 0.5: a
    sentence often says in other words what is asked for. Without a language, where function words are terms, it weighs
    a hundredth, between 0.3 and 0.4. With one, two terms that are side by side in the query and in one of the best
    documents count a quarter more there. ``python -m tests.benchmarks.hybrid`` compares.

    References:
        Metzler and Croft, 2005, A Markov random field model for term dependencies.
        https://doi.org/10.1145/1076034.1076115
    """
    words, *others = hits
    scores = words.scores.copy()
    for query, row, ids in zip(queries, scores, words.ids, strict=True):
        if language is not None:
            row[:_BEST] += 0.25 * postings.side_by_side(terms_of(query, language), ids[:_BEST])
    most, full = (0.4, 100) if language is None else (0.5, 50)
    weight = min(max(postings.mean_length / full, 0.3), most)
    weights = weight, *((1 - weight) * part for part in _OTHERS[len(others)])
    return blend([Hits(scores, words.ids), *others], top_k, weights)


def blend(hits: Sequence[Hits], top_k: int, weights: Sequence[float], constant: float | None = None) -> Hits:
    """``fuse`` of results that need no check: by the ranks if there is a constant, otherwise by the scores."""
    shares, numbers = [], []  # What each hit adds to the score of its id, and the number of its result.
    for number, (result, weight) in enumerate(zip(hits, weights, strict=True)):
        scores = result.scores.astype(float)  # (queries, ids)
        least = scores.min(axis=1, initial=np.inf, keepdims=True)
        span = scores.max(axis=1, initial=-np.inf, keepdims=True) - least
        if constant is None:
            share = np.divide(scores - least, span, out=np.ones_like(scores), where=span > 0)
        else:
            share = 1 / (constant + 1 + np.arange(scores.shape[1]))
        shares.append(np.where((scores != 0) | (least < 0), weight * share, 0))
        numbers.append(np.full(scores.shape[1], number))
    added, number_of = np.concatenate(shares, axis=1), np.concatenate(numbers)
    ids = np.concatenate([result.ids for result in hits], axis=1)
    best_ids, best_scores = [], []
    for query in range(len(ids)):
        unique, first, inverse = np.unique(ids[query], return_index=True, return_inverse=True)
        table = np.zeros((len(unique), len(hits)))
        np.add.at(table, (inverse, number_of), added[query])
        # Added in an order that does not depend on that of the results, so that equal scores are equal.
        sums = np.sort(table, axis=1).sum(axis=1)
        best = np.lexsort((first, -sums))[:top_k]
        best_ids.append(unique[best])
        best_scores.append(sums[best])
    shape = len(ids), min([top_k, *map(len, best_ids)])
    fused = Hits(np.empty(shape, np.float32), np.empty(shape, ids.dtype))
    for query in range(len(ids)):
        fused.scores[query], fused.ids[query] = best_scores[query][: shape[1]], best_ids[query][: shape[1]]
    return fused


# ------------------------------------------------------------------------------------------------- reranking


class Result(NamedTuple):
    """A document that a search returns.

    Args:
        id: Its id.
        score: In a lexical search, the score of BM25; in a dense one, the similarity; in a hybrid one, between 0 and
            1; after reranking, the score of the reranker.
        text: Its best passage; the whole document if it has only one, and in a lexical search.
        start: Where the text begins in the document, in characters.
        end: Where it ends.
        metadata: What was added with it.
    """

    id: Id
    score: float
    text: str
    start: int
    end: int
    metadata: dict[str, Any]


class ResultLists(list[list[Result]]):
    """For each query a list of results, the best first; a notebook displays them with the queries."""

    def __init__(self, results: Iterable[list[Result]], queries: list[str]) -> None:
        super().__init__(results)
        self.queries = queries

    def _repr_html_(self) -> str:
        pairs = zip(self.queries, self, strict=True)
        ranked = [(query, rank, *hit[:3]) for query, results in pairs for rank, hit in enumerate(results, 1)]
        rows = [(query if rank == 1 else "", rank, score, name, text) for query, rank, name, score, text in ranked]
        return Table(["query", "rank", "score", "id", "text"], rows)._repr_html_()


class Reranker(Protocol):
    """What ``rerank=`` takes: a ``CrossEncoder``, or another object that scores pairs."""

    def predict(self, pairs: list[tuple[str, str]], /) -> npt.NDArray[np.float32]:
        """One score per pair of a query and a text."""
        ...


def rerank_results(rerank: Reranker, queries: list[str], results: list[list[Result]], k: int) -> list[list[Result]]:
    """The best k results of each query by the scores of a reranker.

    Raises:
        ValueError: If there is not one score per pair of a query and a text.
    """
    pairs = [(query, hit.text) for query, hits in zip(queries, results, strict=True) for hit in hits]
    all_scores = np.asarray(rerank.predict(pairs) if pairs else [], np.float32)
    if all_scores.shape != (len(pairs),):
        raise ValueError(
            f"rerank gives scores of shape {all_scores.shape} for {len(pairs)} pairs; pass one with one each"
        )
    ranked = []
    for hits, scores in zip(results, np.split(all_scores, np.cumsum([*map(len, results)])[:-1]), strict=True):
        best = np.argsort(-scores, kind="stable")[:k].tolist()
        ranked.append([hits[position]._replace(score=float(scores[position])) for position in best])
    return ranked
