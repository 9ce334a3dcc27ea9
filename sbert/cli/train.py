"""``sbert train``: train a model on rows of files, with settings from flags or a file; ``sbert resume`` goes on."""

from __future__ import annotations

import argparse
import json
import math
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sbert.cli.options import new_plot
from sbert.cli.training import build, evaluators, losses, settings
from sbert.cli.training.allocator import keep_freed_memory
from sbert.cli.training.settings import Settings
from sbert.storage.atomic import write_text

if TYPE_CHECKING:
    from sbert.training import TrainingConfig

_EXAMPLE = """\
Options of data sets and evaluators that follow a --data or --evaluate are for that one; those before it are for all:
  sbert train --model bert-base-uncased --output nli --data nli.tsv --columns premise,hypothesis --label label \\
      --loss softmax --evaluate dev.tsv --callbacks "early-stopping(patience=2)"

The same in a file, for --config (TOML from Python 3.11 on; JSON):
  model = "bert-base-uncased"
  output = "nli"
  callbacks = ["early-stopping(patience=2)"]
  [data.nli]
  file = "nli.tsv"
  columns = ["premise", "hypothesis"]
  label = "label"
  loss = "softmax"
  [evaluate.dev]
  file = "dev.tsv"
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``sbert train``; the defaults are those of ``TrainingConfig``.

    Example:
        >>> parser = argparse.ArgumentParser()
        >>> add_arguments(parser)
        >>> parser.parse_args("--model m --seed 3".split()).settings
        {'model': 'm', 'seed': 3}
    """
    parser.formatter_class = argparse.RawDescriptionHelpFormatter  # Keeps the lines of the tables.
    evaluated = "\n".join(f"  {name:22} {', '.join(kind[1])}" for name, kind in evaluators.EVALUATORS.items())
    parser.epilog = "\n".join(
        [
            _EXAMPLE,
            "losses, their columns and their label; with parameters: ranking(temperature=0.02), and of losses:",
            f"matryoshka(ranking, dims=[256, 64]), also {', '.join(list(losses.WRAPPERS)[1:])}:",
            *losses.table(),
            "\nevaluators and the columns of their files (retrieval, nanobeir: a folder; loss: those of the data):",
            evaluated,
            f"\ncallbacks: {', '.join(evaluators.CALLBACKS)}",
        ]
    )
    parser.usage = (
        "sbert train --model MODEL --data FILE --loss LOSS --output DIR [OPTIONS]\n       sbert train --config FILE"
    )
    about = "TOML or JSON file of settings; flags count more"
    parser.add_argument("--config", metavar="FILE", help=about)
    parser.add_argument("--resume", action="store_true", help="continue from the last checkpoint in --output")
    parser.add_argument("--dry-run", action="store_true", help="print the plan: rows, steps, and estimated time")
    settings.add_flags(parser)


def run(arguments: argparse.Namespace) -> None:
    """Run ``sbert train``.

    Raises:
        KeyboardInterrupt: After Ctrl-C; the message says how to continue.
        ValueError: If the options contradict each other, the data or the model.
    """
    train(settings.gathered(arguments.settings, arguments.config), arguments.resume, arguments.dry_run)


def train(given: Settings, resume: bool = False, dry_run: bool = False) -> None:
    """Train with these settings.

    Args:
        given: The settings.
        resume: Whether to continue from the last checkpoint.
        dry_run: Whether to print the plan instead.

    Raises:
        KeyboardInterrupt: After Ctrl-C; the message says how to continue.
        ValueError: If the settings contradict each other, the data or the model.
    """
    # All checks that need no model come first: loading takes long.
    build.check(given["data"])
    evaluators.check(given["evaluate"])
    plot = given.get("plot")
    if plot is not None:
        try:
            new_plot(plot)
        except argparse.ArgumentTypeError as error:
            raise ValueError(str(error)) from error
    keep_freed_memory()  # Before torch takes any.
    config = build.config_of(given)
    output = Path(given["output"])
    found = _newest(output)
    if found is not None and not resume and not dry_run:
        raise ValueError(f"{found} exists already; pass --resume to continue, or another --output")
    is_first = os.environ.get("RANK", "0") == "0"  # Of several processes of torchrun, only the first prints.
    verbose = is_first and not given.get("quiet")
    rows = build.read_data(given, verbose)
    trainer = build.trainer_of(given, rows, replace(config, output=None) if dry_run else config)
    if dry_run:
        from sbert.cli.training.dry_run import plan

        for line in plan(trainer):
            print(line, flush=True)
        return
    if is_first:
        output.mkdir(parents=True, exist_ok=True)
        write_text(output / settings.STORED, json.dumps(settings.to_store(given), indent=2, ensure_ascii=False) + "\n")
    try:
        history = trainer.fit(resume=resume, show_progress_bar=None if verbose else False)
    except KeyboardInterrupt:
        last = _newest(output)
        if last is None:
            raise KeyboardInterrupt("there is no checkpoint yet; pass a lower --checkpoint-every") from None
        raise KeyboardInterrupt(f"to continue from {last}, run: sbert resume {output}") from None
    if plot is not None and is_first:
        from sbert.visualization import training_curves

        training_curves(history, plot)
    if verbose:
        print(_summary(history, output, config))


def _newest(output: Path) -> Path | None:
    from sbert.training import checkpoint

    return checkpoint.newest(output / "checkpoints")


def _summary(history: Sequence[dict[str, Any]], output: Path, config: TrainingConfig) -> str:
    """One line: the path of the model, the last loss, and the best score."""
    ends = [f", last loss {entry['loss']:.4f}" for entry in history if "loss" in entry]
    said = f"{output / 'final'}: {max(entry['step'] for entry in history)} steps{''.join(ends[-1:])}"
    evaluations = [(entry["evaluation"], entry["step"]) for entry in history if "evaluation" in entry]
    if not evaluations:
        return said
    name = config.metric or next(iter(evaluations[0][0]))
    scores = [(found[name], step) for found, step in evaluations if not math.isnan(found[name])]
    if not scores:
        return said
    best, step = (min if config.lower_is_better(name) else max)(scores, key=lambda score: score[0])
    return f"{said}; {output / 'best'}: {name} {best:.4f} at step {step}"
