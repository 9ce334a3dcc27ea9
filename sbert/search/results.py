"""What a search in documents returns, and how a reranker sorts it."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sbert.search.documents import Documents
from sbert.search.index import IndexHits
from sbert.search.passages import Passages
from sbert.search.reranking import Reranker, reranked_scores
from sbert.search.store import Id


class Result(NamedTuple):
    """A document that was found.

    Args:
        id: Its id.
        score: By words, the score of BM25; by meaning, the similarity; by both, between 0 and 1; after reranking, the
            score of the reranker.
        text: Its best passage; the whole document if it has only one, and in a search by words.
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


def results(
    loaded: Passages,
    documents: Documents,
    hits: IndexHits,
    vectors: npt.NDArray[np.float32] | None,
    similarity: str,
) -> list[list[Result]]:
    """The results of all queries, inside a transaction of the database.

    Args:
        loaded: What the database contains.
        documents: The database, which has the texts.
        hits: The places of the documents that were found.
        vectors: Those of the queries; None for a search by words.
        similarity: Similarity of the vectors.
    """
    # By words, a document without any word of the query has the score 0.
    kept = hits.scores != 0 if vectors is None else np.ones(hits.scores.shape, bool)
    places = [row[own] for row, own in zip(hits.ids, kept, strict=True)]
    spans = None if vectors is None else loaded.best_spans(vectors, places, similarity)
    wanted = loaded.rows[np.unique(np.concatenate(places))].tolist()
    own_texts = documents.texts(wanted)
    documents.check(len(own_texts) == len(wanted) or documents.about()["change"] != loaded.about["change"])
    found: list[list[Result]] = []
    for query, own in enumerate(places):
        names, scores = loaded.ids.id_array()[own].tolist(), hits.scores[query, kept[query]].tolist()
        found.append([])
        for number, place in enumerate(own.tolist()):
            text = own_texts.get(int(loaded.rows[place]))
            if text is None:  # Another process has removed it in the meantime.
                continue
            start, end = (0, len(text)) if spans is None else spans[query][number]
            metadata = deepcopy(loaded.metadata[loaded.kinds[place]])
            found[-1].append(Result(names[number], scores[number], text[start:end], start, end, metadata))
    return found


def reranked(rerank: Reranker, queries: list[str], results: list[list[Result]], k: int) -> list[list[Result]]:
    """The best k results of each query by the scores of a reranker."""
    texts = [[each.text for each in own] for own in results]
    first = [np.array([each.score for each in own], np.float32) for own in results]
    found = []
    for own, scores in zip(results, reranked_scores(rerank, queries, texts, first), strict=True):
        best = np.argsort(-scores, kind="stable")[:k]
        found.append([own[place]._replace(score=float(scores[place])) for place in best])
    return found
