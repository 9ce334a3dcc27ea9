"""``sbert map``: the texts of a file as points on a page; neighbours have similar meanings.

sbert map texts.txt -o map.html
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

from sbert.cli.options import TEXTS, add_options, at_least, load, new_file, progress, read

# More colours are hard to distinguish, and more words do not fit beside a cluster.
_CLUSTERS, _WORDS = 12, 3
# How to read a layout; printed on the page.
_MEANING = {
    "tsne": "Neighbours mean similar things; how far two groups are apart says little.",
    "pca": "Points far apart mean different things; points close together need not mean similar things.",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``sbert map``.

    Example:
        >>> parser = argparse.ArgumentParser()
        >>> add_arguments(parser)
        >>> parser.parse_args(["texts.txt", "-o", "map.html"]).method
        'auto'
    """
    add = parser.add_argument
    add_options(parser, *TEXTS, "--quiet")
    add("-o", "--output", type=new_file, required=True, metavar="FILE.html", help="where to write the page")
    add("--clusters", type=at_least(0), metavar="N", help="number of colours (default: 2 to 12), 0 for none")
    add("--method", choices=("auto", "tsne", "pca"), default="auto", metavar="NAME", help="auto, tsne or pca")
    add("--title", help="title of the page (default: the file name)")


def run(arguments: argparse.Namespace) -> None:
    """Run ``sbert map``.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If a line is invalid, or there is no text.
    """
    texts, _ = read(arguments)
    from sbert.search import topic_words
    from sbert.visualization.map_page import map_page
    from sbert.visualization.projection import NAMES, choose, project

    model = load(arguments)
    vectors = model.encode(texts, normalize_embeddings=True, show_progress_bar=progress(arguments))  # (texts, dim)
    labels = _clusters(vectors, arguments.clusters)
    names = {} if labels is None else topic_words(texts, labels, _WORDS)
    method, reason = choose(len(texts), arguments.method)
    layout = NAMES[method] + ("" if reason is None else f", because {reason}")
    map_page(
        texts,
        project(vectors, 2, arguments.method),
        labels,
        [", ".join(words) or f"cluster {label + 1}" for label, words in names.items()],
        title=arguments.title or ("Map" if arguments.texts == "-" else Path(arguments.texts).name),
        note=f"Layout: {layout}. {_MEANING[method]}",
        path=arguments.output,
    )
    if not arguments.quiet:
        print(f"{arguments.output}: {len(texts)} texts, laid out by {layout}")


def _clusters(vectors: Any, wanted: int | None) -> Any:
    """One k-means cluster per vector, numbered by size, the largest first; None for no clusters."""
    from sbert.search import cluster

    rows = len(vectors)
    count = min(_CLUSTERS, round((rows / 2) ** 0.5)) if wanted is None else min(wanted, rows)
    if count < (2 if wanted is None else 1):
        return None
    warnings.filterwarnings("ignore", "Number of distinct clusters")  # Repeated texts give fewer clusters.
    try:
        return cluster(vectors, "kmeans", clusters=count)
    except ImportError as error:
        if wanted is not None:
            raise
        warnings.warn(f"the map shows no clusters: {error}", stacklevel=2)
        return None
