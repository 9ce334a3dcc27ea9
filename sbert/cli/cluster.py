"""``sbert cluster``: clusters of the texts of a file, and the words that are typical of each."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from sbert.cli.output import INPUT, Line, add_input, add_output, check_output, number, read, show
from sbert.inputs.extras import missing

if TYPE_CHECKING:
    import numpy as np

_METHODS = ("community", "kmeans", "agglomerative")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``sbert cluster``.

    Example:
        >>> parser = argparse.ArgumentParser()
        >>> add_arguments(parser)
        >>> parser.parse_args(["texts.txt", "--method", "kmeans", "-k", "8"]).clusters
        8
    """
    parser.epilog = (
        "Clusters are numbered by size, the largest first; within a cluster the texts nearest to its mean come first."
        " Rows are numbered from 1, without a header; empty ones are skipped."
    )
    parser.add_argument("texts", help=INPUT)
    add_input(parser)
    parser.add_argument(
        "--method",
        choices=_METHODS,
        default="community",
        help="community leaves single texts out; the others need scikit-learn",
    )
    parser.add_argument("-k", "--clusters", type=int, metavar="N", help="number of clusters (kmeans, agglomerative)")
    parser.add_argument(
        "--threshold",
        type=number,
        metavar="X",
        help="minimum cosine in a community (0.75), or to merge clusters",
    )
    parser.add_argument("--min-size", type=int, metavar="N", help="minimum size of a community (10)")
    parser.add_argument(
        "--words", dest="topic_words", type=int, default=5, metavar="N", help="topic words per cluster (5)"
    )
    parser.add_argument("--show", type=int, metavar="N", help="texts to print per cluster (default: all)")
    add_output(parser)


def cluster(arguments: argparse.Namespace) -> None:
    """Run ``sbert cluster``.

    Args:
        arguments: The parsed options of ``add_arguments``, and ``model``, ``device`` and ``dtype``.

    Raises:
        FileNotFoundError: If the file, or the folder of the output, does not exist.
        ImportError: If scikit-learn is needed and not installed.
        ValueError: If a line or an option is invalid, or there is no text.
    """
    _check_options(arguments)
    check_output(arguments.output)
    texts, rows = read(arguments)
    if arguments.clusters is not None and arguments.clusters > len(texts):
        raise ValueError(f"-k {arguments.clusters} exceeds the {len(texts)} texts; pass at most that")
    from sbert import search
    from sbert.encoder import SentenceEncoder

    model = SentenceEncoder(arguments.model, device=arguments.device, dtype=arguments.dtype)
    vectors = model.encode(
        texts, normalize_embeddings=True, show_progress_bar=False if arguments.quiet else None
    )  # (texts, dim)
    labels = search.cluster(
        vectors,
        arguments.method,
        clusters=arguments.clusters,
        threshold=arguments.threshold,
        min_community_size=arguments.min_size or 10,
    )
    words = search.topic_words(texts, labels, arguments.topic_words)
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
    for name, value, least in (
        ("-k", k, 1),
        ("--min-size", arguments.min_size, 1),
        ("--words", arguments.topic_words, 1),
        ("--show", arguments.show, 0),
    ):
        if value is not None and value < least:
            raise ValueError(f"{name} {value} is too small; pass at least {least}")
    if threshold is not None and not -1 <= threshold <= 1:
        raise ValueError(f"--threshold {threshold} is not a cosine; pass -1 to 1")
    if method == "community":
        if k is not None:
            raise ValueError("-k is for --method kmeans and agglomerative; leave it out for communities")
        return
    if arguments.min_size is not None:
        raise ValueError(f"--min-size is for communities; leave it out for --method {method}")
    if method == "kmeans" and (k is None or threshold is not None):
        raise ValueError("--method kmeans takes the number of clusters, -k, and no --threshold")
    if method == "agglomerative" and (k is None) == (threshold is None):
        raise ValueError("--method agglomerative takes either the number of clusters, -k, or --threshold")
    if find_spec("sklearn") is None:
        raise missing(f"--method {method}", "scikit-learn", "cluster")


def _members(vectors: np.ndarray, labels: np.ndarray) -> Iterator[tuple[int, list[int]]]:
    """The members of each cluster, the nearest to its mean direction first; last, the texts without a cluster."""
    import numpy as np

    for label in [*range(int(labels.max(initial=-1)) + 1), -1]:
        members = np.flatnonzero(labels == label)
        if label >= 0:
            nearness = vectors[members] @ vectors[members].mean(0)
            members = members[np.argsort(-nearness, kind="stable")]
        if len(members):
            yield label, members.tolist()


def _lines(records: list[dict[str, Any]], shown: int | None) -> Iterator[Line]:
    """One block per cluster; of the texts without a cluster, only their number."""
    width = max(len(str(row)) for record in records for row in record["rows"])
    for place, record in enumerate(records):
        if place:
            yield Line("")
        texts = f"{record['size']} {'text' if record['size'] == 1 else 'texts'}"
        if record["cluster"] is None:
            hint = "" if place else "; try a lower --threshold or --min-size"
            yield Line(f"no cluster: {texts}{hint}")
            continue
        yield Line(f"cluster {record['cluster']}: {texts}  ", f"{', '.join(record['words'])}")
        for row, text in list(zip(record["rows"], record["texts"], strict=True))[:shown]:
            yield Line(f"  {row:>{width}}  ", text)
