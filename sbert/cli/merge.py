"""``sbert merge``: one file of the shards that ``sbert encode --shard`` has written.

sbert merge vectors.npy
"""

from __future__ import annotations

import argparse

from sbert.cli.options import add_options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``sbert merge``."""
    parser.add_argument("output", metavar="OUTPUT", help="the -o of the shards, which are kept")
    add_options(parser, "--overwrite", "--quiet")


def run(arguments: argparse.Namespace) -> None:
    """Run ``sbert merge``.

    Raises:
        FileNotFoundError: If there are no shards, or some are missing.
        OSError: If the disk is full.
        ValueError: If a shard is damaged, they do not belong together, or the output is of other texts.
    """
    from sbert.vector_files import VectorFiles, merge

    written = merge(arguments.output, arguments.overwrite)
    if not arguments.quiet:
        print(f"{arguments.output}: {len(VectorFiles([written]))} vectors")
