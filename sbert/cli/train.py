r"""``sbert train``: train a model on rows of files; settings come from flags or a file.

  sbert train --model sbert-mini --data nli.tsv --columns premise,hypothesis \
      --label label --loss softmax --evaluate dev.tsv --output nli

The same in a file for --config (TOML from Python 3.11 on; JSON):

  model = "sbert-mini"       # [model] takes name, pooling, max_seq_length, lora
  output = "nli"             # also: guide = MODEL, callbacks = ["tensorboard"]
  evaluate.file = "dev.tsv"  # also: with, columns, label
  training.warmup = 0.2      # what sbert.TrainingConfig takes
  [data]                     # also: classes, scale, drop, format
  file = "nli.tsv"
  columns = ["premise", "hypothesis"]
  label = "label"
  loss = "softmax"

Losses, evaluators (with = ...) and callbacks have the names of the classes in sbert.losses, sbert.evaluation and
sbert.training: cosent, early-stopping; short are cosine, ranking, bce, kl, sum and pairs. With parameters:

  loss = {name = "matryoshka", dims = [256, 64], loss = "ranking"}
  loss = {name = "sum", pairs = [["ranking", 1.0], ["cosent", 0.1]]}
  with = {name = "retrieval", ndcg_at = [10]}  # the file is a folder

A loss of scores, such as cross-entropy or lambda, trains a cross-encoder. Several data sets are tables [data.nli],
[data.sts], evaluators [evaluate.dev]; what [data] has is for all. with = "loss" takes held-out rows like the data's.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sbert.cli import train_build as build
from sbert.cli.options import add_options, at_least, names, real
from sbert.cli.output import peak_memory
from sbert.cli.train_settings import STORED, Settings, gather, parse_set
from sbert.storage.atomic import write_text

if TYPE_CHECKING:
    from sbert.training import Trainer


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``sbert train``; the defaults are those of ``TrainingConfig``.

    Example:
        >>> parser = argparse.ArgumentParser()
        >>> add_arguments(parser)
        >>> getattr(parser.parse_args(["--epochs", "2"]), "training.epochs")
        2.0
    """
    parser.description, _, parser.epilog = (__doc__ or "").partition(": ")[2].partition("\nThe same")
    parser.epilog = f"The same{parser.epilog}"
    parser.usage = "%(prog)s [options] --model MODEL --data FILE --loss LOSS --output DIR"
    add = parser.add_argument
    add("--config", metavar="FILE", help="TOML or JSON file of settings; flags count more")
    add("--set", action="append", default=[], metavar="NAME=VALUE", help="any setting: training.schedule=cosine")
    # The flags of settings have their names; None is not set.
    add("--model", dest="model.name", metavar="MODEL", help="folder, or name on the hub; also a plain transformer")
    add("--device", dest="model.device", metavar="NAME", help="cpu, cuda, cuda:1, xpu, mps")
    add("--output", dest="output", metavar="DIR", help="for checkpoints, best, final and history.jsonl")
    add("--data", dest="data.file", metavar="FILE", help="rows; Parquet in a folder is streamed; - for stdin")
    add("--columns", dest="data.columns", type=names, metavar="A,B", help="columns, in the order of the loss")
    add("--label", dest="data.label", metavar="NAME", help="column of the labels")
    add("--loss", dest="data.loss", metavar="LOSS", help="such as softmax, cosent, ranking, triplet; see below")
    add("--epochs", dest="training.epochs", type=real, metavar="X", help="passes through the data (1)")
    add("--steps", dest="training.steps", type=at_least(1), metavar="N", help="number of steps, instead of epochs")
    add("--batch-size", dest="training.batch_size", type=at_least(1), metavar="N", help="rows per batch (16)")
    add("--learning-rate", dest="training.learning_rate", type=real, metavar="X", help="maximum learning rate (2e-05)")
    add("--seed", dest="training.seed", type=at_least(0), metavar="N", help="of row order, dropout and new weights (0)")
    add("--prompt", action="append", metavar="[COL=]TEXT", help="name or text, of a column or of all")
    add("--evaluate", dest="evaluate.file", metavar="FILE", help="data of an evaluator")
    add("--resume", action="store_true", help="continue from the last checkpoint in --output")
    add("--dry-run", action="store_true", help="print the plan: rows, steps, and estimated time")
    add_options(parser, "--quiet")


