r"""``sbert train``: train a model on rows of files; settings come from flags or a file.

  sbert train --model sbert-mini --data nli.tsv --columns premise,hypothesis \
      --label label --loss softmax --evaluate dev.tsv --output nli

The same in a file for --config (TOML from Python 3.11 on; JSON):

  model = "sbert-mini"       # [model] takes name, pooling, max_seq_length, lora
  output = "nli"             # also: callbacks = ["tensorboard"]
  evaluate.file = "dev.tsv"  # also: with, columns, label
  training.warmup = 0.2      # what sbert.TrainingConfig takes
  [data]                     # also: classes, scale, drop, format
  file = "nli.tsv"
  columns = ["premise", "hypothesis"]
  label = "label"
  loss = "softmax"

Losses, evaluators (with = ...) and callbacks have the names of the classes in
sbert.losses, sbert.evaluation and sbert.training: cosent, early-stopping; short
are cosine, ranking, bce, kl, sum and pairs. With parameters:

  loss = {name = "matryoshka", dims = [256, 64], loss = "ranking"}
  loss = {name = "sum", pairs = [["ranking", 1.0], ["cosent", 0.1]]}
  with = {name = "retrieval", ndcg_at = [10]}  # the file is a folder

A loss of scores, such as cross-entropy or lambda, trains a cross-encoder.
with = "loss" takes held-out rows like those of the data. For several data sets
or evaluators, write a program: sbert.Trainer takes each of them by name.
"""

from __future__ import annotations

import argparse
import json
import os
from contextlib import nullcontext
from pathlib import Path

from sbert.cli import train_build as build
from sbert.cli.options import add_options, at_least, names, real
from sbert.cli.train_settings import STORED, gather, parse_set, read_stored
from sbert.storage.atomic import write_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``sbert train``; the defaults are those of ``TrainingConfig``.

    Example:
        >>> import argparse
        >>> from sbert.cli.train import add_arguments
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
    add("--evaluate", dest="evaluate.file", metavar="FILE", help="data of an evaluator")
    add("--resume", metavar="DIR", help="go on with the run of this --output, from its last checkpoint")
    add_options(parser, "--quiet")


def run(arguments: argparse.Namespace) -> None:
    """Run ``sbert train``.

    Raises:
        FileNotFoundError: If the folder of ``--resume`` stores no settings.
        KeyboardInterrupt: After Ctrl-C; the message says how to continue.
        ValueError: If the settings contradict each other, the data or the model.
    """
    flags = {name: value for name, value in vars(arguments).items() if "." in name or name == "output"}
    over = [*((name, value) for name, value in flags.items() if value is not None), *map(parse_set, arguments.set)]
    if arguments.resume and arguments.config:
        raise ValueError("--resume has the settings of its run; leave --config out")
    settings = read_stored(arguments.resume, over) if arguments.resume else gather(arguments.config, over)
    config = build.make_config(settings)
    from sbert.training.checkpoint import lock_output, newest

    output = Path(settings["output"])
    if (last := newest(output / "checkpoints")) is not None and not arguments.resume:
        raise ValueError(
            f"{last} exists already; to continue, run sbert train --resume {output}, or name another --output"
        )
    is_first = os.environ.get("RANK", "0") == "0"  # Of several processes of torchrun, only the first prints.
    verbose = is_first and not arguments.quiet
    rows = build.read_data(settings, verbose)
    trainer = build.make_trainer(settings, rows, config)
    try:
        with lock_output(output) if is_first else nullcontext():
            if is_first:
                write_text(output / STORED, json.dumps(settings, indent=2, ensure_ascii=False) + "\n")
            trainer.fit(resume=bool(arguments.resume), show_progress_bar=verbose)
    except KeyboardInterrupt:
        if (last := newest(output / "checkpoints")) is None:
            raise KeyboardInterrupt("there is no checkpoint yet; set a lower training.checkpoint_every") from None
        raise KeyboardInterrupt(f"to continue from {last}, run: sbert train --resume {output}") from None
    if verbose:
        best = f"; of the best score: {output / 'best'}" if (output / "best").exists() else ""
        print(f"model of the last step: {output / 'final'}{best}")
