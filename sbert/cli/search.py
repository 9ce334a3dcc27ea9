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
    """Give a parser the arguments of ``sbert search``.

    Example:
        >>> parser = argparse.ArgumentParser()
        >>> add_arguments(parser)
        >>> parser.parse_args(["texts.txt", "Who sleeps?"]).words
        ['texts.txt', 'Who sleeps?']
    """
    parser.usage = "%(prog)s [options] [MODEL] FILE QUERY [QUERY ...]"
    parser.epilog = (
        "If the first of these words is a file, or -, no model was named. The vectors of the file's texts are kept"
        " beside it, in the folder FILE.sbert-vectors, and encoded anew if texts, model or options change. Rows are"
        " those of the file, counted from 1 and without a header; empty ones are left out."
    )
    parser.add_argument(
        "words",
        nargs="+",
        metavar="FILE QUERY",
        help=f"{INPUT}; and what to search for, or - for lines of standard input",
    )
    parser.set_defaults(model=None)
    add_input(parser)
    parser.add_argument("--top-k", type=int, default=10, metavar="N", help="texts for each query (10)")
    parser.add_argument("--threshold", type=number, metavar="X", help="the least score")
    parser.add_argument(
        "--precision",
        choices=("float32", "int8", "binary"),
        default="float32",
        help="in which vectors are kept and compared: 4 bytes a number, 1 byte or 1 bit",
    )
    parser.add_argument("--no-cache", action="store_true", help="neither read nor keep vectors")
    add_output(parser)


def search(arguments: argparse.Namespace) -> None:
    """Run ``sbert search``.

    Args:
        arguments: As ``add_arguments`` has them parsed, with ``model``, ``device`` and ``dtype``.

    Raises:
        FileNotFoundError: If there is no such file, or no folder for the output.
        ValueError: If a line does not fit, there is no text, or an option does not fit.
    """
    queries = _understand(arguments)
    check_output(arguments.output)
    if arguments.top_k < 1:
        raise ValueError(f"--top-k {arguments.top_k} is too small; pass at least 1")
    texts, rows = read(arguments)
    if queries == ["-"]:
        queries = [line for line in read_texts("-") if line.strip()]
        if not queries:
            raise ValueError("standard input holds no query; pass some lines")
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
    kept = document_vectors(model, source, texts, arguments.precision, place, arguments.quiet)
    hits = semantic_search(
        model.encode_query(queries, show_progress_bar=False),
        kept.vectors,
        arguments.top_k,
        similarity=model.similarity_fn_name,
        precision=PRECISIONS[arguments.precision],
        ranges=kept.ranges,
    )
    found = list(_found(queries, texts, rows, hits, arguments.threshold))
    show(arguments, _lines(found, len(queries) > 1), (record for _, records in found for record in records))


def _understand(arguments: argparse.Namespace) -> list[str]:
    """Tell model, file and queries apart: a model is a folder or a name, so a file in its place is the texts'."""
    words = [*([] if arguments.model is None else [arguments.model]), *arguments.words]
    place = next((place for place, word in enumerate(words[:2]) if _is_input(word)), None)
    if place is None:
        missing = [word for word in words[:2] if not os.path.isdir(word)] or words
        raise FileNotFoundError(f"{' and '.join(map(repr, missing))}: no such file; pass [MODEL] FILE QUERY")
    arguments.model = words[0] if place else OWN
    arguments.texts, *queries = words[place:]
    if not queries:
        raise ValueError(f"there is no query behind {arguments.texts}; pass one, or - for lines of standard input")
    if "-" in queries and (len(queries) > 1 or arguments.texts == "-"):
        raise ValueError("- is standard input, which holds either the texts or all of the queries; pass it once")
    return queries


def _is_input(word: str) -> bool:
    """Whether this names something to read texts from."""
    return word == "-" or (os.path.exists(word) and not os.path.isdir(word))


def _found(
    queries: list[str], texts: list[str], rows: list[int], hits: Hits, threshold: float | None
) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """For each query what was found, the best first."""
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


def _lines(found: list[tuple[str, list[dict[str, Any]]]], titled: bool) -> Iterator[Line]:
    """A table for each query, below the query itself if there are several."""
    width = max((len(str(record["row"])) for _, records in found for record in records), default=1)
    for place, (query, records) in enumerate(found):
        if titled:
            if place:
                yield Line("")
            yield Line("", query)
        for record in records:
            yield Line(f"{record['score']:8.4f}  {record['row']:>{width}}  ", record["text"])
        if not records:
            yield Line("nothing found")
