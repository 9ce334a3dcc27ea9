"""``sbert search``: the texts of a file that are most similar to queries.

sbert search texts.txt "Who sleeps?" --top-k 5
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sbert.cli.options import (
    INPUT,
    RESULTS,
    ROW_HELP,
    SOURCES,
    add_options,
    at_least,
    is_input,
    load_by_options,
    progress,
    read_input,
    real,
)
from sbert.cli.output import Line, shortest, show
from sbert.data import read_texts
from sbert.storage.folders import user_cache
from sbert.storage.hub import MINI, resolve

if TYPE_CHECKING:
    from sbert.search import Hits


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``sbert search``.

    Example:
        >>> import argparse
        >>> from sbert.cli.search import add_arguments
        >>> parser = argparse.ArgumentParser()
        >>> add_arguments(parser)
        >>> parser.parse_args(["texts.txt", "Who sleeps?"]).words
        ['texts.txt', 'Who sleeps?']
    """
    parser.usage = "%(prog)s [options] [MODEL] FILE QUERY [QUERY ...]"
    parser.epilog = (
        "If the first argument is a file, or -, the default model is used. The vectors of the texts are stored in"
        f" the user's cache (~/.cache/sbert/vectors), and computed again if texts, model or options change. {ROW_HELP}"
    )
    add = parser.add_argument
    words = f"a model (default: {MINI}); {INPUT}; then the queries, or - for lines of standard input"
    add("words", nargs="+", metavar="[MODEL] FILE QUERY", help=words)
    add_options(parser, *SOURCES, *RESULTS)
    add("--top-k", type=at_least(1), default=10, metavar="N", help="results per query (10)")
    add("--threshold", type=real, metavar="X", help="minimum score")
    add("--no-cache", action="store_true", help="neither read nor store vectors")
    add("--hybrid", action="store_true", help="rank by vectors and by words (BM25); scores are 0 to 1")


def run(arguments: argparse.Namespace) -> None:
    """Run ``sbert search``.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If the arguments or a line are invalid, or there is no text.
    """
    queries = _understand(arguments)
    texts, rows = read_input(arguments)
    if queries == ["-"] and not (queries := [line for line in read_texts("-") if line.strip()]):
        raise ValueError("standard input contains no query; pass at least one line")
    hits = _hits(arguments, queries, texts)
    results = [
        [
            {"query": query, "rank": rank, "score": shortest(score), "row": rows[index], "text": texts[index]}
            for rank, (score, index) in enumerate(zip(scores, indices, strict=True), start=1)
            if arguments.threshold is None or score >= arguments.threshold
        ]
        for query, scores, indices in zip(queries, hits.scores, hits.ids, strict=True)
    ]
    show(arguments, _lines(queries, results), (record for hits in results for record in hits))


def _hits(arguments: argparse.Namespace, queries: list[str], texts: list[str]) -> Hits:
    """The scores and the indices of the best texts of each query."""
    from sbert.search import BM25, SparseIndex, semantic_search
    from sbert.search.index.bm25 import choose_language
    from sbert.search.index.fusion import CANDIDATES, hybrid_hits

    name = os.path.abspath(arguments.model) if os.path.isdir(arguments.model) else arguments.model
    arguments.model = resolve(arguments.model, organisation="sentence-transformers")
    model = load_by_options(arguments)
    kinds = ",".join(sorted({device.type for device in getattr(model, "devices", [model.device])}))
    settings = name, arguments.dtype, kinds, arguments.column, arguments.format
    path = None if arguments.no_cache else _cache_path(arguments.texts, *settings)
    documents = _encode_documents(model, texts, None if model.is_sparse else path, progress(arguments))
    query_vectors = model.encode_query(queries, show_progress_bar=False)
    top_k = max(arguments.top_k, CANDIDATES) if arguments.hybrid else arguments.top_k
    if model.is_sparse:
        index = SparseIndex()
        index.add(documents)
        dense = index.search(query_vectors, top_k)
    else:
        dense = semantic_search(query_vectors, documents, top_k, similarity=model.similarity_fn_name)
    if not arguments.hybrid:
        return dense
    language = choose_language("auto", model)
    bm25 = BM25(language=language)
    bm25.add(texts)
    return hybrid_hits([bm25.search(queries, top_k), dense], queries, bm25._postings, language, arguments.top_k)


def _cache_path(path: str, *settings: str | None) -> Path | None:
    """The file of the user's cache for a file and these settings; None if it is not a regular file, such as a pipe."""
    if not os.path.isfile(path):
        return None
    name = re.sub(r"[^\w.-]+", "-", Path(settings[0] or "").name)
    digest = hashlib.sha256(repr((os.path.realpath(path), settings)).encode("utf-8", "surrogatepass")).hexdigest()
    return user_cache() / "vectors" / f"{Path(path).stem}-{name}-{digest[:12]}.npy"


def _encode_documents(model: Any, texts: list[str], path: Path | None, show: bool | None) -> Any:
    """The vectors of documents: from the file of the cache if texts and model are unchanged, else encoded and stored.

    Args:
        model: The encoder.
        texts: The documents.
        path: The file of the cache, which ``encode(out=)`` writes and checks; None for no cache.
        show: The ``show_progress_bar`` of ``encode``.
    """
    from sbert.storage.files import one_line

    for overwrite in (False, True) if path else ():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)  # type: ignore[union-attr]
            return model.encode_document(texts, out=path, overwrite=overwrite, show_progress_bar=show)
        except ValueError:  # It is of other texts or of another model, or damaged.
            continue
        except (OSError, RuntimeError) as error:
            folder, reason = path.parent, one_line(error)  # type: ignore[union-attr]
            warnings.warn(f"{folder} cannot be written ({reason}), so the vectors are not stored", stacklevel=2)
            break
    return model.encode_document(texts, show_progress_bar=show)


def _understand(arguments: argparse.Namespace) -> list[str]:
    """Separate model, file and queries: a model is a folder or a name, so a file in its place contains the texts."""
    words: list[str] = arguments.words
    place = next((place for place, word in enumerate(words[:2]) if is_input(word)), None)
    if place is None:
        missing = next((word for word in words[:2] if not os.path.isdir(word)), words[0])
        raise FileNotFoundError(f"{missing!r}: file not found; pass [MODEL] FILE QUERY")
    arguments.model = words[0] if place else MINI
    arguments.texts, *queries = words[place:]
    if not queries:
        raise ValueError(f"there is no query after {arguments.texts}; pass one, or - for lines of standard input")
    if "-" in queries and (len(queries) > 1 or arguments.texts == "-"):
        raise ValueError("- is standard input, which contains either the texts or all queries; pass it once")
    return queries


def _lines(queries: list[str], results: list[list[dict[str, Any]]]) -> Iterator[Line]:
    """One block per query, below the query if there are several."""
    width = max((len(str(record["row"])) for hits in results for record in hits), default=1)
    for before, (query, hits) in enumerate(zip(queries, results, strict=True)):
        if before:
            yield Line("")
        if len(queries) > 1:
            yield Line("", query)
        for record in hits:
            yield Line(f"{record['score']:8.4f}  {record['row']:>{width}}  ", record["text"])
        if not hits:
            yield Line("nothing found")
