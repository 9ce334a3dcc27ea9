"""``sbert cluster``: clusters of the texts of a file, with the words typical of each.

sbert cluster texts.txt --threshold 0.7 --min-size 2
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from sbert.cli.options import RESULTS, ROW_HELP, TEXT_INPUT, add_options, at_least, encode_input, read_input, real
from sbert.cli.output import Line, show


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``sbert cluster``.

    Example:
        >>> import argparse
        >>> from sbert.cli.cluster import add_arguments
        >>> parser = argparse.ArgumentParser()
        >>> add_arguments(parser)
        >>> parser.parse_args(["texts.txt", "-k", "8"]).clusters
        8
    """
    parser.epilog = f"The largest cluster comes first, and in each the texts nearest to its mean. {ROW_HELP}"
    add = parser.add_argument
    add_options(parser, *TEXT_INPUT, *RESULTS)
    about = "put all texts into N clusters (k-means, needs scikit-learn); without, dissimilar texts stay out"
    add("-k", "--clusters", type=at_least(1), metavar="N", help=about)
    add("--threshold", type=real, metavar="X", help="minimum cosine with the centre of a cluster (0.75)")
    add("--min-size", type=at_least(1), metavar="N", help="minimum size of a cluster (10)")
    add("--words", type=at_least(1), default=5, metavar="N", help="topic words per cluster (5)")
    add("--show", type=at_least(0), metavar="N", help="texts to print per cluster (default: all)")


def run(arguments: argparse.Namespace) -> None:
    """Run ``sbert cluster``.

    Raises:
        FileNotFoundError: If the file does not exist.
        ImportError: If scikit-learn is needed and not installed.
        ValueError: If the options contradict each other, a line is invalid, or there is no text.
    """
    if arguments.clusters and (arguments.threshold or arguments.min_size):
        raise ValueError("--threshold and --min-size are for clusters of any number; leave them or -k out")
    texts, rows = read_input(arguments)
    from sbert import search

    _, vectors = encode_input(arguments, texts, normalize_embeddings=True)
    options = {"clusters": arguments.clusters, "threshold": arguments.threshold}
    method = "kmeans" if arguments.clusters else "community"
    labels = search.cluster(vectors, method, min_community_size=arguments.min_size or 10, **options)
    words = search.topic_words(texts, labels, arguments.words)
    records = [
        {
            "cluster": None if label < 0 else label + 1,
            "size": len(members),
            "words": words.get(label, []),
            "rows": [rows[i] for i in members],
            "texts": [texts[i] for i in members],
        }
        for label, members in _members(vectors, labels)
    ]
    show(arguments, _lines(records, arguments.show), records)


def _members(vectors: Any, labels: Any) -> Iterator[tuple[int, list[int]]]:
    """The members of each cluster, the nearest to its mean direction first; last, the texts without a cluster."""
    import numpy as np

    for label in [*range(int(labels.max(initial=-1)) + 1), -1]:
        members = np.flatnonzero(labels == label)
        if label >= 0:
            nearness = vectors[members] @ vectors[members].mean(0)
            members = members[np.argsort(-nearness, kind="stable")]
        if len(members):
            yield label, members.tolist()


def _lines(records: list[dict[str, Any]], most: int | None) -> Iterator[Line]:
    """One block per cluster, of at most ``most`` texts; of the texts without a cluster, only their number."""
    width = max(len(str(row)) for record in records for row in record["rows"])
    for number, record in enumerate(records):
        if number:
            yield Line("")
        size = f"{record['size']} {'text' if record['size'] == 1 else 'texts'}"
        if record["cluster"] is None:
            yield Line(f"no cluster: {size}{'' if number else '; try a lower --threshold or --min-size'}")
            continue
        yield Line(f"cluster {record['cluster']}: {size}  {', '.join(record['words'])}".rstrip())
        for row, text in list(zip(record["rows"], record["texts"], strict=True))[:most]:
            yield Line(f"  {row:>{width}}  ", text)
