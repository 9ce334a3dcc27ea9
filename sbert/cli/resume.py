"""``sbert resume``: go on with a run of ``sbert train`` from its output folder."""

from __future__ import annotations

import argparse

from sbert.cli.options import add_device
from sbert.cli.train import train
from sbert.cli.training.settings import stored


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``sbert resume``.

    Example:
        >>> parser = argparse.ArgumentParser()
        >>> add_arguments(parser)
        >>> parser.parse_args(["nli"]).folder
        'nli'
    """
    parser.add_argument("folder", metavar="DIR", help="the --output of the run")
    parser.add_argument("--quiet", action="store_true", help="no progress bar; print errors only")
    add_device(parser)


def run(arguments: argparse.Namespace) -> None:
    """Run ``sbert resume``.

    Raises:
        FileNotFoundError: If the folder stores no settings.
        ValueError: If they, the data or the checkpoint are damaged or have changed.
    """
    more = {"device": arguments.device, "quiet": arguments.quiet or None}
    train({**stored(arguments.folder), **{name: value for name, value in more.items() if value is not None}}, True)
