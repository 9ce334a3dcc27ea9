"""``sbert search``: the texts of a file that are most similar to queries."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from sbert.cli.options import (
    INPUT,
    add_device,
    add_devices,
    add_dtype,
    add_format,
    add_results,
    at_least,
    is_input,
    load_on_devices,
    number,
    progress,
    read,
)
from sbert.cli.output import Line, shortest, show
from sbert.data import read_texts
from sbert.storage.hub import OWN, resolve

if TYPE_CHECKING:
    from sbert.search import Hits, IndexHits


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``sbert search``.

    Example:
        >>> parser = argparse.ArgumentParser()
        >>> add_arguments(parser)
        >>> parser.parse_args(["texts.txt", "Who sleeps?"]).words
        ['texts.txt', 'Who sleeps?']
    """
    parser.usage = "%(prog)s [options] [MODEL] FILE QUERY [QUERY ...]"
    parser.epilog = (
        "If the first argument is a file, or -, the default model is used. The vectors of the texts are stored in"
        " the user's cache (~/.cache/sbert/vectors), and computed again if texts, model or options change. Rows are"
        " numbered from 1, without a header; empty ones are skipped."
    )
    words = f"folder or name of a model (default: {OWN}); {INPUT}; then the queries, or - for lines of standard input"
    parser.add_argument("words", nargs="+", metavar="[MODEL] FILE QUERY", help=words)
    add_device(parser)
    add_devices(parser)
    add_dtype(parser)
    add_format(parser)
    parser.add_argument("--top-k", type=at_least(1), default=10, metavar="N", help="results per query (10)")
    parser.add_argument("--threshold", type=number, metavar="X", help="minimum score")
    parser.add_argument(
        "--precision",
        choices=("float32", "int8", "binary"),
        default="float32",
        help="of the stored vectors: 4 bytes, 1 byte or 1 bit per dimension",
    )
    ways = parser.add_mutually_exclusive_group()
    about = "rank by vectors and by words (BM25); scores are 0 to 1"
    ways.add_argument("--hybrid", dest="way", action="store_const", const="hybrid", help=about)
    about = "rank by words alone, without a model"
    ways.add_argument("--words", dest="way", action="store_const", const="words", help=about)
    about = "of --hybrid and --words: leave out its stop words and compare stems (english, german, ...)"
    parser.add_argument("--language", metavar="NAME", help=about)
    parser.add_argument("--no-cache", action="store_true", help="neither read nor store vectors")
    add_results(parser)


def run(arguments: argparse.Namespace) -> None:
    """Run ``sbert search``.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If the arguments or a line are invalid, or there is no text.
    """
    queries = _understand(arguments)
    texts, rows = read(arguments)
    if queries == ["-"]:
        queries = [line for line in read_texts("-") if line.strip()]
        if not queries:
            raise ValueError("standard input contains no query; pass at least one line")
    hits = _hits(arguments, queries, texts)
    results = [
        [
            {"query": query, "rank": rank, "score": shortest(score), "row": rows[index], "text": texts[index]}
            for rank, (score, index) in enumerate(zip(scores, indices, strict=True), start=1)
            if (arguments.threshold is None or score >= arguments.threshold) and (score or arguments.way != "words")
        ]
        for query, scores, indices in zip(queries, *hits, strict=True)
    ]
    show(arguments, _lines(queries, results), (record for found in results for record in found))


def _hits(arguments: argparse.Namespace, queries: list[str], texts: list[str]) -> IndexHits:
    """The scores and the indices of the best texts of each query."""
    from sbert.search import BM25, IndexHits, fuse
    from sbert.search.index.fusion import CANDIDATES, WEIGHTS

    if arguments.way is None:
        return IndexHits(*_by_vectors(arguments, queries, texts, arguments.top_k))
    candidates = arguments.top_k if arguments.way == "words" else max(arguments.top_k, CANDIDATES)
    bm25 = BM25(language=arguments.language)
    bm25.add(texts)
    lexical = bm25.search(queries, candidates)
    if arguments.way == "words":
        return lexical
    dense = IndexHits(*_by_vectors(arguments, queries, texts, candidates))
    return fuse(lexical, dense, top_k=arguments.top_k, method="weighted", weights=WEIGHTS)


def _by_vectors(arguments: argparse.Namespace, queries: list[str], texts: list[str], top_k: int) -> Hits:
    from sbert.cli.vector_cache import PRECISIONS, cache_path, document_vectors
    from sbert.search import semantic_search

    name = os.path.abspath(arguments.model) if os.path.isdir(arguments.model) else arguments.model
    arguments.model = resolve(arguments.model, organisation="sentence-transformers")
    model = load_on_devices(arguments)
    place = None
    if not arguments.no_cache:
        kinds = ",".join(sorted({device.type for device in getattr(model, "devices", [model.device])}))
        options = arguments.precision, arguments.dtype, kinds, arguments.column, arguments.format
        place = cache_path(arguments.texts, name, *options)
    documents = document_vectors(model, texts, arguments.precision, place, progress(arguments))
    return semantic_search(
        model.encode_query(queries, show_progress_bar=False),
        documents.vectors,
        top_k,
        similarity=model.similarity_fn_name,
        precision=PRECISIONS[arguments.precision],
        ranges=documents.ranges,
    )


def _understand(arguments: argparse.Namespace) -> list[str]:
    """Separate model, file and queries: a model is a folder or a name, so a file in its place contains the texts."""
    words: list[str] = arguments.words
    place = next((place for place, word in enumerate(words[:2]) if is_input(word)), None)
    if place is None:
        missing = [word for word in words[:2] if not os.path.isdir(word)] or words
        raise FileNotFoundError(f"{' and '.join(map(repr, missing))}: file not found; pass [MODEL] FILE QUERY")
    arguments.model = words[0] if place else OWN
    arguments.texts, *queries = words[place:]
    if arguments.way == "words" and place:
        raise ValueError(f"--words compares words alone, without {words[0]}; leave out the model, or pass --hybrid")
    if arguments.language is not None and arguments.way is None:
        raise ValueError(f"--language {arguments.language} is for words; pass --hybrid or --words, too")
    if not queries:
        raise ValueError(f"there is no query after {arguments.texts}; pass one, or - for lines of standard input")
    if "-" in queries and (len(queries) > 1 or arguments.texts == "-"):
        raise ValueError("- is standard input, which contains either the texts or all queries; pass it once")
    return queries


def _lines(queries: list[str], results: list[list[dict[str, Any]]]) -> Iterator[Line]:
    """One block per query, below the query if there are several."""
    width = max((len(str(record["row"])) for found in results for record in found), default=1)
    for before, (query, found) in enumerate(zip(queries, results, strict=True)):
        if before:
            yield Line("")
        if len(queries) > 1:
            yield Line("", query)
        for record in found:
            yield Line(f"{record['score']:8.4f}  {record['row']:>{width}}  ", record["text"])
        if not found:
            yield Line("nothing found")
