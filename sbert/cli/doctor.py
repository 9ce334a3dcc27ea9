"""``sbert doctor``: the device, dtype and backend of a model on this machine, and why.

sbert doctor --json
"""

from __future__ import annotations

import argparse
import json
import os

from sbert.cli.options import LOADING, add_options, load_by_options
from sbert.cli.output import facts_table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``sbert doctor``."""
    add_options(parser, "model", *LOADING, "--json")
    about = "try a CUDA device, stage by stage: vectors, attention, threads, training, search, speed"
    parser.add_argument("--gpu", action="store_true", help=about)
    about = "with --gpu: also write the lines to a file, as they come, and the tracebacks of what fails"
    parser.add_argument("--report", metavar="FILE", help=about)


def run(arguments: argparse.Namespace) -> int:
    """Run ``sbert doctor``: 1 if a stage of ``--gpu`` fails.

    Raises:
        ValueError: If ``--gpu`` is asked for another device than CUDA or with ``--json``, or ``--report`` without it.
    """
    if not arguments.gpu:
        if arguments.report is not None:
            raise ValueError("--report writes what --gpu finds; pass --gpu as well")
        from sbert.cli.diagnosis import diagnose

        facts = diagnose(load_by_options(arguments))
        print(json.dumps(facts, ensure_ascii=False, indent=2) if arguments.json else facts_table(facts))
        return 0
    if arguments.json:
        raise ValueError("--gpu prints lines as they come; leave --json out")
    device = arguments.device or "cuda"
    if device.partition(":")[0] != "cuda":
        raise ValueError(f"--gpu examines a CUDA device, not --device {device}; pass --device cuda, or leave it out")
    from sbert.cli.gpu_doctor import Subject, examine
    from sbert.storage.hub import resolve

    device = device if ":" in device else f"{device}:0"
    # A download takes longer than a stage, and a wrong name is no fault of a GPU.
    model = resolve(arguments.model)
    with open(arguments.report or os.devnull, "w", encoding="utf-8") as report:
        return examine(Subject(str(model), device, arguments.dtype), report)
