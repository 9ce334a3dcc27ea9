"""``sbert train``: train a model on the rows of a file, with one of the losses in a table."""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sbert.cli.options import add_device, names, new_plot
from sbert.data import FORMATS, read_classes, read_rows
from sbert.storage.hub import resolve

if TYPE_CHECKING:
    from sbert.encoder import SentenceEncoder
    from sbert.evaluation import SimilarityEvaluator
    from sbert.training import Trainer, TrainingConfig

# Maximum number of classes to print.
_LISTED = 20


class Choice(NamedTuple):
    """A loss of the command line, and what it needs.

    ``loss`` is the name of the class in ``sbert.losses``, ``columns`` are the columns of text in order; a star stands
    for any number of them. ``label`` is the kind of label: ``"class"``, ``"number"``, ``"list"`` (of numbers, from
    JSONL) or ``"none"``, and ``sampler`` the default sampler.
    """

    loss: str
    columns: tuple[str, ...]
    label: str
    sampler: str = "random"


_PAIR, _TRIPLET, _RANKED = ("first", "second"), ("anchor", "positive", "negative"), ("anchor", "positive", "*negatives")
LOSSES = {
    "softmax": Choice("SoftmaxLoss", _PAIR, "class"),
    "cosine": Choice("CosineSimilarityLoss", _PAIR, "number"),
    "cosent": Choice("CoSENTLoss", _PAIR, "number"),
    "angle": Choice("AnglELoss", _PAIR, "number"),
    "contrastive": Choice("ContrastiveLoss", _PAIR, "number"),
    "online-contrastive": Choice("OnlineContrastiveLoss", _PAIR, "number"),
    "triplet": Choice("TripletLoss", _TRIPLET, "none"),
    "ranking": Choice("MultipleNegativesRankingLoss", _RANKED, "none", "no_duplicates"),
    "batch-all": Choice("BatchAllTripletLoss", ("sentence",), "class", "group_by_label"),
    "batch-hard": Choice("BatchHardTripletLoss", ("sentence",), "class", "group_by_label"),
    "batch-semi-hard": Choice("BatchSemiHardTripletLoss", ("sentence",), "class", "group_by_label"),
    "mse": Choice("MSELoss", ("*sentences",), "list"),
    "margin-mse": Choice("MarginMSELoss", _RANKED, "number"),
    "kl": Choice("DistillKLDivLoss", _RANKED, "list"),
}


# Settings of TrainingConfig: type, placeholder and description, with the default in brackets.
_TRAINING: dict[str, tuple[Callable[[str], float | str], str, str]] = {
    "epochs": (float, "X", "passes through the data (1)"),
    "steps": (int, "N", "number of steps, instead of epochs"),
    "batch_size": (int, "N", "rows per batch (16)"),
    "chunk_tokens": (int, "N", "tokens per chunk; saves memory with large batches"),
    "accumulation": (int, "N", "batches per optimizer step (1)"),
    "learning_rate": (float, "X", "maximum learning rate (2e-05)"),
    "warmup": (float, "X", "share of the steps for the warm-up (0.1)"),
    "weight_decay": (float, "X", "of AdamW (0.01)"),
    "max_gradient_norm": (float, "X", "threshold of gradient clipping (1.0)"),
    "dtype": (str, "NAME", "float32 or bfloat16 (float32)"),
    "seed": (int, "N", "random seed of row order and dropout (0)"),
    "sampler": (str, "NAME", "random, no_duplicates, group_by_label or length (default: one that suits the loss)"),
}
_WATCHING: dict[str, tuple[Callable[[str], float | str], str, str]] = {
    "evaluate_every": (int, "N", "steps (default: one epoch)"),
    "checkpoint_every": (int, "N", "steps (default: one epoch)"),
    "keep": (int, "N", "number of checkpoints to keep (2)"),
    "log_every": (int, "N", "steps between history entries (10)"),
}


# ----------------------------------------------------------------------------------------------------- arguments


