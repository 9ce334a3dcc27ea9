"""The documents of an index in memory: ids, metadata and the vectors of their passages, but not their texts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import numpy as np
import torch

from sbert.functional import Float32
from sbert.search.exact.comparison import Norms, search_blocks
from sbert.search.exact.semantic_search import scores_of_rows
from sbert.search.index.bm25 import BM25
from sbert.search.index.documents import DocumentRecord, Documents
from sbert.search.index.index import IndexHits
from sbert.search.index.index_folder import Id, Ids, Mask, Positions

# Vectors that are copied in one step when only some are searched.
_STEP = 1 << 16


class Passages:
    """What the database of an index contains, except for the texts. ``follow`` reads what has changed.

    Args:
        language: Language of ``BM25``.
    """

    def __init__(self, language: str | None) -> None:
        self.about: dict[str, Any] = {"change": None, "removals": 0, "documents": 0}
        self.ids = Ids("document")
        # Of each document: its key, its checksum, its metadata, and the number of its passages and the first one.
        self.rows, self.crcs, self.kinds, self.counts, self.starts = np.empty((5, 0), np.int64)
        self.names: list[Id] = []
        self.spans = np.empty((0, 2), np.int32)
        self.metadata: list[dict[str, Any]] = []  # Without repetition.
        self.bm25: BM25 | None = None
        self._known: dict[bytes, int] = {}
        self.vectors: Float32 = np.empty((0, 1), np.float32)  # (passages, dim)
        self._vectors = self.vectors  # The same, with free rows at the end.
        self._owners = np.empty(0, np.int64)  # The position of each passage's document.
        self._norms: Norms = {}  # Of the vectors.
        self._language = language

    # ------------------------------------------------------------------------------------- following the database

    def follow(self, documents: Documents, lexical: bool) -> None:
        """Read what has changed in the database, inside a transaction.

        Args:
            documents: The database.
            lexical: Whether ``bm25`` is needed.
        """
        about = documents.about()
        if about["change"] != self.about["change"]:
            if about["removals"] != self.about["removals"] and len(self.rows):
                self._select(np.isin(self.rows, documents.rows(), assume_unique=True))
            self._read(documents.after(int(self.rows[-1]) if len(self.rows) else -1), about)
            counts = len(self.rows), len(self.spans), int(self.crcs.sum())
            if counts != (about["documents"], about["passages"], about["checksum"]):
                raise documents.damage("documents are missing, or are not those that were written")
            self.ids.next_id = about["next_id"]
            self.about, self.starts = about, self.counts.cumsum() - self.counts
            self.names, self._norms, self.vectors = list(self.ids.ids), {}, self._vectors[: len(self.spans)]
            self._owners = np.repeat(np.arange(len(self.rows)), self.counts)
        if lexical and self.bm25 is None:
            self.bm25 = BM25(language=self._language)
            for block in documents.after(-1):
                self._add_texts(block)

    def _select(self, chosen: Mask) -> None:
        if self.bm25 is not None:
            self.bm25.remove(self.rows[~chosen].tolist())
        passages = np.repeat(chosen, self.counts)
        self._vectors, self.spans = self.vectors[passages], self.spans[passages]
        numbers = np.array([self.rows, self.crcs, self.kinds, self.counts])
        self.rows, self.crcs, self.kinds, self.counts = numbers[:, chosen]
        self.ids.select(chosen)
        used, self.kinds = np.unique(self.kinds, return_inverse=True)
        self.metadata = [self.metadata[kind] for kind in used.tolist()]
        names = list(self._known)  # In the order of their numbers.
        self._known = {names[kind]: number for number, kind in enumerate(used.tolist())}

    def _read(self, blocks: Iterator[list[DocumentRecord]], about: dict[str, Any]) -> None:
        """Append the documents of blocks."""
        used, total = len(self.spans), max(about["passages"], len(self.spans))
        if len(self._vectors) < total:
            grown = np.empty((total + used // 8, about["dim"]), np.float32)
            grown[:used] = self._vectors[:used]
            self._vectors = grown
        numbers, spans = [np.array([self.rows, self.crcs, self.kinds, self.counts])], [self.spans]
        for block in blocks:
            vectors = np.frombuffer(b"".join(record.vectors for record in block), "<f4").reshape(-1, about["dim"])
            vectors = vectors[: total - used]  # If there are more, ``follow`` says so.
            self._vectors[used : used + len(vectors)] = vectors
            used += len(vectors)
            spans.append(np.frombuffer(b"".join(record.spans for record in block), "<i4").reshape(-1, 2))
            kinds = [self._known.setdefault(record.metadata, len(self._known)) for record in block]
            self.metadata += map(json.loads, islice(self._known, len(self.metadata), None))
            counts = [len(record.spans) // 8 for record in block]
            numbers.append(
                np.array([[record.row for record in block], [record.crc for record in block], kinds, counts])
            )
            self.ids.append([json.loads(record.id) for record in block])
            self._add_texts(block)
        self.rows, self.crcs, self.kinds, self.counts = np.concatenate(numbers, 1)
        self.spans = np.concatenate(spans)

    def _add_texts(self, block: list[DocumentRecord]) -> None:
        if self.bm25 is not None:
            texts = [record.text.decode("utf-8", "surrogatepass") for record in block]
            self.bm25.add(texts, [record.row for record in block])

    def new_ids(self, ids: Iterable[Id] | None, count: int, replaces: bool) -> tuple[list[Id], Positions]:
        """The ids of new documents, checked, and the positions of the documents that they replace."""
        if not replaces:
            return self.ids.new_ids(ids, count), np.empty(0, np.int64)
        names = Ids("document").new_ids(ids, count)
        self.ids.remaining(names)  # An error if one is unknown.
        position_of = dict(zip(self.names, range(len(self.names)), strict=True))
        return names, np.array([position_of[name] for name in names], np.int64)

    # ------------------------------------------------------------------------------------------------- searching

    def search(self, queries: Float32, k: int, allowed: Mask | None, similarity: str) -> IndexHits:
        """The best documents by their best passage; the ids of the result are their positions."""
        passages = None if allowed is None else allowed[self._owners].nonzero()[0]
        total = len(self.spans if passages is None else passages)
        reach = wanted = min(k, len(self.rows) if allowed is None else int(allowed.sum()))
        while True:
            parts, norms = (
                ([self.vectors], self._norms) if passages is None else (_blocks(self.vectors, passages), None)
            )
            hits = search_blocks(torch.from_numpy(queries), map(torch.from_numpy, parts), reach, similarity, norms)
            owned = self._owners[hits.indices if passages is None else passages[hits.indices]]  # (queries, reach)
            if len(self.spans) == len(self.rows):
                return IndexHits(hits.scores, owned)
            first = [np.sort(np.unique(row, return_index=True)[1])[:wanted] for row in owned]
            if reach >= total or all(len(columns) == wanted for columns in first):
                columns = np.array(first, np.int64).reshape(len(owned), wanted)
                return IndexHits(np.take_along_axis(hits.scores, columns, 1), np.take_along_axis(owned, columns, 1))
            reach = min(4 * reach, total)

    def best_passages(self, queries: Float32, query_ids: Positions, documents: Positions, similarity: str) -> Positions:
        """The best passage of each pair of a query and a document.

        Shape:
            queries: (queries, dim). query_ids, documents, output: (pairs,), the queries in ascending order.
        """
        first, counts = self.starts[documents], self.counts[documents]
        if (counts == 1).all():
            return first
        ends = counts.cumsum()
        rows = np.arange(counts.sum()) + np.repeat(first - (ends - counts), counts)
        scores = scores_of_rows(queries, self.vectors, np.repeat(query_ids, counts), rows, similarity)
        pairs = zip(ends - counts, ends, strict=True)
        return rows[[low + int(scores[low:high].argmax()) for low, high in pairs]]


def _blocks(vectors: Float32, rows: Positions) -> Iterator[Float32]:
    """Some rows, copied block by block."""
    return (vectors[rows[low : low + _STEP]] for low in range(0, len(rows), _STEP))
