"""``sbert recommend``: its options, and the order of the work."""

from __future__ import annotations

import argparse

from sbert.cli.options import add_device, add_dtype, add_format, add_quiet, at_least, names
from sbert.cli.recommend.collection import read
from sbert.cli.recommend.models import at_hand, named


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``sbert recommend``.

    Example:
        >>> parser = argparse.ArgumentParser()
        >>> add_arguments(parser)
        >>> parser.parse_args(["--data", "texts.txt", "--models", "a,b"]).models
        ['a', 'b']
    """
    parser.epilog = (
        "Measures vectors, words (BM25), both together (hybrid), and reranking. DIR has queries with judgments in the"
        " layout of BEIR; or it is a file or a folder of texts, from which queries are made: the titles, or the first"
        " sentences."
    )
    data = "folder with corpus, queries and qrels; or a file or folder of texts, as sbert encode takes"
    parser.add_argument("--data", required=True, metavar="DIR", help=data)
    add_format(parser)
    parser.add_argument("--title", metavar="NAME", help="column of titles, which become the queries")
    own = "encoders; default: that of the library, and those in the cache of the hub"
    parser.add_argument("--models", type=names, metavar="A,B", help=own)
    own = "cross-encoders; default: those in the cache of the hub"
    parser.add_argument("--rerankers", type=names, metavar="A,B", help=own)
    parser.add_argument("--rerank", type=at_least(0), default=30, metavar="K", help="documents to rerank (30); 0: none")
    language = "of stop words and stems of BM25 (english)"
    parser.add_argument("--language", default="english", metavar="NAME", help=language)
    parser.add_argument("--queries", type=at_least(1), default=200, metavar="N", help="at most so many queries (200)")
    most = "at most so many documents, beside relevant ones (5000)"
    parser.add_argument("--documents", type=at_least(2), default=5000, metavar="N", help=most)
    parser.add_argument("--seed", type=at_least(0), default=0, metavar="N", help="seed of the samples (0)")
    minutes = "leave out a model that would take longer (10)"
    parser.add_argument("--minutes", type=at_least(1), default=10, metavar="N", help=minutes)
    add_device(parser)
    add_dtype(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_quiet(parser)


def run(arguments: argparse.Namespace) -> None:
    """Run ``sbert recommend``.

    Raises:
        FileNotFoundError: If the data does not exist.
        ValueError: If the data is invalid, no query can be made, or no system could be measured.
    """
    collection = read(arguments)
    found = at_hand() if arguments.models is None or arguments.rerankers is None else ([], [])
    encoders = found[0] if arguments.models is None else named(arguments.models)
    rerankers = found[1] if arguments.rerankers is None else named(arguments.rerankers)
    from sbert.cli.recommend import show
    from sbert.cli.recommend.comparison import Comparison

    comparison = Comparison(arguments, collection)
    comparison.run(encoders, rerankers if arguments.rerank else [])
    if not comparison.systems:
        raise ValueError("; ".join(f"{name}: {reason}" for name, reason in comparison.failed.items()))
    print((show.as_json if arguments.json else show.report)(collection, comparison.systems, comparison.failed))
