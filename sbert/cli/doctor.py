"""``sbert doctor``: the device, dtype and backend selected for a model on this machine, and the reasons."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from sbert.cli.options import LOADING, add_options, load
from sbert.cli.output import facts_table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``sbert doctor``."""
    add_options(parser, "model", *LOADING, "--json")
    about = "compare all backends on a CUDA device with float32, row by row, and measure how fast they are"
    parser.add_argument("--gpu", action="store_true", help=about)
    parser.add_argument("--report", metavar="FOLDER", help="with --gpu: also write gpu.json, and gpu.md for an issue")


def run(arguments: argparse.Namespace) -> None:
    """Run ``sbert doctor``.

    Raises:
        ValueError: If ``--gpu`` is asked for without a CUDA device, or ``--report`` without ``--gpu``.
    """
    if arguments.gpu:
        _check_gpu(arguments.device)
    elif arguments.report is not None:
        raise ValueError("--report writes what --gpu measures; pass --gpu as well")
    if arguments.report is not None:
        Path(arguments.report).mkdir(parents=True, exist_ok=True)  # Before the long measurement.
    from sbert.cli import diagnosis

    model = load(arguments)
    report = diagnosis.measure(model, arguments.model) if arguments.gpu else diagnosis.diagnose(model)
    if arguments.report is not None:
        diagnosis.write(report, Path(arguments.report))
    facts = diagnosis.rows(report) if arguments.gpu else report
    print(json.dumps(report, ensure_ascii=False, indent=2) if arguments.json else facts_table(facts))


def _check_gpu(device: str | None) -> None:
    import torch

    if not torch.cuda.is_available():
        raise ValueError("--gpu needs a CUDA device; install its driver and a build of torch with CUDA")
    if device is not None and torch.device(device).type != "cuda":
        raise ValueError(f"--gpu measures a CUDA device, not --device {device}; pass --device cuda, or leave it out")