def _range(text: str) -> tuple[float, float]:
    try:
        low, high = map(float, text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a range; pass two numbers such as 0,5") from None
    return low, high


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``sbert train``; the defaults are those of ``TrainingConfig``.

    Example:
        >>> parser = argparse.ArgumentParser()
        >>> add_arguments(parser)
        >>> parser.parse_args("--model m --data d --columns a,b --loss ranking --output o".split()).columns
        ['a', 'b']
    """
    parser.formatter_class = argparse.RawDescriptionHelpFormatter  # Keeps the lines of the table.
    parser.epilog = "losses, their columns and their label:\n" + "\n".join(
        f"  {name:20} {', '.join(choice.columns):32} {choice.label}" for name, choice in LOSSES.items()
    )
    data = parser.add_argument_group("model and data")
    data.add_argument("--model", required=True, help="folder, or name on the hub; also a plain transformer")
    data.add_argument("--data", required=True, metavar="FILE", help="TSV, CSV, JSONL, JSON or Parquet; - for stdin")
    data.add_argument("--columns", required=True, type=names, metavar="A,B", help="columns, in the order of the loss")
    data.add_argument("--label", metavar="NAME", help="column of the labels")
    data.add_argument("--loss", required=True, choices=LOSSES, metavar="LOSS", help="one of the losses below")
    data.add_argument("--output", required=True, metavar="DIR", help="for checkpoints, best, final and history.jsonl")
    data.add_argument("--classes", type=names, metavar="A,B,C", help="labels 0, 1, 2 (default: those of the data)")
    data.add_argument("--scale", type=_range, metavar="0,5", help="lowest and highest label, mapped to 0 and 1")
    data.add_argument("--drop", type=names, default=(), metavar="A,B", help="labels whose rows are skipped")
    data.add_argument("--format", choices=FORMATS[1:], help="of the data; default: by the file name extension")
    prompt = (
        "prompt of a column, repeatable: the name of one of the model's prompts, or a text; nothing after = for none;"
        " a PROMPT alone is for all columns"
    )
    data.add_argument("--prompt", action="append", metavar="COLUMN=PROMPT", help=prompt)
    data.add_argument("--pooling", metavar="NAME", help="mean, max, cls; for a plain transformer")
    data.add_argument("--max-seq-length", type=int, metavar="N", help="maximum length in tokens")
    add_device(data)

    training = parser.add_argument_group("training")
    for name, (kind, metavar, about) in _TRAINING.items():
        training.add_argument(f"--{name.replace('_', '-')}", type=kind, metavar=metavar, help=about)

    watching = parser.add_argument_group("evaluation and checkpoints")
    watching.add_argument("--evaluate", metavar="FILE", help="scored pairs, for the Spearman correlation of cosines")
    columns = "columns of that file: two of text and one of scores (sentence1,sentence2,score)"
    default = ["sentence1", "sentence2", "score"]
    watching.add_argument("--evaluate-columns", type=names, default=default, metavar="A,B,SCORE", help=columns)
    watching.add_argument("--evaluate-prompt", metavar="PROMPT", help="prompt of its texts, instead of the default")
    for name, (kind, metavar, about) in _WATCHING.items():
        watching.add_argument(f"--{name.replace('_', '-')}", type=kind, metavar=metavar, help=about)
    watching.add_argument("--resume", action="store_true", help="continue from the last checkpoint in --output")
    watching.add_argument("--plot", type=new_plot, metavar="FILE.png", help="draw the curves; needs matplotlib")
    watching.add_argument("--quiet", action="store_true", help="no progress bar; print errors only")


# ------------------------------------------------------------------------------------------------------ training


def run(arguments: argparse.Namespace) -> None:
    """Run ``sbert train``.

    Raises:
        KeyboardInterrupt: After Ctrl-C; the message says how to continue.
        ValueError: If the options contradict each other, the data or the model.
    """
    choice = LOSSES[arguments.loss]
    # All checks that need no model come first: loading takes long.
    _check_options(arguments, choice)
    from sbert.training import TrainingConfig, checkpoint

    given = {name: getattr(arguments, name) for name in (*_TRAINING, *_WATCHING)}
    settings = {"sampler": choice.sampler} | {name: value for name, value in given.items() if value is not None}
    config = TrainingConfig(output=arguments.output, prompts=_prompts(arguments.prompt), **settings)
    checkpoints = Path(arguments.output) / "checkpoints"
    found = checkpoint.newest(checkpoints)
    if found is not None and not arguments.resume:
        raise ValueError(f"{found} exists already; pass --resume to continue, or another --output")
    is_first = os.environ.get("RANK", "0") == "0"  # Of several processes of torchrun, only the first prints.
    verbose = is_first and not arguments.quiet
    classes = _classes(arguments, choice, verbose)
    rows = read_rows(
        arguments.data,
        arguments.columns,
        arguments.label,
        classes=classes,
        scale=arguments.scale,
        drop=arguments.drop,
        file_format=arguments.format,
    )
    trainer = _trainer(arguments, list(rows), classes, config)
    try:
        history = trainer.fit(resume=arguments.resume, show_progress_bar=None if verbose else False)
    except KeyboardInterrupt:
        last = checkpoint.newest(checkpoints)
        if last is None:
            raise KeyboardInterrupt("there is no checkpoint yet; pass a lower --checkpoint-every") from None
        raise KeyboardInterrupt(f"to continue from {last}, run the same command with --resume") from None
    if arguments.plot is not None and is_first:
        from sbert.visualization import training_curves

        training_curves(history, arguments.plot)
    if verbose:
        print(_summary(history, Path(arguments.output)))


def _check_options(arguments: argparse.Namespace, choice: Choice) -> None:
    loss, columns = f"--loss {arguments.loss}", arguments.columns
    fixed = sum(not column.startswith("*") for column in choice.columns)
    if len(columns) < max(fixed, 1) or (len(columns) > fixed and fixed == len(choice.columns)):
        raise ValueError(f"{loss} takes {', '.join(choice.columns)}; --columns names {', '.join(columns)}")
    if choice.label == "none" and (arguments.label or arguments.classes or arguments.scale or arguments.drop):
        raise ValueError(f"{loss} takes no labels; leave --label, --classes, --scale and --drop out")
    if choice.label != "none" and arguments.label is None:
        raise ValueError(f"{loss} takes a {choice.label} as label; name its column with --label")
    if choice.label == "class" and arguments.scale is not None:
        raise ValueError(f"{loss} takes classes, and --scale makes fractions of labels; leave it out")
    for option in ("evaluate_every", "evaluate_prompt"):
        if arguments.evaluate is None and getattr(arguments, option) is not None:
            raise ValueError(f"--{option.replace('_', '-')} needs data; pass a file with --evaluate")
    if len(arguments.evaluate_columns) != 3:
        raise ValueError("--evaluate-columns takes three names: two columns of text, and one of scores")


def _prompts(given: list[str] | None) -> str | dict[str, str] | None:
    """The value of ``--prompt``: by column, or one prompt for all columns."""
    if given is None:
        return None
    if len(given) == 1 and "=" not in given[0]:
        return given[0]
    named = [option.partition("=") for option in given]
    prompts = {column: prompt for column, _, prompt in named}
    if len(prompts) < len(named) or not all(equals for _, equals, _ in named):
        raise ValueError(f"--prompt {given[-1]!r} does not fit the others; pass COLUMN=PROMPT once for each column")
    return prompts


def _classes(arguments: argparse.Namespace, choice: Choice, verbose: bool) -> list[str] | None:
    """The classes of ``--classes``; or, for a loss that needs classes, those of the data."""
    if choice.label != "class" or arguments.classes is not None:
        named: list[str] | None = arguments.classes
        return named
    if arguments.data == "-":
        raise ValueError("standard input cannot be read twice, once for its classes; name them with --classes")
    classes = read_classes(arguments.data, arguments.label, drop=arguments.drop, file_format=arguments.format)
    if verbose:
        more = f" and {len(classes) - _LISTED} more" if len(classes) > _LISTED else ""
        print(f"classes: {', '.join(f'{i} {name}' for i, name in enumerate(classes[:_LISTED]))}{more}", flush=True)
    return classes


def _trainer(
    arguments: argparse.Namespace, rows: list[dict[str, Any]], classes: list[str] | None, config: TrainingConfig
) -> Trainer:
    from sbert.training import Trainer

    evaluator = None if arguments.evaluate is None else _evaluator(arguments)  # Read before the model is loaded.
    model = _load(arguments)
    label = None if arguments.label is None else "label"
    loss = _loss(LOSSES[arguments.loss].loss, model, classes, config.seed)
    return Trainer(model, rows, loss, config, evaluator=evaluator, columns=arguments.columns, label=label)


def _evaluator(arguments: argparse.Namespace) -> SimilarityEvaluator:
    from sbert.evaluation import SimilarityEvaluator

    first, second, score = arguments.evaluate_columns
    rows = list(read_rows(arguments.evaluate, [first, second], score))
    try:
        columns = ([row[name] for row in rows] for name in (first, second, "label"))
        return SimilarityEvaluator(*columns, prompt=arguments.evaluate_prompt)
    except ValueError as error:
        raise ValueError(f"{arguments.evaluate}: {error}") from error


def _load(arguments: argparse.Namespace) -> SentenceEncoder:
    from sbert.encoder import SentenceEncoder
    from sbert.modules import Pooling, Transformer

    modules: list[Any] = [arguments.model]
    if arguments.pooling is not None:
        folder = resolve(arguments.model, organisation="sentence-transformers")
        if (folder / "modules.json").exists():
            raise ValueError(f"{arguments.model} has its own pooling; leave --pooling out")
        modules = [Transformer(folder), Pooling(arguments.pooling)]
    model = SentenceEncoder(*modules, device=arguments.device, dtype="float32")
    if arguments.max_seq_length is not None:
        model.max_seq_length = arguments.max_seq_length
    return model


def _loss(name: str, model: SentenceEncoder, classes: list[str] | None, seed: int) -> Any:
    import torch

    from sbert import losses
    from sbert.pipeline.encode import output_dims

    if name != "SoftmaxLoss":
        return getattr(losses, name)()
    with torch.random.fork_rng(devices=[]):  # The classifier is initialized at random.
        torch.manual_seed(seed)
        return losses.SoftmaxLoss(output_dims(model, model.device)[-1], len(classes or ()))


def _summary(history: list[dict[str, Any]], output: Path) -> str:
    """One line: the path of the model, the last loss, and the best score."""
    last = [entry for entry in history if "loss" in entry][-1]
    said = f"{output / 'final'}: {last['step']} steps, last loss {last['loss']:.4f}"
    scores = [(entry["evaluation"]["spearman"], entry["step"]) for entry in history if "evaluation" in entry]
    scores = [score for score in scores if not math.isnan(score[0])]
    if not scores:
        return said
    best, step = max(scores, key=lambda score: score[0])
    return f"{said}; {output / 'best'}: spearman {best:.4f} at step {step}"
