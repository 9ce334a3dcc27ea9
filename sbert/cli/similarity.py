"""``sbert similarity``: the similarities of a few texts.

sbert similarity "The cat sleeps." "A kitten is napping."
"""

from __future__ import annotations

import argparse
import os

from sbert.cli.options import LOADING, add_options, load_by_options
from sbert.storage.hub import MINI


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``sbert similarity``."""
    parser.usage = "%(prog)s [options] [MODEL] TEXT TEXT [TEXT ...]"
    about = "two texts, for one score; or a model and two or more texts, for a matrix"
    parser.add_argument("words", nargs="+", metavar="TEXT", help=about)
    add_options(parser, *LOADING)


def run(arguments: argparse.Namespace) -> None:
    """Run ``sbert similarity``.

    Raises:
        ValueError: If there are fewer than two texts.
    """
    first, *texts = arguments.words
    if len(texts) == 1 and not _is_model(first):  # Two arguments are two texts.
        first, texts = MINI, arguments.words
    if len(texts) < 2:
        raise ValueError("one text cannot be compared; pass two or more")
    arguments.model = first
    model = load_by_options(arguments)
    vectors = model.encode(texts)
    scores = model.similarity(vectors, vectors)
    if len(vectors) == 2:
        print(f"{scores[0, 1]:.4f}")
    else:
        print("\n".join(" ".join(f"{score:8.4f}" for score in row) for row in scores))


def _is_model(word: str) -> bool:
    return word == MINI or any(os.path.isfile(os.path.join(word, name)) for name in ("modules.json", "config.json"))
