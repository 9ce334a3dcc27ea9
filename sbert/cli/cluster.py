"""``sbert cluster``: clusters of the texts of a file, with the words typical of each.

sbert cluster texts.txt --threshold 0.7 --min-size 2
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

from sbert.cli.options import RESULTS, ROWS, TEXTS, add_options, at_least, load, progress, read, real
from sbert.cli.output import Line, show
from sbert.inputs.extras import missing

# For each method, what it takes, in words.
_METHODS = {
    "community": "--threshold and --min-size, and no -k",
    "kmeans": "the number of clusters, -k, and no --threshold or --min-size",
    "agglomerative": "either the number of clusters, -k, or --threshold, and no --min-size",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``sbert cluster``.

    Example:
        >>> parser = argparse.ArgumentParser()
        >>> add_arguments(parser)
        >>> parser.parse_args(["texts.txt", "--method", "kmeans", "-k", "8"]).clusters
        8
    """
    parser.epilog = f"The largest cluster comes first, and in each the texts nearest to its mean. {ROWS}"
    add = parser.add_argument
    add_options(parser, *TEXTS, *RESULTS)
    method = "community (the default) leaves single texts out; kmeans and agglomerative need scikit-learn"
    add("--method", choices=_METHODS, default="community", metavar="NAME", help=method)
    add("-k", "--clusters", type=at_least(1), metavar="N", help="number of clusters (kmeans, agglomerative)")
    add("--threshold", type=real, metavar="X", help="minimum cosine: with a community's centre (0.75), or of clusters")
    add("--min-size", type=at_least(1), metavar="N", help="minimum size of a community (10)")
    add("--words", type=at_least(1), default=5, metavar="N", help="topic words per cluster (5)")
    add("--show", type=at_least(0), metavar="N", help="texts to print per cluster (default: all)")


def run(arguments: argparse.Namespace) -> None:
    """Run ``sbert cluster``.

    Raises:
        FileNotFoundError: If the file does not exist.
        ImportError: If scikit-learn is needed and not installed.
        ValueError: If the options contradict each other, a line is invalid, or there is no text.
    """
    _check_options(arguments)
    texts, rows = read(arguments)
    from sbert import search

    model = load(arguments)
    vectors = model.encode(texts, normalize_embeddings=True, show_progress_bar=progress(arguments))  # (texts, dim)
    options = {"clusters": arguments.clusters, "threshold": arguments.threshold}
    labels = search.cluster(vectors, arguments.method, min_community_size=arguments.min_size or 10, **options)
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


def _check_options(arguments: argparse.Namespace) -> None:
    """Raise an error for options that contradict each other, before the file is read."""
    method, k, threshold = arguments.method, arguments.clusters, arguments.threshold
    fits = {"community": k is None, "kmeans": k is not None and threshold is None}
    fits_size = arguments.min_size is None or method == "community"
    if not fits_size or not fits.get(method, (k is None) != (threshold is None)):
        raise ValueError(f"--method {method} takes {_METHODS[method]}")
    if method != "community" and find_spec("sklearn") is None:
        raise missing(f"--method {method}", "scikit-learn", "cluster")


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
        yield Line(f"cluster {record['cluster']}: {size}  ", ", ".join(record["words"]))
        for row, text in list(zip(record["rows"], record["texts"], strict=True))[:most]:
            yield Line(f"  {row:>{width}}  ", text)
