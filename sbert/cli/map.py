"""``sbert map``: the texts of a file as points on a page; neighbours have similar meanings.

sbert map texts.txt -o map.html
sbert map news.csv --column text --color-by topic -o map.html --image map.png
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from sbert.cli.options import (
    TEXT_INPUT,
    add_options,
    at_least,
    encode_input,
    names,
    new_file,
    progress,
    read_input_rows,
)

# How to read a layout; printed on the page.
_MEANING = {
    "tsne": "Neighbours mean similar things; how far two groups are apart says little.",
    "pca": "Points far apart mean different things; points close together need not mean similar things.",
}
_FINER = 5  # Topics of the middle level for each of the coarsest.


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``sbert map``.

    Example:
        >>> import argparse
        >>> from sbert.cli.map import add_arguments
        >>> parser = argparse.ArgumentParser()
        >>> add_arguments(parser)
        >>> parser.parse_args(["texts.txt", "-o", "map.html"]).topics
        12
    """
    add = parser.add_argument
    add_options(parser, *TEXT_INPUT, "--quiet")
    add("-o", "--output", type=new_file, metavar="FILE.html", help="where to write the page")
    add("--image", type=new_file, metavar="FILE", help="write an image, too: .png, .svg or .pdf")
    add("--columns", type=names, default=[], metavar="NAMES", help="columns that the card of a point shows")
    add("--color-by", metavar="NAME", help="column that colours the points; in an image, as categories")
    add("--topics", type=at_least(0), default=12, metavar="N", help="number of coarse topics (12), 0 for none")


def run(arguments: argparse.Namespace) -> None:
    """Run ``sbert map``.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If a line is invalid, there is no text, or no output is named.
    """
    if not arguments.output and not arguments.image:
        raise ValueError("there is no output; pass -o FILE.html or --image FILE")
    keep = list(dict.fromkeys([*arguments.columns, *filter(None, [arguments.color_by])]))
    rows = read_input_rows(arguments, keep).values()
    texts = [text for text, _ in rows]
    columns = {name: [row[name] for _, row in rows] for name in keep}
    from sbert.visualization import corpus_map, find_topics, map_page, nearest_neighbours, project_vectors
    from sbert.visualization.projection import LAYOUTS, choose_projection

    _, vectors = encode_input(arguments, texts, normalize_embeddings=True)
    neighbours = nearest_neighbours(vectors)
    method, reason = choose_projection(len(texts))
    points = project_vectors(vectors, method, neighbours, progress(arguments))
    coarse = arguments.topics if method != "pca" else 0
    topics = find_topics(texts, vectors, points, (coarse, coarse * _FINER)) if coarse else []
    layout = LAYOUTS[method] + ("" if reason is None else f", because {reason}")
    title = "Map" if arguments.texts == "-" else Path(arguments.texts).name
    if arguments.output:
        note = f"Layout: {layout}. {_MEANING[method]}"
        map_page(texts, points, topics, neighbours, columns, arguments.color_by, title, note, arguments.output)
    if arguments.image:
        labels: Any = topics[0].of_each() if topics else None
        if arguments.color_by:
            labels = [None if value in (None, "") else str(value) for value in columns[arguments.color_by]]
        corpus_map(points, arguments.image, labels, legend=bool(arguments.color_by))
    if not arguments.quiet:
        for path in filter(None, (arguments.output, arguments.image)):
            print(f"{path}: {len(texts):,} texts, laid out by {layout}")
