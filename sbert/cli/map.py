"""``sbert map``: the texts of a file as points on a page; neighbours have similar meanings."""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sbert.cli.output import INPUT, add_input, check_output, read
from sbert.inputs.extras import missing

if TYPE_CHECKING:
    import numpy as np

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
    parser.add_argument("texts", help=INPUT)
    parser.add_argument("-o", "--output", required=True, metavar="FILE.html", help="where to write the page")
    add_input(parser)
    parser.add_argument("--clusters", type=int, metavar="N", help="number of colours (default: 2 to 12), 0 for none")
    parser.add_argument("--method", default="auto", help="layout: auto, tsne or pca")
    parser.add_argument("--title", help="title of the page (default: the file name)")
    parser.add_argument("--quiet", action="store_true", help="no progress bar and no summary")


def draw(arguments: argparse.Namespace) -> None:
    """Run ``sbert map``.

    Args:
        arguments: The parsed options of ``add_arguments``, and ``model``, ``device`` and ``dtype``.

    Raises:
        FileNotFoundError: If the file, or the folder of the page, does not exist.
        ValueError: If a line or an option is invalid, or there is no text.
    """
    check_output(arguments.output)
    if arguments.clusters is not None and arguments.clusters < 0:
        raise ValueError(f"--clusters {arguments.clusters} is too small; pass 0 for none")
    texts, _ = read(arguments)
    from sbert.encoder import SentenceEncoder
    from sbert.storage.atomic import write_text
    from sbert.visualization.map_page import map_page
    from sbert.visualization.projection import METHODS, NAMES, choose, project

    if arguments.method not in METHODS:
        raise ValueError(f"--method {arguments.method} is unknown; pass one of {', '.join(METHODS)}")
    model = SentenceEncoder(arguments.model, device=arguments.device, dtype=arguments.dtype)
    vectors = model.encode(
        texts, normalize_embeddings=True, show_progress_bar=False if arguments.quiet else None
    )  # (texts, dim)
    labels = _clusters(vectors, arguments.clusters)
    method, reason = choose(len(texts), arguments.method)
    layout = NAMES[method] + ("" if reason is None else f", because {reason}")
    points = project(vectors, 2, arguments.method)  # (texts, 2)
    title = arguments.title or ("Map" if arguments.texts == "-" else Path(arguments.texts).name)
    output = Path(arguments.output)
    note = f"Layout: {layout}. {_MEANING[method]}"
    write_text(output, map_page(texts, points, labels, _names(texts, labels), title, note))
    if not arguments.quiet:
        print(f"{output}: {len(texts)} texts, laid out by {layout}")


def _clusters(vectors: np.ndarray, count: int | None) -> np.ndarray | None:
    """One k-means cluster per vector, numbered by size, the largest first; None for no clusters."""
    import numpy as np

    rows = len(vectors)
    wanted = min(_CLUSTERS, round((rows / 2) ** 0.5)) if count is None else min(count, rows)
    if wanted < (2 if count is None else 1):
        return None
    try:
        from sklearn.cluster import KMeans
        from sklearn.exceptions import ConvergenceWarning
    except ImportError as error:
        if count is None:
            warnings.warn(
                f"the map shows no clusters: {missing('colouring them', 'scikit-learn', 'plot')}", stacklevel=2
            )
            return None
        raise missing(f"--clusters {count}", "scikit-learn", "cluster") from error
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # Repeated texts give fewer clusters.
        assigned = KMeans(wanted, n_init=1, random_state=0).fit_predict(vectors)
    _, inverse, sizes = np.unique(assigned, return_inverse=True, return_counts=True)
    ranks = np.empty(len(sizes), np.int64)
    ranks[np.argsort(-sizes, kind="stable")] = np.arange(len(sizes))
    ordered: np.ndarray = ranks[inverse]
    return ordered


def _names(texts: Sequence[str], labels: np.ndarray | None) -> list[str] | None:
    """The clusters' names in the legend and on the map: their typical words, or else their numbers."""
    if labels is None:
        return None
    from sbert.search import topic_words

    named = topic_words(texts, labels, _WORDS)
    return [", ".join(words) or f"cluster {label + 1}" for label, words in named.items()]
