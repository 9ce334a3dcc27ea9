"""``sbert resume``: go on with a run of ``sbert train`` from its output folder.

sbert resume nli
"""

from __future__ import annotations

import argparse
from pathlib import Path

from sbert.cli.options import add_options
from sbert.cli.train import train
from sbert.cli.train_settings import STORED, gather


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``sbert resume``.

    Example:
        >>> parser = argparse.ArgumentParser()
        >>> add_arguments(parser)
        >>> parser.parse_args(["nli"]).folder
        'nli'
    """
    parser.add_argument("folder", metavar="DIR", help="the --output of the run")
    add_options(parser, "--device", "--quiet")


def run(arguments: argparse.Namespace) -> None:
    """Run ``sbert resume``.

    Raises:
        FileNotFoundError: If the folder stores no settings.
        ValueError: If they, the data or the checkpoint are damaged or have changed.
    """
    path = Path(arguments.folder) / STORED
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist; pass the --output of a run of sbert train")
    device = [] if arguments.device is None else [("model.device", arguments.device)]
    try:
        settings = gather(str(path), [("output", arguments.folder), *device])
    except ValueError as error:
        raise ValueError(f"{path} is damaged ({error}); repeat the command of the run with --resume") from error
    if any(table["file"] == "-" for table in settings["data"].values()):
        raise ValueError(f"{path}: the run read standard input; repeat its command with --resume")
    train(settings, resume=True, quiet=arguments.quiet)
