"""The documents of an index in memory: ids, metadata and the vectors of their passages, but not their texts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from sbert.functional import directions
from sbert.search.documents import Documents, Stored, decoded
from sbert.search.index import IndexHits
from sbert.search.lexical import Lexical
from sbert.search.semantic_search import scores_of_rows, semantic_search
from sbert.search.store import Id, Ids

Where = Mapping[str, object] | Callable[[dict[str, Any]], bool]

# Vectors that are copied at once when only some may be found.
_STEP = 1 << 16


class Passages:
    """What the database of an index contains, except for the texts. ``follow`` reads what has changed.

    Args:
        language: Language of ``Lexical``.
    """

    def __init__(self, language: str | None) -> None:
        self.about: dict[str, Any] = {"change": None, "removals": 0, "documents": 0}
        self.ids = Ids("document")
        self.rows, self.crcs = np.empty(0, np.int64), np.empty(0, np.int64)
        self.kinds, self.counts = np.empty(0, np.int64), np.empty(0, np.int64)
        self.spans = np.empty((0, 2), np.int32)
        self.metadata: list[dict[str, Any]] = []  # Without repetition: ``kinds`` says which belongs to a document.
        self.lexical: Lexical | None = None
        self._known: dict[bytes, int] = {}
        self._vectors = np.empty((0, 1), np.float32)  # With room for more at the end.
        self._means: npt.NDArray[np.float32] | None = None
        self._language = language

    # ------------------------------------------------------------------------------------- following the database

    def follow(self, documents: Documents, words: bool) -> None:
        """Read what has changed in the database, inside a transaction.

        Args:
            documents: The database.
            words: Whether ``lexical`` is needed.
        """
        about = documents.about()
        if about["change"] != self.about["change"]:
            if about["removals"] != self.about["removals"] and len(self.rows):
                self._keep(np.isin(self.rows, documents.rows(), assume_unique=True))
            self._read(documents.after(int(self.rows[-1]) if len(self.rows) else -1), about)
            same = len(self.rows) == about["documents"] and len(self.spans) == about["passages"]
            documents.check(same and int(self.crcs.sum()) == about["checksum"])
            self.ids.next_id = about["next_id"]
            self.about, self._means = about, None
        if words and self.lexical is None:
            self.lexical = Lexical(language=self._language)
            for block in documents.after(-1):
                self._add_words(block)

    def _keep(self, kept: npt.NDArray[np.bool_]) -> None:
        if self.lexical is not None:
            self.lexical.remove(self.rows[~kept].tolist())
        passages = np.repeat(kept, self.counts)
        self._vectors, self.spans = self._vectors[: len(self.spans)][passages], self.spans[passages]
        self.rows, self.crcs, self.kinds, self.counts = (
            each[kept] for each in (self.rows, self.crcs, self.kinds, self.counts)
        )
        self.ids.keep(kept)

    def _read(self, blocks: Iterator[list[Stored]], about: dict[str, Any]) -> None:
        """Append the documents of blocks."""
        used, total = len(self.spans), max(about["passages"], len(self.spans))
        if len(self._vectors) < total:
            grown = np.empty((total + used // 8, about["dim"]), np.float32)
            grown[:used] = self._vectors[:used]
            self._vectors = grown
        numbers, spans = [np.array([self.rows, self.crcs, self.kinds, self.counts])], [self.spans]
        for block in blocks:
            vectors = np.frombuffer(b"".join(each.vectors for each in block), "<f4").reshape(-1, about["dim"])
            vectors = vectors[: total - used]  # If there are more, ``follow`` says so.
            self._vectors[used : used + len(vectors)] = vectors
            used += len(vectors)
            spans.append(np.frombuffer(b"".join(each.spans for each in block), "<i4").reshape(-1, 2))
            kinds = [self._kind(each.metadata) for each in block]
            counts = [len(each.spans) // 8 for each in block]
            numbers.append(np.array([[each.row for each in block], [each.crc for each in block], kinds, counts]))
            self.ids.append([json.loads(each.id) for each in block])
            self._add_words(block)
        self.rows, self.crcs, self.kinds, self.counts = np.concatenate(numbers, 1)
        self.spans = np.concatenate(spans)

    def _kind(self, metadata: bytes) -> int:
        if metadata not in self._known:
            self.metadata.append(json.loads(metadata))
        return self._known.setdefault(metadata, len(self._known))

    def _add_words(self, block: list[Stored]) -> None:
        if self.lexical is not None:
            self.lexical.add([decoded(each.text) for each in block], [each.row for each in block])

    def new_ids(self, given: Iterable[Id] | None, count: int, replaces: bool) -> tuple[list[Id], npt.NDArray[np.int64]]:
        """The ids of new documents, checked, and the places of the documents that they replace."""
        if not replaces:
            return self.ids.new_ids(given, count), np.empty(0, np.int64)
        names = Ids("document").new_ids(given, count)
        remaining = self.ids.remaining(names)
        places = np.empty(0, np.int64) if remaining is None else (~remaining).nonzero()[0]
        place_of = dict(zip(self.ids.id_array()[places].tolist(), places.tolist(), strict=True))
        return names, np.array([place_of[name] for name in names], np.int64)

    # ------------------------------------------------------------------------------------------------- searching

    @property
    def vectors(self) -> npt.NDArray[np.float32]:
        """Shape: (passages, dim)."""
        return self._vectors[: len(self.spans)]

    @property
    def starts(self) -> npt.NDArray[np.int64]:
        """The first passage of each document. Shape: (documents,)."""
        return self.counts.cumsum() - self.counts

    def allowed(self, where: Where | None) -> npt.NDArray[np.bool_]:
        """Which documents have the metadata. Shape: (documents,)."""
        if where is None:
            return np.ones(len(self.rows), bool)
        test = where if callable(where) else lambda metadata: all(_has(metadata, *each) for each in where.items())
        flags = np.zeros(len(self.metadata), bool)
        for kind in np.flatnonzero(np.bincount(self.kinds)).tolist():
            flags[kind] = bool(test(self.metadata[kind]))
        return flags[self.kinds]

    def by_words(self, queries: list[str], k: int, allowed: npt.NDArray[np.bool_]) -> IndexHits:
        """The best documents by their words; their places are the ids of the result."""
        assert self.lexical is not None  # noqa: S101
        found = self.lexical.search(queries, k, allowed=allowed)
        return IndexHits(found.scores, np.searchsorted(self.rows, found.ids))

    def by_meaning(
        self, queries: npt.NDArray[np.float32], k: int, allowed: npt.NDArray[np.bool_], similarity: str, mean: bool
    ) -> IndexHits:
        """The best documents by their best passage, or the mean of their passages; their places are the ids."""
        places = allowed.nonzero()[0]
        if mean and len(self.spans) > len(self.rows):
            if similarity == "cosine":
                queries = _directions(queries)
            hits = semantic_search(queries, _blocks(self._mean_vectors(similarity), places), k, similarity="dot")
            return IndexHits(hits.scores, places[hits.indices])
        owners = np.repeat(np.arange(len(self.rows)), self.counts)
        chosen, wanted = allowed[owners].nonzero()[0], min(k, len(places))
        reach = wanted
        while wanted:
            hits = semantic_search(queries, _blocks(self.vectors, chosen), reach, similarity=similarity)
            found = owners[chosen[hits.indices]]  # (queries, reach)
            first = [np.sort(np.unique(row, return_index=True)[1])[:wanted] for row in found]
            if reach >= len(chosen) or all(len(each) == wanted for each in first):
                columns = np.array(first, np.int64).reshape(len(found), wanted)
                return IndexHits(np.take_along_axis(hits.scores, columns, 1), np.take_along_axis(found, columns, 1))
            reach = min(4 * reach, len(chosen))
        return IndexHits(np.empty((len(queries), 0), np.float32), np.empty((len(queries), 0), np.int64))

    def _mean_vectors(self, similarity: str) -> npt.NDArray[np.float32]:
        """The mean score of passages is the score of their mean. Shape: (documents, dim)."""
        if self._means is None:
            vectors = _directions(self.vectors) if similarity == "cosine" else self.vectors
            self._means = np.add.reduceat(vectors, self.starts)
            self._means /= self.counts[:, None]
        return self._means

    def best_spans(
        self, queries: npt.NDArray[np.float32], found: list[npt.NDArray[np.int64]], similarity: str
    ) -> list[list[tuple[int, int]]]:
        """For each query, the characters of the best passage of each document that was found.

        Args:
            queries: (queries, dim).
            found: The places of documents, for each query.
            similarity: Similarity of the scores.
        """
        owners, starts = np.concatenate(found), self.starts
        if not len(owners):
            return [[] for _ in found]
        counts = self.counts[owners]
        ends = counts.cumsum()
        rows = np.arange(counts.sum()) + np.repeat(starts[owners] - (ends - counts), counts)
        query_ids = np.repeat(np.repeat(np.arange(len(found)), [*map(len, found)]), counts)
        scores = scores_of_rows(queries, self.vectors, query_ids, rows, similarity)
        best = [low + int(scores[low:high].argmax()) for low, high in zip(ends - counts, ends, strict=True)]
        spans = iter(self.spans[rows[best]].tolist())
        return [[(start, end) for start, end in islice(spans, len(row))] for row in found]


def _has(metadata: dict[str, Any], field: str, wanted: object) -> bool:
    """Whether a field has the value, or one of the values of a set."""
    if field not in metadata:
        return False
    value = metadata[field]
    if isinstance(wanted, (set, frozenset)):
        return not isinstance(value, (list, dict)) and value in wanted
    return bool(value == wanted)


def _blocks(vectors: npt.NDArray[np.float32], rows: npt.NDArray[np.int64]) -> Iterator[npt.NDArray[np.float32]]:
    """Some rows; all of them without a copy."""
    if len(rows) == len(vectors):
        yield vectors
        return
    for low in range(0, len(rows), _STEP):
        yield vectors[rows[low : low + _STEP]]


def _directions(vectors: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    scaled: npt.NDArray[np.float32] = directions(torch.from_numpy(vectors)).numpy()
    return scaled
