"""``sbert search``: the texts of a file that are most similar to queries."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from sbert.cli.output import INPUT, Line, add_input, add_output, check_output, number, read, score_of, show
from sbert.data import read_texts
from sbert.storage.hub import OWN, resolve

if TYPE_CHECKING:
    from sbert.search import Hits


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
        "If the first argument is a file, or -, the default model is used. The vectors of the texts are stored beside"
        " the file, in the folder FILE.sbert-vectors, and computed again if texts, model or options change. Rows are"
        " numbered from 1, without a header; empty ones are skipped."
    )
    parser.add_argument(
        "words",
        nargs="+",
        metavar="FILE QUERY",
        help=f"{INPUT}; then the queries, or - for lines of standard input",
    )
    parser.set_defaults(model=None)
    add_input(parser)
    parser.add_argument("--top-k", type=int, default=10, metavar="N", help="results per query (10)")
    parser.add_argument("--threshold", type=number, metavar="X", help="minimum score")
    parser.add_argument(
        "--precision",
        choices=("float32", "int8", "binary"),
        default="float32",
        help="of the stored vectors: 4 bytes, 1 byte or 1 bit per dimension",
    )
    parser.add_argument("--no-cache", action="store_true", help="neither read nor store vectors")
    add_output(parser)


def search(arguments: argparse.Namespace) -> None:
    """Run ``sbert search``.

    Args:
        arguments: The parsed options of ``add_arguments``, and ``model``, ``device`` and ``dtype``.

    Raises:
        FileNotFoundError: If the file, or the folder of the output, does not exist.
        ValueError: If a line or an option is invalid, or there is no text.
    """
    queries = _understand(arguments)
    check_output(arguments.output)
    if arguments.top_k < 1:
        raise ValueError(f"--top-k {arguments.top_k} is too small; pass at least 1")
    texts, rows = read(arguments)
    if queries == ["-"]:
        queries = [line for line in read_texts("-") if line.strip()]
        if not queries:
            raise ValueError("standard input contains no query; pass at least one line")
    from sbert.cli.vector_cache import PRECISIONS, document_vectors, folder_of
    from sbert.encoder import SentenceEncoder
    from sbert.search import semantic_search

    source = resolve(arguments.model, organisation="sentence-transformers")
    model = SentenceEncoder(source, device=arguments.device, dtype=arguments.dtype)
    place = None
    if not arguments.no_cache:
        named = os.path.abspath(arguments.model) if os.path.isdir(arguments.model) else arguments.model
        options = arguments.precision, arguments.dtype, model.device.type, arguments.column, arguments.format
        place = folder_of(arguments.texts, named, *options)
    documents = document_vectors(model, source, texts, arguments.precision, place, arguments.quiet)
    hits = semantic_search(
        model.encode_query(queries, show_progress_bar=False),
        documents.vectors,
        arguments.top_k,
        similarity=model.similarity_fn_name,
        precision=PRECISIONS[arguments.precision],
        ranges=documents.ranges,
    )
    results = list(_results(queries, texts, rows, hits, arguments.threshold))
    show(arguments, _lines(results, len(queries) > 1), (record for _, records in results for record in records))


def _understand(arguments: argparse.Namespace) -> list[str]:
    """Separate model, file and queries: a model is a folder or a name, so a file in its place contains the texts."""
    words = [*([] if arguments.model is None else [arguments.model]), *arguments.words]
    place = next((place for place, word in enumerate(words[:2]) if _is_input(word)), None)
    if place is None:
        missing = [word for word in words[:2] if not os.path.isdir(word)] or words
        raise FileNotFoundError(f"{' and '.join(map(repr, missing))}: file not found; pass [MODEL] FILE QUERY")
    arguments.model = words[0] if place else OWN
    arguments.texts, *queries = words[place:]
    if not queries:
        raise ValueError(f"there is no query after {arguments.texts}; pass one, or - for lines of standard input")
    if "-" in queries and (len(queries) > 1 or arguments.texts == "-"):
        raise ValueError("- is standard input, which contains either the texts or all queries; pass it once")
    return queries


def _is_input(word: str) -> bool:
    """Whether an argument names a source of texts."""
    return word == "-" or (os.path.exists(word) and not os.path.isdir(word))


def _results(
    queries: list[str], texts: list[str], rows: list[int], hits: Hits, threshold: float | None
) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """For each query its results, the best first."""
    for query, scores, indices in zip(queries, hits.scores, hits.indices, strict=True):
        pairs = [
            (score_of(score), int(index))
            for score, index in zip(scores, indices, strict=True)
            if threshold is None or score >= threshold
        ]
        yield (
            query,
            [
                {"query": query, "rank": rank, "score": score, "row": rows[index], "text": texts[index]}
                for rank, (score, index) in enumerate(pairs, start=1)
            ],
        )


def _lines(results: list[tuple[str, list[dict[str, Any]]]], titled: bool) -> Iterator[Line]:
    """One table per query, below the query if there are several."""
    width = max((len(str(record["row"])) for _, records in results for record in records), default=1)
    for place, (query, records) in enumerate(results):
        if titled:
            if place:
                yield Line("")
            yield Line("", query)
        for record in records:
            yield Line(f"{record['score']:8.4f}  {record['row']:>{width}}  ", record["text"])
        if not records:
            yield Line("nothing found")
