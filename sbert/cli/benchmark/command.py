"""``sbert benchmark``: its options, and what it prints and writes."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from sbert.cli.options import add_format, add_model, at_least, names, new_file, new_plot
from sbert.data import read_texts


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``sbert benchmark``."""
    add_model(parser)
    parser.add_argument("--data", metavar="FILE", help="short texts; default: synthetic texts")
    add_format(parser)
    against = "libraries to compare with; default: those installed"
    parser.add_argument("--against", type=names, metavar="A,B", help=against)
    parser.add_argument("--rounds", type=at_least(1), default=3, metavar="N", help="rounds per contender (3)")
    parser.add_argument("--sample", type=at_least(4), default=2000, metavar="N", help="short texts per round (2000)")
    parser.add_argument("--linear", action="store_true", help="also measure 1,000 to 100,000 texts")
    parser.add_argument("--json", type=new_file, metavar="FILE", help="write all results to this file")
    parser.add_argument("--plot", type=new_plot, metavar="FILE.png", help="draw the results; needs matplotlib")


def run(arguments: argparse.Namespace) -> None:
    """Run ``sbert benchmark``.

    Raises:
        ValueError: If an option or the data is invalid, or the model cannot run.
    """
    texts = None
    if arguments.data is not None:
        texts = list(read_texts(arguments.data, arguments.column, arguments.format))
    from sbert.cli.benchmark import measure, show

    result = measure.benchmark(
        arguments.model,
        texts,
        against=arguments.against,
        device=arguments.device,
        rounds=arguments.rounds,
        sample=arguments.sample,
        linear=arguments.linear,
    )
    print(show.report(result))
    if arguments.json is not None:
        Path(arguments.json).write_text(json.dumps(result, ensure_ascii=False, indent=2), encoding="utf-8")
    if arguments.plot is not None:
        show.plot(result, arguments.plot)
