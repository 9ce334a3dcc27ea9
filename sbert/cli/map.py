"""``sbert map``: the texts of a file as points on a page, near each other where they mean the same."""

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

# More would not be told apart by their colours; nor would more words fit beside a cluster.
_CLUSTERS, _WORDS = 12, 3
# What a layout shows, for a reader of the page.
_MEANING = {
    "tsne": "Neighbours mean similar things; how far two groups are apart says little.",
    "pca": "Points far apart mean different things; points close together need not mean similar things.",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give a parser the arguments of ``sbert map``.

    Example:
        >>> parser = argparse.ArgumentParser()
        >>> add_arguments(parser)
        >>> parser.parse_args(["texts.txt", "-o", "map.html"]).method
        'auto'
    """
    parser.add_argument("texts", help=INPUT)
    parser.add_argument("-o", "--output", required=True, metavar="FILE.html", help="where to write the page")
    add_input(parser)
    parser.add_argument("--clusters", type=int, metavar="N", help="colours; 2 to 12 if not given, 0 for none")
    parser.add_argument("--method", default="auto", help="auto, tsne or pca: how points are laid out")
    parser.add_argument("--title", help="of the page; the file's name where it is not given")
    parser.add_argument("--quiet", action="store_true", help="no progress bar, and no line at the end")


def draw(arguments: argparse.Namespace) -> None:
    """Run ``sbert map``.

    Args:
        arguments: As ``add_arguments`` has them parsed, with ``model``, ``device`` and ``dtype``.

    Raises:
        FileNotFoundError: If there is no such file, or no folder for the page.
        ValueError: If a line does not fit, there is no text, or an option does not fit.
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
    """A cluster for each vector, the largest first, by k-means; None where there are to be none."""
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
        warnings.simplefilter("ignore", ConvergenceWarning)  # Of texts that repeat there are fewer clusters.
        found = KMeans(wanted, n_init=1, random_state=0).fit_predict(vectors)
    _, inverse, sizes = np.unique(found, return_inverse=True, return_counts=True)
    ranks = np.empty(len(sizes), np.int64)
    ranks[np.argsort(-sizes, kind="stable")] = np.arange(len(sizes))
    ordered: np.ndarray = ranks[inverse]
    return ordered


def _names(texts: Sequence[str], labels: np.ndarray | None) -> list[str] | None:
    """The clusters' names in the legend and on the map: the words that tell them apart, or else their numbers."""
    if labels is None:
        return None
    from sbert.search import topic_words

    found = topic_words(texts, labels, _WORDS)
    return [", ".join(words) or f"cluster {label + 1}" for label, words in found.items()]