def run(arguments: argparse.Namespace) -> None:
    """Run ``sbert train``.

    Raises:
        KeyboardInterrupt: After Ctrl-C; the message says how to continue.
        ValueError: If the options contradict each other, the data or the model.
    """
    flags = {name: value for name, value in vars(arguments).items() if "." in name or name == "output"}
    flags["training.prompts"] = _parse_prompts(arguments.prompt) if arguments.prompt else None
    over = [*((name, value) for name, value in flags.items() if value is not None), *map(parse_set, arguments.set)]
    train(gather(arguments.config, over), arguments.resume, dry_run=arguments.dry_run, quiet=arguments.quiet)


def _parse_prompts(given: Sequence[str]) -> str | dict[str, str]:
    """One prompt for all columns, or those of columns."""
    parts = [prompt.partition("=") for prompt in given]
    if any(not equals for _, equals, _ in parts) and len(parts) > 1:
        raise ValueError(f"--prompt {given[0]!r} does not fit the others; pass COLUMN=PROMPT for each column")
    return {column: prompt for column, _, prompt in parts} if parts[0][1] else given[0]


def train(settings: Settings, resume: bool = False, *, dry_run: bool = False, quiet: bool = False) -> None:
    """Train with these settings.

    Args:
        settings: As ``gather`` returns them.
        resume: Whether to continue from the last checkpoint.
        dry_run: Whether to print the plan instead.
        quiet: Whether to print nothing.

    Raises:
        KeyboardInterrupt: After Ctrl-C; the message says how to continue.
        ValueError: If the settings contradict each other, the data or the model.
    """
    config = build.make_config(settings)
    from sbert.training.run.checkpoint import lock_output, newest

    output = Path(settings["output"])
    if (last := newest(output / "checkpoints")) is not None and not resume and not dry_run:
        raise ValueError(f"{last} exists already; pass --resume to continue, or another --output")
    is_first = os.environ.get("RANK", "0") == "0"  # Of several processes of torchrun, only the first prints.
    verbose = is_first and not quiet
    rows = build.read_data(settings, verbose)
    trainer = build.make_trainer(settings, rows, replace(config, output=None) if dry_run else config)
    if dry_run:
        for line in _plan(trainer, rows):
            print(line, flush=True)
        return
    try:
        with lock_output(output if is_first else None):
            if is_first:
                write_text(output / STORED, json.dumps(settings, indent=2, ensure_ascii=False) + "\n")
            trainer.fit(resume=resume, show_progress_bar=verbose)
    except KeyboardInterrupt:
        if (last := newest(output / "checkpoints")) is None:
            raise KeyboardInterrupt("there is no checkpoint yet; set a lower training.checkpoint_every") from None
        raise KeyboardInterrupt(f"to continue from {last}, run: sbert resume {output}") from None
    if verbose:
        best = f"; of the best score: {output / 'best'}" if (output / "best").exists() else ""
        print(f"model of the last step: {output / 'final'}{best}")


# ----------------------------------------------------------------------------------------------------- the plan


def _plan(trainer: Trainer, rows: Mapping[str, Any]) -> Iterator[str]:
    """The lines of ``--dry-run``: what would be done, and how long it would take, from up to four steps of it.

    The config of the trainer must have no output.
    """
    datasets = trainer.batches.datasets
    for name, data in rows.items():
        count = f"{len(data):,} rows" if hasattr(data, "__len__") else "a stream"
        loss, own = " ".join(repr(datasets[name].rows.loss).split())[:200], datasets[name].config
        yield f"{name}: {count}; {loss}; batches of {own.batch_size}, sampler {own.sampler}"
    seconds, total, trained = _time_steps(trainer)
    yield f"model: {sum(each.numel() for each in trainer.model.parameters()):,} weights, {trained:,} of them trained"
    if not seconds:
        yield "1 step; too few to estimate the time"
        return
    step = statistics.median(seconds)
    yield f"{total:,} steps of {step:.3f} s: {timedelta(seconds=round(step * total))}, and evaluations"
    yield f"memory: {peak_memory(trainer.model.device) / 2**30:.1f} GiB at most in these steps"


def _time_steps(trainer: Trainer, count: int = 3) -> tuple[list[float], int, int]:
    """The seconds of some steps, after a first one; the number of steps of the whole run, and of trained weights."""
    from sbert.training import Callback, Progress

    times: list[tuple[float, int, int]] = []

    class Clock(Callback):
        def on_step(self, progress: Progress) -> None:
            trained = sum(weight.numel() for weight in progress.model.parameters() if weight.requires_grad)
            times.append((time.perf_counter(), progress.total, trained))
            if len(times) > count:
                progress.stop()

    trainer.evaluator, trainer.callbacks = None, [Clock()]
    trainer.fit(show_progress_bar=False)
    return [after - before for (before, *_), (after, *_) in pairwise(times)], *times[0][1:]
