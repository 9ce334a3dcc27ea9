"""``sbert map``: the texts of a file as points on a page; neighbours have similar meanings.

sbert map texts.txt -o map.html
sbert map news.csv --column text --color-by date -o map.html --image map.png
sbert map texts.txt --serve
"""

from __future__ import annotations

import argparse
import json
from contextlib import suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from sbert.cli.options import TEXTS, add_options, at_least, load, names, new_file, progress, read_rows

# How to read a layout; printed on the page.
_MEANING = {
    "tsne": "Neighbours mean similar things; how far two groups are apart says little.",
    "umap": "Neighbours mean similar things; how far two groups are apart says little.",
    "pca": "Points far apart mean different things; points close together need not mean similar things.",
}
# Topics of the coarsest level, those of the middle one for each, and results of the server.
_TOPICS, _FINER, _RESULTS = 12, 5, 50


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
    add("-o", "--output", type=new_file, metavar="FILE.html", help="where to write the page")
    add("--image", type=new_file, metavar="FILE", help="also write an image: .png, .svg or .pdf")
    add("--serve", type=at_least(0), nargs="?", const=8000, metavar="PORT", help="show it on this machine (port 8000)")
    add("--onto", metavar="OLD.html", help="place the texts into the map of this page, with a column new (yes, no)")
    add("--columns", type=names, default=[], metavar="NAMES", help="columns that the card of a point shows")
    add("--color-by", metavar="NAME", help="column of numbers, dates or categories that colours the points")
    add("--topics", type=at_least(0), metavar="N", help="number of coarse topics (default: 12), 0 for none")
    add("--method", choices=("auto", *_MEANING), default="auto", metavar="NAME", help="auto, tsne, umap or pca")
    add("--title", help="title of the page (default: the file name)")


def run(arguments: argparse.Namespace) -> None:
    """Run ``sbert map``.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If a line is invalid, there is no text, or no output is named.
    """
    server = _check(arguments)
    keep = list(dict.fromkeys([*arguments.columns, *filter(None, [arguments.color_by])]))
    if arguments.onto and "new" in keep:
        keep.remove("new")  # That column is made below.
    read = read_rows(arguments, keep)
    texts = [text for text, _ in read.values()]
    columns = {name: [row[name] for _, row in read.values()] for name in keep}
    import numpy as np

    from sbert.visualization import corpus_map, map_page
    from sbert.visualization.map_page import parse_column, read_page
    from sbert.visualization.projection import NAMES, choose, layout_quality, nearest_neighbours, place, project
    from sbert.visualization.topics import Topics, find_topics

    old, points, topics = read_page(arguments.onto) if arguments.onto else ([], None, [])
    model = load(arguments)
    texts = [*old, *texts]
    vectors = model.encode(texts, normalize_embeddings=True, show_progress_bar=progress(arguments))  # (texts, dim)
    neighbours = nearest_neighbours(vectors)
    if points is None:
        method, reason = choose(len(texts), arguments.method)
        layout = NAMES[method] + ("" if reason is None else f", because {reason}")
        points = project(vectors, arguments.method, neighbours, progress(arguments))
        coarse = _TOPICS if arguments.topics is None else arguments.topics
        if coarse and method != "pca":
            topics = find_topics(texts, vectors, points, (coarse, coarse * _FINER))
    else:
        placed, nearest = place(vectors[len(old) :], vectors[: len(old)], points)
        points = np.concatenate([points, placed])
        rows = np.concatenate([np.arange(len(old)), nearest])  # Each new text has the topics of its nearest old one.
        topics = [Topics(np.asarray(level.labels)[rows], level.names) for level in topics]
        columns = {name: [None] * len(old) + values for name, values in columns.items()}
        columns["new"] = ["no"] * len(old) + ["yes"] * len(placed)
        layout, method = f"that of {Path(arguments.onto).name}, with {len(placed):,} new texts", ""
    same, trustworthiness = layout_quality(vectors, points)
    if np.isfinite(same):
        layout += f"; keeps {same:.0%} of the 15 nearest texts, trustworthiness {trustworthiness:.2f}"
    title = arguments.title or ("Map" if arguments.texts == "-" else Path(arguments.texts).name)
    note = f"Layout: {layout}. {_MEANING.get(method, '')}".strip()
    make = partial(map_page, texts, points, topics, neighbours, columns, arguments.color_by, title, note)
    if arguments.output:
        make(path=arguments.output)
    if arguments.image:
        labels: Any = topics[0].of_each() if topics else None
        if arguments.color_by:
            labels = parse_column(columns[arguments.color_by])
            labels = [name or None for name in labels] if labels.dtype.kind == "O" else labels
        corpus_map(points, arguments.image, labels, legend=bool(arguments.color_by))
    if not arguments.quiet:
        for path in filter(None, (arguments.output, arguments.image)):
            print(f"{path}: {len(texts):,} texts, laid out by {layout}")
    if server is not None:
        _serve(server, make(served=True), model, vectors)


def _check(arguments: argparse.Namespace) -> Any:
    """Raise for options that do not fit, before the long computation; return the server, if there is one."""
    if not arguments.output and not arguments.image and arguments.serve is None:
        raise ValueError("there is no output; pass -o FILE.html, --image FILE or --serve")
    if arguments.onto and (arguments.method != "auto" or arguments.topics is not None):
        raise ValueError("--onto takes the layout and topics of the old page; leave --method and --topics out")
    return None if arguments.serve is None else _bind(arguments.serve)


class _Handler(BaseHTTPRequestHandler):
    """Answers browsers on this machine: the page, and searches by meaning."""

    server: Any
    timeout = 5  # Seconds; browsers open connections that they may not use.

    def do_GET(self) -> None:
        # Pages of other origins reach a server on this machine under a name of their own.
        if self.headers.get("Host", "").lower().partition(":")[0] not in ("127.0.0.1", "localhost"):
            return self.send_error(403)
        path, _, asked = self.path.partition("?")
        if path == "/search":
            return self.answer(json.dumps(self.server.find(parse_qs(asked).get("query", [""])[0])), "application/json")
        return self.answer(self.server.page, "text/html; charset=utf-8") if path == "/" else self.send_error(404)

    def answer(self, text: str, kind: str) -> None:
        """Send a text."""
        content = text.encode()
        with suppress(ConnectionError):  # The browser has gone.
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Requests are not printed."""


class _Server(ThreadingHTTPServer):
    daemon_threads = False  # A thread that computes while the process ends would abort it.


def _bind(port: int) -> Any:
    """A server on this machine, which does not answer yet."""
    try:
        return _Server(("127.0.0.1", port), _Handler)
    except (OSError, OverflowError) as error:
        raise ValueError(f"--serve {port}: {error}; pass another port, or 0 for any that is free") from error


def _serve(server: Any, page: str, model: Any, vectors: Any) -> None:
    """Answer until Ctrl-C."""
    from sbert.search import semantic_search

    def find(query: str) -> list[tuple[int, float]]:
        hits = semantic_search(model.encode_query([query]), vectors, top_k=min(_RESULTS, len(vectors)))
        return list(zip(hits.indices[0].tolist(), hits.scores[0].tolist(), strict=True))

    server.page, server.find = page, find
    with server:
        print(f"http://127.0.0.1:{server.server_port} shows the map on this machine; Ctrl-C ends it", flush=True)
        server.serve_forever()
