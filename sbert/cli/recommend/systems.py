"""The measurement: what vectors, words, both and reranking find, how long they take, and how much memory they need."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sbert.cli.recommend.collection import Collection
from sbert.encoder import SentenceEncoder
from sbert.evaluation import ndcg_at, recall_at
from sbert.search import IndexHits, Lexical, fuse, semantic_search
from sbert.search.fusion import CANDIDATES, WEIGHTS
from sbert.search.reranking import fused_scores

# Results that count for recall.
_DEPTH = 100
# Queries that are timed one by one.
_TIMED = 20
# Parts in which a model encodes the documents, between which the progress bar moves.
_PART = 256
_OPTIONS: dict[str, Any] = {"show_progress_bar": False, "on_truncate": "ignore"}


@dataclass(frozen=True, eq=False)
class System:
    """A way to search, and what it has shown.

    Args:
        name: Its name.
        kind: ``"vectors"``, ``"words"``, ``"hybrid"`` or ``"reranked"``.
        hits: The indices of the documents that it found for each query, (queries, depth); -1 for none.
        ndcg: nDCG@10 of each query, (queries,).
        recall: Mean of recall@100.
        document_seconds: Time to encode or index a document.
        query_seconds: Median of the time from a query alone to its results.
        model_bytes: Size of the weights.
        index_bytes: Size of the vectors or of the word index per document.
        model: The model, or the language of the words.
        parts: The systems that it consists of: vectors and words, or what it reranks.
        truncated: The fraction of the documents that are longer than what the model reads.
    """

    name: str
    kind: str
    hits: IndexHits
    ndcg: npt.NDArray[np.float64]
    recall: float
    document_seconds: float
    query_seconds: float
    model_bytes: int
    index_bytes: float
    model: str | None
    parts: tuple[System, ...] = ()
    truncated: float = 0.0


class Trial:
    """Measures systems on a collection.

    Args:
        collection: Queries, documents and judgments.
        advance: Called with a number of texts that are done.
    """

    def __init__(self, collection: Collection, advance: Callable[[int], object]) -> None:
        self._queries, self._documents, self._relevant, _ = collection
        self._advance = advance
        self._best = np.array([*zip_longest(*(own.values() for own in self._relevant), fillvalue=0.0)]).T

    def _system(self, name: str, kind: str, hits: IndexHits, *rest: Any, **more: Any) -> System:
        rows = zip(self._relevant, hits.ids[:, :_DEPTH].tolist(), strict=True)
        grades = np.array([[own.get(place, 0.0) for place in ids] for own, ids in rows]).reshape(len(hits.ids), -1)
        recall = float(recall_at(grades, _DEPTH, self._best).mean())
        return System(name, kind, hits, ndcg_at(grades, 10, self._best), recall, *rest, **more)

    def vectors(self, name: str, source: str, encoder: SentenceEncoder) -> System:
        """Search with the vectors of a model, by its own similarity."""
        encoder.encode_document(self._documents[:8], **_OPTIONS)  # Warm-up: backends are tried at their first use.
        parts, seconds = [], 0.0
        for start in range(0, len(self._documents), _PART):
            part, before = self._documents[start : start + _PART], time.perf_counter()
            parts.append(encoder.encode_document(part, **_OPTIONS))
            seconds += time.perf_counter() - before
            self._advance(len(part))
        documents = np.concatenate(parts)

        def search(queries: Sequence[str]) -> IndexHits:
            vectors = encoder.encode_query(queries, **_OPTIONS)
            return IndexHits(*semantic_search(vectors, documents, CANDIDATES, similarity=encoder.similarity_fn_name))

        hits = search(self._queries)
        per_query, size = self._alone(search), documents.nbytes / len(documents)
        per_document, limit = seconds / len(documents), encoder.max_seq_length
        truncated = 0.0
        if limit is not None:
            truncated = float(np.mean(encoder.tokens(self._documents[:_PART]).lengths >= limit))
        costs = per_document, per_query, weights(encoder), size
        return self._system(name, "vectors", hits, *costs, source, truncated=truncated)

    def words(self, language: str | None) -> System:
        """Search with BM25."""
        index, before = Lexical(language=language), time.perf_counter()
        index.add(self._documents)
        index.search(self._queries[:1], CANDIDATES)  # Builds what the first search needs.
        seconds = (time.perf_counter() - before) / len(self._documents)
        with tempfile.TemporaryDirectory() as folder:
            index.save(f"{folder}/words")
            size = sum(path.stat().st_size for path in Path(folder).rglob("*")) / len(self._documents)
        name = "BM25" if language is None else f"BM25 {language}"
        per_query = self._alone(lambda queries: index.search(queries, CANDIDATES))
        scores, ids = index.search(self._queries, CANDIDATES)
        hits = IndexHits(scores, np.where(scores == 0, -1, ids))  # No word in common: such documents are not shown.
        return self._system(name, "words", hits, seconds, per_query, 0, size, language)

    def hybrid(self, vectors: System, words: System) -> System:
        """Join the results of words and vectors, as ``sbert search --hybrid`` does."""
        before = time.perf_counter()
        hits = fuse(words.hits, vectors.hits, top_k=_DEPTH, method="weighted", weights=WEIGHTS)
        seconds = (time.perf_counter() - before) / len(self._queries)
        parts = vectors, words
        return self._system(
            f"{vectors.name} + BM25",
            "hybrid",
            hits,
            vectors.document_seconds + words.document_seconds,
            vectors.query_seconds + words.query_seconds + seconds,
            vectors.model_bytes,
            vectors.index_bytes + words.index_bytes,
            vectors.model,
            parts,
        )

    def reranked(self, base: System, name: str, source: str, reranker: Any, top_k: int, size: int) -> System:
        """Rank the best documents of a system again, by a cross-encoder or by late interaction, of ``size`` bytes."""
        ids, times = base.hits.ids.copy(), []
        options = _OPTIONS if getattr(reranker, "is_cross_encoder", False) else {}
        for row, query in enumerate(self._queries):
            first, before = ids[row, :top_k], time.perf_counter()
            own = first[first >= 0]
            if len(own):
                scores = reranker.predict([(query, self._documents[place]) for place in own], **options)
                scores = fused_scores(base.hits.scores[row, :top_k][first >= 0], scores, reranker)
                own = own[np.argsort(-scores, kind="stable")]
            ids[row, :top_k] = [*own, *first[first < 0]]
            times.append(time.perf_counter() - before)
            self._advance(len(first))
        return self._system(
            f"{base.name}, {name}",
            "reranked",
            IndexHits(base.hits.scores, ids),
            base.document_seconds,
            base.query_seconds + statistics.median(times),
            base.model_bytes + size,
            base.index_bytes,
            source,
            (base,),
        )

    def _alone(self, search: Callable[[Sequence[str]], IndexHits]) -> float:
        """The median of the seconds of some queries, one by one."""
        times = []
        for query in self._queries[:_TIMED]:
            before = time.perf_counter()
            search([query])
            times.append(time.perf_counter() - before)
        return statistics.median(times)

    # ------------------------------------------------------------------------------------------------- estimates

    def encoding_seconds(self, encoder: SentenceEncoder) -> float:
        """Seconds that a model needs for all documents, estimated from some of them."""
        some = self._documents[:: -(-len(self._documents) // 40)]
        encoder.encode_document(some[:4], **_OPTIONS)
        before = time.perf_counter()
        encoder.encode_document(some, **_OPTIONS)
        return (time.perf_counter() - before) / len(some) * len(self._documents)

    def pair_seconds(self, reranker: Any) -> float:
        """Seconds that a cross-encoder needs for a pair, estimated from some."""
        pairs = list(zip(self._queries, self._documents, strict=False))[:12]
        reranker.predict(pairs[:2], **_OPTIONS)
        before = time.perf_counter()
        reranker.predict(pairs, **_OPTIONS)
        return (time.perf_counter() - before) / len(pairs)


def weights(model: Any) -> int:
    """Bytes of the parameters and buffers of a model."""
    return sum(tensor.nbytes for tensor in (*model.parameters(), *model.buffers()))
