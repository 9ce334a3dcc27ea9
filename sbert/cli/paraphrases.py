"""``sbert pairs``: the most similar pairs of texts in a file."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from sbert.cli.output import INPUT, Line, add_input, add_output, check_output, number, read, score_of, show

# Default number of pairs, without and with a threshold.
_FEW, _MANY = 20, 500_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``sbert pairs``.

    Example:
        >>> parser = argparse.ArgumentParser()
        >>> add_arguments(parser)
        >>> parser.parse_args(["texts.txt", "--threshold", "0.9"]).threshold
        0.9
    """
    parser.epilog = "Rows are numbered from 1, without a header; empty ones are skipped."
    parser.add_argument("texts", help=INPUT)
    add_input(parser)
    parser.add_argument("--threshold", type=number, metavar="X", help="minimum score of a pair")
    parser.add_argument(
        "--max-pairs", type=int, metavar="N", help=f"maximum number of pairs ({_FEW}; with --threshold {_MANY:,})"
    )
    parser.add_argument(
        "--top-k",
        type=int,
        default=100,
        metavar="N",
        help="consider only the N most similar texts of each text (100)",
    )
    add_output(parser)


def pairs(arguments: argparse.Namespace) -> None:
    """Run ``sbert pairs``.

    Args:
        arguments: The parsed options of ``add_arguments``, and ``model``, ``device`` and ``dtype``.

    Raises:
        FileNotFoundError: If the file, or the folder of the output, does not exist.
        ValueError: If a line or an option is invalid, or there is no text.
    """
    check_output(arguments.output)
    wanted = arguments.max_pairs
    if wanted is None:
        wanted = _FEW if arguments.threshold is None else _MANY
    for name, value in (("--max-pairs", wanted), ("--top-k", arguments.top_k)):
        if value < 1:
            raise ValueError(f"{name} {value} is too small; pass at least 1")
    texts, rows = read(arguments)
    from sbert.encoder import SentenceEncoder
    from sbert.search import paraphrase_mining

    model = SentenceEncoder(arguments.model, device=arguments.device, dtype=arguments.dtype)
    mined = paraphrase_mining(
        model.encode(texts, convert_to_tensor=True, show_progress_bar=False if arguments.quiet else None),
        top_k=arguments.top_k,
        max_pairs=wanted,
        threshold=arguments.threshold,
        similarity=model.similarity_fn_name,
    )
    records = [
        {"score": score_of(score), "rows": [rows[i] for i in pair], "texts": [texts[i] for i in pair]}
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
