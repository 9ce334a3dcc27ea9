"""The documents of an index in memory: ids, metadata and the vectors of their passages, but not their texts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import numpy as np
import torch

from sbert.functional import Float32
from sbert.search.exact.comparison import Hits, Norms, search_blocks
from sbert.search.exact.semantic_search import scores_of_rows
from sbert.search.index.bm25 import Postings, WeightedPostings
from sbert.search.index.documents import RECENT_REMOVALS, Documents
from sbert.search.index.filters import Filter, Metadata
from sbert.search.index.index_folder import Id, Ids, Mask, Positions
from sbert.search.index.sparse_index import VALUES

# Vectors that are copied in one step when only some are searched.
_STEP = 1 << 16
# Removed documents, beside a quarter of all, from which on their positions are given up, which takes time.
_MOST_REMOVED = 1 << 10


class Passages:
    """What the database of an index contains, except for the texts. ``follow`` reads what has changed."""

    def __init__(self) -> None:
        self.about: dict[str, Any] = {"change": None, "removals": 0}
        self.ids = Ids("document")
        # Of each document: its key, its checksum, its metadata, and the number of its passages and the first one.
        # Removed documents keep their positions until they are many.
        self.rows, self.crcs, self.kinds, self.counts, self.starts = np.empty((5, 0), np.int64)
        self.remaining = np.empty(0, bool)  # Which documents were not removed.
        self.names: list[Id] = []
        self.spans = np.empty((0, 2), np.int32)
        self.metadata: list[Metadata] = []  # Without repetition.
        self.postings = Postings()
        self.sparse = WeightedPostings()
        self._known: dict[bytes, int] = {}
        self.vectors: Float32 = np.empty((0, 1), np.float32)  # (passages, dim), zeros for removed documents.
        self._vectors = self.vectors  # The same, with free rows at the end.
        self._owners = np.empty(0, np.int64)  # The position of each passage's document.
        self._norms: Norms = {}  # Of the vectors.

    # ------------------------------------------------------------------------------------- following the database

    def follow(self, documents: Documents) -> None:
        """Read what has changed in the database, inside a transaction."""
        about = documents.about()
        if about["change"] == self.about["change"]:
            return
        if about["removals"] - self.about["removals"] > RECENT_REMOVALS:
            vars(self).update(vars(Passages()))
        if len(self.rows):
            self._remove(documents.removed_after(self.about["removals"]))
        self._read(documents, about)
        counts = len(self.ids), int(self.counts[self.remaining].sum()), int(self.crcs[self.remaining].sum())
        if counts != (about["documents"], about["passages"], about["checksum"]):
            raise documents.damage("documents are missing, or are not those that were written")
        if len(self.rows) - len(self.ids) > _MOST_REMOVED + len(self.rows) // 4:
            self._select(self.remaining)
        self.ids.next_id, self.about, self.starts = about["next_id"], about, self.counts.cumsum() - self.counts
        self._owners = np.repeat(np.arange(len(self.rows)), self.counts)

    def _remove(self, rows: Positions) -> None:
        # Others, with greater keys, were added and removed meanwhile.
        positions = np.searchsorted(self.rows, rows[rows <= self.rows[-1]])
        for position in positions.tolist():
            self.ids.ids.pop(self.names[position], None)
            self.vectors[self.starts[position] :][: self.counts[position]] = 0
        self.postings.remove(positions)
        self.remaining[positions] = False

    def _select(self, chosen: Mask) -> None:
        self.postings.select(chosen)
        self.sparse.select(chosen)
        passages = np.repeat(chosen, self.counts)
        self.vectors = self._vectors = self.vectors[passages]
        self.spans, self._norms = self.spans[passages], {}
        numbers = np.array([self.rows, self.crcs, self.kinds, self.counts])
        self.rows, self.crcs, self.kinds, self.counts = numbers[:, chosen]
        self.ids, self.names = Ids("document", self.ids.ids), list(self.ids.ids)
        self.remaining = chosen[chosen]
        used, self.kinds = np.unique(self.kinds, return_inverse=True)
        self.metadata = [self.metadata[kind] for kind in used.tolist()]
        names = list(self._known)  # In the order of their numbers.
        self._known = {names[kind]: number for number, kind in enumerate(used.tolist())}

    def _read(self, documents: Documents, about: dict[str, Any]) -> None:
        """Append the new documents."""
        used = len(self.spans)
        total = used + max(0, about["passages"] - int(self.counts[self.remaining].sum()))
        if len(self._vectors) < total:
            grown = np.empty((total + used // 8, about["dim"]), np.float32)
            grown[:used] = self._vectors[:used]
            self._vectors = grown
        numbers, spans = [np.array([self.rows, self.crcs, self.kinds, self.counts])], [self.spans]
        first, new_terms = self.postings.next_number, documents.terms_from(self.postings.next_number)
        texts: list[bytes] = []
        sparse: list[bytes] = []
        for block in documents.after(int(self.rows[-1]) if len(self.rows) else -1):
            vectors = np.frombuffer(b"".join(record.vectors for record in block), "<f4").reshape(-1, about["dim"])
            vectors = vectors[: total - used]  # If there are more, ``follow`` says so.
            self._vectors[used : used + len(vectors)] = vectors
            used += len(vectors)
            spans.append(np.frombuffer(b"".join(record.spans for record in block), "<i4").reshape(-1, 2))
            kinds = [self._known.setdefault(record.metadata, len(self._known)) for record in block]
            self.metadata += map(json.loads, islice(self._known, len(self.metadata), None))
            counts = [len(record.spans) // 8 for record in block]
            rows, crcs = [record.row for record in block], [record.crc for record in block]
            numbers.append(np.array([rows, crcs, kinds, counts]))
            names = json.loads(b"[%b]" % b",".join(record.id for record in block))
            self.ids.append(names, len(self.names))
            self.names += names
            texts += [record.terms for record in block]
            sparse += [record.sparse for record in block]
        values = np.frombuffer(b"".join(sparse), VALUES)
        owners = np.repeat(np.arange(len(sparse)), [len(blob) // VALUES.itemsize for blob in sparse])
        self.sparse.append(values["dim"], len(self.rows) + owners, values["value"])
        self.rows, self.crcs, self.kinds, self.counts = np.concatenate(numbers, 1)
        self.remaining = np.append(self.remaining, np.ones(len(texts), bool))
        self.spans, self.vectors = np.concatenate(spans), self._vectors[:used]
        self.postings.append(texts, new_terms, about["next_term"])
        if not np.isin(self.postings.uses[first:].nonzero()[0] + first, list(new_terms.values())).all():
            raise documents.damage("terms are missing")

    def new_ids(self, ids: Iterable[Id] | None, count: int, replaces: bool) -> tuple[list[Id], Positions]:
        """The ids of new documents, checked, and the positions of the documents that they replace."""
        if not replaces:
            return self.ids.new_ids(ids, count), np.empty(0, np.int64)
        names = Ids("document").new_ids(ids, count)
        return names, self.ids.rows_of(names)

    def filter(self, chosen: Filter | None) -> Mask:
        """Which documents fulfil a filter. Shape: (documents,)."""
        if chosen is None:
            return self.remaining
        used = np.bincount(self.kinds[self.remaining]).nonzero()[0]
        passed = np.zeros(len(self.metadata), bool)
        passed[used] = chosen([self.metadata[kind] for kind in used.tolist()])
        return passed[self.kinds] & self.remaining

    # ------------------------------------------------------------------------------------------------- searching

    def search(self, queries: Float32, k: int, allowed: Mask, similarity: str) -> Hits:
        """The best documents by their best passage; the ids of the result are their positions."""
        copied = not np.array_equal(allowed, self.remaining)
        passages = allowed[self._owners].nonzero()[0] if copied else np.arange(len(self.spans))
        wanted = min(k, int(allowed.sum()))
        reach = max(wanted, 1)
        while True:
            parts, norms = (_blocks(self.vectors, passages), None) if copied else ([self.vectors], self._norms)
            hits = search_blocks(torch.from_numpy(queries), map(torch.from_numpy, parts), reach, similarity, norms)
            owned = self._owners[passages[hits.indices]]  # (queries, reach)
            first = [np.sort(np.unique(row, return_index=True)[1]) for row in owned]
            first = [at[allowed[row[at]]][:wanted] for at, row in zip(first, owned, strict=True)]
            if reach >= len(passages) or all(len(columns) == wanted for columns in first):
                columns = np.array(first, np.int64).reshape(len(owned), wanted)
                return Hits(np.take_along_axis(hits.scores, columns, 1), np.take_along_axis(owned, columns, 1))
            reach = min(4 * reach, len(passages))

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
