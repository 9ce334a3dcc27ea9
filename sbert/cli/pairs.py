"""``sbert pairs``: the most similar pairs of texts in a file.

sbert pairs texts.txt --threshold 0.9 --json
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from sbert.cli.options import RESULTS, ROW_HELP, TEXT_INPUT, add_options, at_least, encode_input, read_input, real
from sbert.cli.output import Line, shortest, show

# Default number of pairs, without and with a threshold.
_FEW, _MANY = 20, 500_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``sbert pairs``.

    Example:
        >>> import argparse
        >>> from sbert.cli.pairs import add_arguments
        >>> parser = argparse.ArgumentParser()
        >>> add_arguments(parser)
        >>> parser.parse_args(["texts.txt", "--threshold", "0.9"]).threshold
        0.9
    """
    parser.epilog, add = ROW_HELP, parser.add_argument
    add_options(parser, *TEXT_INPUT, *RESULTS)
    add("--threshold", type=real, metavar="X", help="minimum score of a pair")
    add("--max-pairs", type=at_least(1), metavar="N", help=f"most pairs ({_FEW}; with --threshold {_MANY:,})")


def run(arguments: argparse.Namespace) -> None:
    """Run ``sbert pairs``.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If a line is invalid, or there is no text.
    """
    texts, rows = read_input(arguments)
    from sbert.search import paraphrase_mining

    model, vectors = encode_input(arguments, texts, convert_to_tensor=True)
    mined = paraphrase_mining(
        vectors,
        max_pairs=arguments.max_pairs or (_FEW if arguments.threshold is None else _MANY),
        threshold=arguments.threshold,
        similarity=model.similarity_fn_name,
    )
    records = [
        {"score": shortest(score), "rows": [rows[i] for i in pair], "texts": [texts[i] for i in pair]}
        for score, *pair in mined
    ]
    show(arguments, _lines(records), records)


def _lines(records: list[dict[str, Any]]) -> Iterator[Line]:
    """Two lines per pair, because a terminal is too narrow for two texts side by side."""
    width = max((len(str(row)) for record in records for row in record["rows"]), default=1)
    for record in records:
        for start, row, text in zip((f"{record['score']:8.4f}", " " * 8), record["rows"], record["texts"], strict=True):
            yield Line(f"{start}  {row:>{width}}  ", text)
    if not records:
        yield Line("no pairs")
