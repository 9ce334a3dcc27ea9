"""``sbert encode``: the vectors of the texts of a file, in a .npy file."""

from __future__ import annotations

import argparse
import warnings

from sbert.cli.options import add_quiet, add_texts, load, progress
from sbert.data import read_texts


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``sbert encode``."""
    add_texts(parser)
    parser.add_argument("-o", "--output", required=True, metavar="FILE.npy", help="where to write the vectors")
    parser.add_argument("--prompt", metavar="TEXT", help="text inserted before each text")
    parser.add_argument("--prompt-name", metavar="NAME", help="one of the model's prompts")
    parser.add_argument("--batch-size", type=int, metavar="N", help="texts per batch")
    parser.add_argument("--batch-tokens", type=int, metavar="N", help="maximum number of tokens per batch")
    parser.add_argument("--normalize", action="store_true", help="scale vectors to length 1")
    parser.add_argument("--truncate-dim", type=int, metavar="N", help="keep the first N dimensions")
    parser.add_argument("--precision", default="float32", metavar="NAME", help="float32, binary or ubinary")
    truncated = "warn, ignore or error, for texts that are truncated"
    parser.add_argument("--on-truncate", default="warn", metavar="ACTION", help=truncated)
    add_quiet(parser)


def run(arguments: argparse.Namespace) -> None:
    """Run ``sbert encode``.

    Raises:
        FileNotFoundError: If the file, or the folder of the output, does not exist.
        ValueError: If a line or an option is invalid.
    """
    vectors = load(arguments).encode(
        read_texts(arguments.texts, arguments.column, arguments.format),
        out=arguments.output,
        prompt=arguments.prompt,
        prompt_name=arguments.prompt_name,
        batch_size=arguments.batch_size,
        batch_tokens=arguments.batch_tokens,
        normalize_embeddings=arguments.normalize,
        truncate_dim=arguments.truncate_dim,
        precision=arguments.precision,
        on_truncate=arguments.on_truncate,
        show_progress_bar=progress(arguments),
    )
    if not len(vectors):
        warnings.warn(f"{arguments.texts} contains no texts, so {arguments.output} contains no vectors", stacklevel=2)
    if not arguments.quiet:
        print(f"{arguments.output}: {vectors.shape[0]} vectors of {vectors.shape[1]} {vectors.dtype}")
