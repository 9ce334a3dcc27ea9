"""``sbert merge``: one file of the shards that several ``sbert encode --shard`` have written."""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``sbert merge``."""
    about = "what the shards were written with as -o: FILE.npy, FILE.parquet or a folder; the shards are kept"
    parser.add_argument("output", metavar="OUTPUT", help=about)
    parser.add_argument("--quiet", action="store_true", help="no summary")


def run(arguments: argparse.Namespace) -> None:
    """Run ``sbert merge``.

    Raises:
        FileNotFoundError: If there are no shards, or some are missing.
        OSError: If the disk is full.
        ValueError: If a shard is damaged, or they do not belong together.
    """
    from sbert.vector_files import merge, status

    written = merge(arguments.output)
    if not arguments.quiet:
        rows = sum(part.rows for part in status(arguments.output) if part.path != written)
        print(f"{arguments.output}: {rows} vectors")
