"""``sbert doctor``: the device, dtype and backend of a model on this machine, and why.

sbert doctor --json
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from sbert.cli.options import LOADING, add_options, load_model
from sbert.cli.output import facts_table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``sbert doctor``."""
    add_options(parser, "model", *LOADING, "--json")
    about = "try a CUDA device, stage by stage: vectors, attention, threads, training, search, speed"
    parser.add_argument("--gpu", action="store_true", help=about)
    about = "with --gpu: also write gpu.jsonl as it goes, and gpu.md for an issue"
    parser.add_argument("--report", metavar="FOLDER", help=about)


def run(arguments: argparse.Namespace) -> int:
    """Run ``sbert doctor``: 1 if a stage of ``--gpu`` fails.

    Raises:
        ValueError: If ``--gpu`` is asked for another device than CUDA, or ``--report`` without ``--gpu``.
    """
    if not arguments.gpu:
        if arguments.report is not None:
            raise ValueError("--report writes what --gpu finds; pass --gpu as well")
        from sbert.cli.diagnosis import diagnose

        facts = diagnose(load_model(arguments))
        print(json.dumps(facts, ensure_ascii=False, indent=2) if arguments.json else facts_table(facts))
        return 0
    device = arguments.device or "cuda"
    if device.partition(":")[0] != "cuda":
        raise ValueError(f"--gpu examines a CUDA device, not --device {device}; pass --device cuda, or leave it out")
    report = None if arguments.report is None else Path(arguments.report)
    if report is not None:
        report.mkdir(parents=True, exist_ok=True)
        (report / "gpu.jsonl").unlink(missing_ok=True)
    from sbert.cli.gpu_doctor import Subject, examine
    from sbert.storage.hub import resolve

    device = device if ":" in device else f"{device}:0"
    # A download takes longer than a stage, and a wrong name is no fault of a GPU.
    model = resolve(arguments.model)
    name = model.name if Path(arguments.model).is_dir() else arguments.model
    return examine(Subject(str(model), device, arguments.dtype, name), report, arguments.json)
