"""An index of documents on disk, searched by words (BM25), by vectors, by sparse vectors or by all of them."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np

from sbert.chunking import Chunk, encode_chunks, split
from sbert.encoder import SentenceEncoder
from sbert.functional import Float32, maxsim
from sbert.inputs.arguments import check_choice, check_count, check_model, known_arguments
from sbert.inputs.prompts import with_role_prompt
from sbert.inputs.texts import rows_of
from sbert.pipeline.sparse import top_dims
from sbert.search.exact.comparison import Hits
from sbert.search.index.bm25 import choose_language, search_postings, terms_of
from sbert.search.index.documents import DocumentRecord, Documents, as_json, document_checksum, metadata_json
from sbert.search.index.filters import Where, parse_where
from sbert.search.index.fusion import CANDIDATES, Reranker, Result, ResultLists, blend, hybrid_hits, rerank_results
from sbert.search.index.index_folder import Id, Positions
from sbert.search.index.passages import Passages
from sbert.search.index.sparse_index import max_of_passages
from sbert.search.index.token_codes import pack_tokens, unpack_tokens
from sbert.storage.processes import Lock
from sbert.vector_files.fingerprint import digest_of_model


class HybridIndex:
    """Documents with ids and metadata, on disk, searched by words (BM25), by vectors or by both.

    Each change is one transaction of an SQLite database: after a crash or an error, the folder is as before the change
    or as after it. Several processes can use one folder: each sees what the others have changed. Damage to the folder
    is an error.

    Vectors, ids, metadata and the terms of the texts are also held in memory, which the first call reads from the
    folder; texts are not. A change of few documents takes little time, however many others there are, except that about
    one in thousands of them reorganizes what is in memory. Threads can share an index: each waits for the others.

    Args:
        model: Encodes documents and queries.
        folder: A folder; it is created if it does not exist. None for an index in memory.
        sparse_model: Encodes documents and queries to sparse vectors, for a third way to search. The sparse vector of a
            document is the maximum of those of its passages.
        token_vectors: A multi-vector encoder. The vectors that it gives to the tokens of each document are stored, too,
            scaled to length 1, in two bits per dimension; a hybrid search ranks its best documents again, by MaxSim and
            by their scores so far in equal parts.
        language: As of ``BM25``. ``"auto"``: for an existing folder, as it was created; else that of the model, as its
            card says (``model.language``), if ``pip install "sbert[search]"`` was run. None: words as they are.

    Raises:
        ImportError: As of ``BM25``.
        OSError: If the folder cannot be written.
        ValueError: If the folder is damaged, contains anything else, or was created with another model or language.

    Example:
        >>> from sbert import SentenceEncoder
        >>> from sbert.search import HybridIndex
        >>> model = SentenceEncoder()
        >>> index = HybridIndex(model)
        >>> texts, metadata = ["The cat sleeps.", "Taxes rise."], [{"year": 2030}, {"year": 2031}]
        >>> index.add(texts, ids=["cat", "tax"], metadata=metadata)
        >>> index
        HybridIndex(folder=None, language='english')
        >>> [result.id for result in index.search("a kitten naps", top_k=1)[0]]
        ['cat']
        >>> [result.id for result in index.search("a kitten naps", where={"year": 2031})[0]]
        ['tax']
    """

    @known_arguments
    def __init__(
        self,
        model: SentenceEncoder,
        folder: str | os.PathLike[str] | None = None,
        *,
        sparse_model: SentenceEncoder | None = None,
        token_vectors: SentenceEncoder | None = None,
        language: str | None = "auto",
    ) -> None:
        check_model("model", model, "the folder")
        if model.is_sparse or (sparse_model is not None and not sparse_model.is_sparse):
            raise ValueError("model gives sparse vectors, or sparse_model dense ones; pass each as the other one")
        if model.is_multi_vector or (token_vectors and not token_vectors.is_multi_vector):
            raise ValueError("model gives vectors of texts, and token_vectors those of tokens; pass one of each kind")
        settings = {  # What the content of an index depends on.
            "language": choose_language(language, model),
            "model": digest_of_model(model),
            "similarity": model.similarity_fn_name,
            "truncate_dim": model.truncate_dim,
            "prompts": dict(model.prompts),
            "default_prompt_name": model.default_prompt_name,
            "sparse_model": sparse_model and [digest_of_model(sparse_model), sparse_model.prompts],
            "max_active_dims": sparse_model and sparse_model.max_active_dims,
            "token_vectors": token_vectors
            and [digest_of_model(token_vectors), token_vectors.prompts, token_vectors.truncate_dim],
        }
        self.model: SentenceEncoder = model
        self.sparse_model: SentenceEncoder | None = sparse_model
        self.token_vectors: SentenceEncoder | None = token_vectors
        self._lock = Lock(delays_forks=True)  # A child must not inherit a transaction: SQLite would end it there.
        counts = dict.fromkeys("change removals documents passages checksum next_row next_id next_term".split(), 0)
        self._documents = Documents(None if folder is None else Path(folder), {**settings, **counts, "dim": None})
        with self._documents.transaction():
            about = self._documents.about()
        for name, value in settings.items():
            if about.get(name) != value and not (name == "language" and language == "auto"):
                difference = f"{folder} was created with {name}={about.get(name)!r:.30}, not {value!r:.30}"
                raise ValueError(f"{difference}; pass the same model and language, or a new folder")
        self.language: str | None = about["language"]
        self._loaded: Passages | None = None

    def __len__(self) -> int:
        with self._lock, self._documents.transaction():
            return len(self._follow().ids)

    def __repr__(self) -> str:
        folder = self._documents.path and str(self._documents.path.parent)
        return f"HybridIndex(folder={folder!r}, language={self.language!r})"

    def __contains__(self, identity: object) -> bool:
        with self._lock, self._documents.transaction():
            return identity in self._follow().ids

    def close(self) -> None:
        """Close the folder."""
        self._documents.close()

    # ---------------------------------------------------------------------------------------------------- changes

    @known_arguments
    def add(
        self,
        documents: Iterable[str],
        ids: Iterable[Id] | None = None,
        metadata: Iterable[dict[str, Any]] | None = None,
        chunk: int | None = None,
        late: bool = False,
    ) -> None:
        """Add documents. After an error, none of them was added.

        Args:
            documents: A document, or several.
            ids: As of ``Index.add``: one unique id per document, all integers or all strings. Default: integers that
                continue after the greatest id so far, from 0.
            metadata: One dict per document, of what JSON can hold. Default: empty.
            chunk: Split documents into passages of at most so many tokens (``sbert.chunking.split``), which have a
                vector each. Default: one vector per document, of as much as the model reads.
            late: Whether the model reads each document as a whole, and the vector of each passage is pooled from its
                own tokens (late chunking, as in ``encode_chunks``): vectors find more long documents, but the passage
                that is returned is the right one less often. Without ``chunk``, a passage has as many tokens as the
                model reads. ``sparse_model`` and ``token_vectors`` read each passage alone.

        Raises:
            OSError: If the disk is full, or another process is busy with the folder for two minutes.
            TypeError: If a document is not a str, or an id is neither an integer nor a string.
            ValueError: If an id is there already or given twice, JSON cannot hold the metadata, there are more or fewer
                ids or metadata than documents, or ``chunk`` or ``late`` does not fit the model.
        """
        self._change(documents, ids, metadata, chunk, late, replaces=False)

    @known_arguments
    def update(
        self,
        documents: Iterable[str],
        ids: Iterable[Id],
        metadata: Iterable[dict[str, Any]] | None = None,
        chunk: int | None = None,
        late: bool = False,
    ) -> None:
        """Replace documents by others with the same ids. After an error, none of them was replaced.

        Args:
            documents: As of ``add``.
            ids: Ids in the index.
            metadata: As of ``add``. Default: that of the documents before.
            chunk: As of ``add``.
            late: As of ``add``.

        Raises:
            KeyError: If an id is not in the index.
            OSError: As of ``add``.
            TypeError: As of ``add``.
            ValueError: As of ``add``.
        """
        if ids is None:
            raise TypeError("ids is None; pass the id of each document")
        self._change(documents, ids, metadata, chunk, late, replaces=True)

    def remove(self, ids: Iterable[Id]) -> None:
        """Remove documents.

        Raises:
            KeyError: If an id is not in the index; then none was removed.
            OSError: As of ``add``.
            TypeError: If ``ids`` is a single id, or an id is neither an integer nor a string.
        """
        with self._lock, self._documents.transaction("IMMEDIATE"):
            loaded = self._follow()
            positions = loaded.ids.rows_of(ids)
            if len(positions):
                self._write(loaded, positions, [], {})

    def _change(self, documents: Any, ids: Any, metadata: Any, chunk: int | None, late: bool, replaces: bool) -> None:
        texts = list(rows_of(documents, "documents"))
        names = list(ids) if isinstance(ids, Iterable) and not isinstance(ids, (str, bytes)) else ids
        notes = None if metadata is None else metadata_json(metadata, len(texts))
        with self._lock, self._documents.transaction():
            self._follow().new_ids(names, len(texts), replaces)  # Encoding takes time, so errors come first.
        if not texts:
            return
        spans, vectors, sparse, codes = self._encode(texts, chunk, late)
        terms = [terms_of(text, self.language) for text in texts]
        with self._lock, self._documents.transaction("IMMEDIATE"):
            loaded = self._follow()
            names, replaced = loaded.new_ids(names, len(texts), replaces)
            kinds = loaded.kinds[replaced].tolist()
            notes = notes or [as_json(loaded.metadata[kind]) for kind in kinds] or [b"{}"] * len(texts)
            encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
            numbers, new_terms = loaded.postings.number(terms)
            fields = zip(map(as_json, names), notes, spans, vectors, numbers, sparse, encoded, strict=True)
            rows = enumerate(fields, start=loaded.about["next_row"])
            new = [DocumentRecord._make((row, *entry, document_checksum(row, *entry))) for row, entry in rows]
            self._write(loaded, replaced, new, new_terms)
            if self.token_vectors:
                self._documents.write_codes(zip((record.row for record in new), codes, strict=True))

    def _encode(self, texts: list[str], chunk: int | None, late: bool) -> tuple[list[bytes], ...]:
        """The characters and the vectors of each document's passages, its sparse vector, and its tokens' codes."""
        role: Any = with_role_prompt(self.model.prompts, "document", {})
        parts = split(self.model, texts, chunk, **role) if late or chunk is not None else []
        in_parts = {part.document for part in parts}  # The others, such as empty ones, are passages themselves.
        chunks = sorted([*parts, *(Chunk(row, 0, len(text)) for row, text in enumerate(texts) if row not in in_parts)])
        passages, owners = [passage.text(texts) for passage in chunks], np.array([part.document for part in chunks])
        if late:
            _, vectors = encode_chunks(self.model, texts, chunks=chunks, late=True, **role)
        else:
            vectors = np.asarray(self.model.encode_document(passages), "<f4")
        ends = np.searchsorted(owners, np.arange(len(texts)), side="right")
        sparse = [b""] * len(texts)
        if self.sparse_model is not None:
            sparse = max_of_passages(self.sparse_model.encode_document(passages), owners, len(texts))
        tokens: Any = self.token_vectors.encode_document(passages) if self.token_vectors else ()
        codes = [b"".join(map(pack_tokens, tokens[i:j])) for i, j in zip([0, *ends], ends, strict=False)]
        spans = np.array([passage[1:] for passage in chunks], "<i4").reshape(-1, 2)
        of_passages = [[part.tobytes() for part in np.split(array, ends[:-1])] for array in (spans, vectors)]
        return of_passages[0], of_passages[1], sparse, codes

    def _write(self, loaded: Passages, removed: Positions, new: list[DocumentRecord], terms: dict[str, int]) -> None:
        """Replace the documents at some positions, inside a transaction; memory follows at the next call."""
        about = dict(loaded.about)
        about["change"] += 1
        about["removals"] += len(removed)
        about["documents"] += len(new) - len(removed)
        about["passages"] += sum(len(record.spans) // 8 for record in new) - int(loaded.counts[removed].sum())
        about["checksum"] += sum(record.crc for record in new) - int(loaded.crcs[removed].sum())
        about["next_row"] += len(new)
        about["next_term"] += len(terms)
        names = [json.loads(record.id) for record in new]
        about["next_id"] = max([loaded.ids.next_id, *(name + 1 for name in names if isinstance(name, int))])
        if new:
            about["dim"] = len(new[0].vectors) // (len(new[0].spans) // 8) // 4
            if loaded.about["dim"] not in (None, about["dim"]):
                dims = f"the vectors have dim {about['dim']}, those in the index {loaded.about['dim']}"
                raise ValueError(f"{dims}; set truncate_dim of the model back, or use a new index")
        unused = loaded.postings.unused_without(removed, [record.terms for record in new])
        self._documents.write(about, loaded.rows[removed].tolist(), new, (terms, unused))

    def _follow(self) -> Passages:
        """What the database contains, inside a transaction."""
        loaded, self._loaded = self._loaded or Passages(), None
        loaded.follow(self._documents)
        self._loaded = loaded  # After an error, everything is read again.
        return loaded

    # -------------------------------------------------------------------------------------------------- searching

    @known_arguments
    def search(
        self,
        queries: str | Sequence[str],
        top_k: int = 10,
        *,
        by: str = "hybrid",
        where: Where | None = None,
        rerank: Reranker | None = None,
        candidates: int = 100,
    ) -> list[list[Result]]:
        """The best documents for each query.

        Args:
            queries: A query, or several.
            top_k: Maximum number of documents per query.
            by: ``"lexical"`` as ``BM25``, without documents that have none of the words; ``"dense"`` as ``Index``;
                ``"sparse"`` as ``SparseIndex``, likewise; ``"hybrid"``: the 1,000 best of each, fused with
                ``method="weighted"``. Words weigh 0.5 (0.4 without a language), down to 0.3 for documents of one
                sentence; with a language, terms that are side by side in the query and in a document count more.
                The others share the rest, dense and sparse vectors as 3 to 2.
            where: Which documents are searched: a dict of fields of the metadata, each with a value, a set of values,
                or a dict of operators, as in the guide to search; or a function of the metadata that returns a
                bool and changes nothing. Scores of BM25 do not depend on it.
            rerank: A ``CrossEncoder``, a ``SentenceEncoder``, or another object with ``predict``; it sorts the best
                documents by a score of the query and the best passage.
            candidates: How many documents per query are reranked, at least ``top_k``, also by ``token_vectors``.

        Returns:
            For each query a list of results, the best first.

        Raises:
            OSError: If another process is busy with the folder for two minutes.
            TypeError: If a query is not a str, or ``where``, a value in it, or ``rerank`` is of another type.
            ValueError: If an argument does not fit; if ``where`` has an unknown operator, a misspelt field,
                or a value of a type that the field never has; or if the folder is damaged.
        """
        k = check_count("top_k", top_k)
        late = self.token_vectors if by == "hybrid" and rerank is None else None
        depth = k if rerank is None and late is None else max(k, check_count("candidates", candidates))
        check_choice("by", by, ("hybrid", "lexical", "dense", "sparse")[: 3 + (self.sparse_model is not None)])
        similarity = self.model.similarity_fn_name
        chosen = None if where is None else parse_where(where)
        if rerank is not None and not callable(getattr(rerank, "predict", None)):
            raise TypeError(f"rerank is of type {type(rerank).__name__}, without predict; pass a CrossEncoder")
        asked = list(rows_of(queries, "queries"))
        if not asked:
            return ResultLists([], [])
        vectors = np.asarray(self.model.encode_query(asked), np.float32) if by in ("hybrid", "dense") else None
        weigher = self.sparse_model if by in ("hybrid", "sparse") else None
        sparse = None if weigher is None else [dict(row) for row in top_dims(weigher.encode_query(asked))]
        tokens: Any = None if late is None else late.encode_query(asked)
        terms = [Counter(terms_of(query, self.language)) for query in asked]
        with self._lock, self._documents.transaction():
            loaded = self._follow()
            allowed = loaded.filter(chosen)
            hits = []
            deepest = max(depth, CANDIDATES) if by == "hybrid" else depth
            if by in ("hybrid", "lexical"):
                hits.append(search_postings(loaded.postings, terms, deepest, allowed))
            if vectors is not None:
                hits.append(loaded.search(vectors, deepest, allowed, similarity))
            if sparse is not None:
                hits.append(search_postings(loaded.sparse, sparse, deepest, allowed))
            best = hybrid_hits(hits, asked, loaded.postings, self.language, depth) if by == "hybrid" else hits[0]
            if tokens is not None:
                best = self._rank_by_tokens(loaded, best, tokens, k)
            results = self._results(loaded, best, vectors, similarity)
        return ResultLists(results if rerank is None else rerank_results(rerank, asked, results, k), asked)

    def _rank_by_tokens(self, loaded: Passages, hits: Hits, queries: Sequence[Float32], k: int) -> Hits:
        """The best k documents of each query, by MaxSim and the scores so far in equal parts, inside a transaction.

        Shape:
            A query: (tokens, dim).
        """
        scores = np.zeros_like(hits.scores)
        for query, positions, row in zip(queries, hits.ids, scores if scores.size else (), strict=False):
            codes = map(self._documents.codes, loaded.rows[positions].tolist())
            row[:] = maxsim([query], [unpack_tokens(code, query.shape[1]) for code in codes])[0]
        return blend([hits, Hits(scores, hits.ids)], k, (0.5, 0.5))

    def _results(self, loaded: Passages, hits: Hits, vectors: Float32 | None, similarity: str) -> list[list[Result]]:
        """The results of all queries, inside a transaction of the database.

        Args:
            loaded: What the database contains.
            hits: Positions of documents.
            vectors: Those of the queries; None for a lexical or sparse search.
            similarity: Of the model.
        """
        # In a lexical or sparse search, a document without any word of the query has the score 0.
        chosen = hits.scores != 0 if vectors is None else np.ones(hits.scores.shape, bool)
        query_ids, positions = chosen.nonzero()[0], hits.ids[chosen]
        best = None if vectors is None else loaded.best_passages(vectors, query_ids, positions, similarity)
        spans = None if best is None else loaded.spans[best].tolist()
        rows, scores = loaded.rows[positions].tolist(), hits.scores[chosen].tolist()
        texts = self._documents.texts(dict.fromkeys(rows))
        results: list[list[Result]] = [[] for _ in hits.scores]
        for number, (query, position) in enumerate(zip(query_ids.tolist(), positions.tolist(), strict=True)):
            text = texts[rows[number]]
            start, end = (0, len(text)) if spans is None else spans[number]
            name, metadata = loaded.names[position], deepcopy(loaded.metadata[loaded.kinds[position]])
            results[query].append(Result(name, scores[number], text[start:end], start, end, metadata))
        return results
