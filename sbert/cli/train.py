"""``sbert train``: a table of losses, and from a file to a trained model."""

from __future__ import annotations

import argparse
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sbert.data import FORMATS, read_classes, read_rows

if TYPE_CHECKING:
    from sbert.encoder import SentenceEncoder
    from sbert.evaluation import SimilarityEvaluator

# As many classes as are listed.
_LISTED = 20


@dataclass(frozen=True)
class Choice:
    """A loss as the command line knows it.

    Args:
        loss: Name of the class in ``sbert.losses``.
        columns: What it takes, in this order; of those with a star, any number.
        label: ``"class"``, ``"number"``, ``"list"`` (of numbers, from JSONL) or ``"none"``.
        sampler: What suits it.
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


# ----------------------------------------------------------------------------------------------------- arguments


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise argparse.ArgumentTypeError(f"{text!r} names nothing beside a comma; pass names with commas between")
    return names


def _range(text: str) -> tuple[float, float]:
    try:
        low, high = map(float, text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no range; pass two numbers such as 0,5") from None
    return low, high


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give a parser the options of ``sbert train``; what is not given is as in ``TrainingConfig``.

    Example:
        >>> parser = argparse.ArgumentParser()
        >>> add_arguments(parser)
        >>> parser.parse_args("--model m --data d --columns a,b --loss ranking --output o".split()).columns
        ['a', 'b']
    """
    parser.formatter_class = argparse.RawDescriptionHelpFormatter  # Keeps the lines of the table.
    parser.epilog = "losses, the columns they take and their label:\n" + "\n".join(
        f"  {name:20} {', '.join(choice.columns):32} {choice.label}" for name, choice in LOSSES.items()
    )
    data = parser.add_argument_group("the model and the data")
    data.add_argument("--model", required=True, help="a folder or a name on the hub, a plain transformer's too")
    data.add_argument("--data", required=True, metavar="FILE", help="TSV, CSV, JSONL, JSON or Parquet; - for stdin")
    data.add_argument("--columns", required=True, type=_names, metavar="A,B", help="columns in the loss's order")
    data.add_argument("--label", metavar="NAME", help="the column of labels")
    data.add_argument("--loss", required=True, choices=LOSSES, metavar="LOSS", help="one of those below")
    data.add_argument("--output", required=True, metavar="DIR", help="for checkpoints, best, final and history.jsonl")
    data.add_argument("--classes", type=_names, metavar="A,B,C", help="labels 0, 1, 2; those of the data if not given")
    data.add_argument("--scale", type=_range, metavar="0,5", help="lowest and highest label, which become 0 and 1")
    data.add_argument("--drop", type=_names, default=(), metavar="A,B", help="labels whose rows are left out")
    data.add_argument("--format", choices=FORMATS[1:], help="of the data; by the file's ending where it is not given")
    data.add_argument(
        "--prompt",
        action="append",
        metavar="COLUMN=PROMPT",
        help="what stands before a column's texts, once a column: a name of the model's prompts, or a text, with"
        " nothing behind = for none; or a PROMPT alone for all columns",
    )
    data.add_argument("--pooling", metavar="NAME", help="mean, max, cls; for a plain transformer")
    data.add_argument("--max-seq-length", type=int, metavar="N", help="longest text in tokens")
    data.add_argument("--device", help="cpu, cuda, cuda:1, mps")

    training = parser.add_argument_group("training")
    length = training.add_mutually_exclusive_group()
    length.add_argument("--epochs", type=float, metavar="X", help="how often to go through the data (1)")
    length.add_argument("--steps", type=int, metavar="N", help="steps in all, in place of epochs")
    training.add_argument("--batch-size", type=int, metavar="N", help="rows a batch (16)")
    training.add_argument("--chunk-tokens", type=int, metavar="N", help="tokens at once: any batch in little memory")
    training.add_argument("--accumulation", type=int, metavar="N", help="batches whose gradients a step adds up (1)")
    training.add_argument("--learning-rate", type=float, metavar="X", help="at its highest (2e-05)")
    training.add_argument("--warmup", type=float, metavar="X", help="part of the steps in which it rises (0.1)")
    training.add_argument("--weight-decay", type=float, metavar="X", help="of AdamW (0.01)")
    training.add_argument("--max-gradient-norm", type=float, metavar="X", help="longer gradients are shortened (1.0)")
    training.add_argument("--dtype", help="of the arithmetic: float32 or bfloat16 (float32)")
    training.add_argument("--seed", type=int, metavar="N", help="of the order of rows and of dropout (0)")
    training.add_argument("--sampler", metavar="NAME", help="random, no_duplicates, group_by_label or length")

    watching = parser.add_argument_group("evaluation and checkpoints")
    watching.add_argument("--evaluate", metavar="FILE", help="pairs with scores, for Spearman's correlation of cosines")
    watching.add_argument(
        "--evaluate-columns",
        type=_names,
        default=["sentence1", "sentence2", "score"],
        metavar="A,B,SCORE",
        help="of that file (sentence1,sentence2,score)",
    )
    watching.add_argument("--evaluate-prompt", metavar="PROMPT", help="before its texts, in place of the default one")
    watching.add_argument("--evaluate-every", type=int, metavar="N", help="steps; an epoch where it is not given")
    watching.add_argument("--checkpoint-every", type=int, metavar="N", help="steps; an epoch where it is not given")
    watching.add_argument("--keep", type=int, metavar="N", help="checkpoints that stay (2)")
    watching.add_argument("--log-every", type=int, metavar="N", help="steps between lines of the history (10)")
    watching.add_argument("--resume", action="store_true", help="go on from the last checkpoint in the output folder")
    watching.add_argument("--plot", metavar="FILE.png", help="where to draw the curves; needs matplotlib")
    watching.add_argument("--quiet", action="store_true", help="no progress bar, and no lines but errors")


# ------------------------------------------------------------------------------------------------------ training

_SETTINGS = (
    "epochs steps batch_size chunk_tokens accumulation learning_rate warmup weight_decay max_gradient_norm dtype seed"
    " evaluate_every checkpoint_every keep log_every"
).split()


def train(arguments: argparse.Namespace) -> None:
    """Run ``sbert train``.

    Args:
        arguments: As ``add_arguments`` has them parsed.

    Raises:
        KeyboardInterrupt: After Ctrl-C, saying how to go on.
        ValueError: If the options do not fit each other, the data or the model.
    """
    choice = LOSSES[arguments.loss]
    # What can be wrong is said before the model is loaded.
    _check_options(arguments, choice)
    from sbert.training import Trainer, TrainingConfig, checkpoint

    settings = {name: getattr(arguments, name) for name in _SETTINGS if getattr(arguments, name) is not None}
    config = TrainingConfig(
        output=arguments.output,
        sampler=arguments.sampler or choice.sampler,
        prompts=_prompts(arguments.prompt),
        **settings,
    )
    checkpoints = Path(arguments.output) / "checkpoints"
    found = checkpoint.newest(checkpoints)
    if found is not None and not arguments.resume:
        raise ValueError(f"{found} is there already; pass --resume to go on, or another --output")
    # torchrun starts several processes, of which the first speaks.
    talkative = not arguments.quiet and os.environ.get("RANK", "0") == "0"
    classes = _classes(arguments, choice, talkative)
    rows = list(
        read_rows(
            arguments.data,
            arguments.columns,
            arguments.label,
            classes=classes,
            scale=arguments.scale,
            drop=arguments.drop,
            file_format=arguments.format,
        )
    )
    evaluator = _evaluator(arguments)
    model = _load(arguments)
    trainer = Trainer(
        model,
        rows,
        _loss(choice, model, classes, config.seed),
        config,
        evaluator=evaluator,
        columns=arguments.columns,
        label=None if arguments.label is None else "label",
    )
    try:
        history = trainer.fit(resume=arguments.resume, show_progress_bar=None if talkative else False)
    except KeyboardInterrupt:
        last = checkpoint.newest(checkpoints)
        if last is None:
            raise KeyboardInterrupt("there is no checkpoint yet; --checkpoint-every makes them more often") from None
        raise KeyboardInterrupt(f"to go on from {last}, run the same command with --resume") from None
    if arguments.plot is not None and os.environ.get("RANK", "0") == "0":
        from sbert.visualization.plots import training_curves

        training_curves(history, arguments.plot)
    if talkative:
        print(_summary(history, Path(arguments.output)))


def _check_options(arguments: argparse.Namespace, choice: Choice) -> None:
    name, columns = arguments.loss, arguments.columns
    fixed = sum(not column.startswith("*") for column in choice.columns)
    if len(columns) < max(fixed, 1) or (len(columns) > fixed and fixed == len(choice.columns)):
        raise ValueError(f"--loss {name} takes {', '.join(choice.columns)}; --columns names {', '.join(columns)}")
    if choice.label == "none" and arguments.label is not None:
        raise ValueError(f"--loss {name} takes no labels; leave --label out")
    if choice.label != "none" and arguments.label is None:
        raise ValueError(f"--loss {name} takes a {choice.label} as label; name its column with --label")
    if arguments.label is None and (arguments.classes or arguments.scale or arguments.drop):
        raise ValueError(f"--loss {name} takes no labels; leave --classes, --scale and --drop out")
    if choice.label == "class" and arguments.scale is not None:
        raise ValueError(f"--loss {name} takes classes, and --scale makes fractions of labels; leave it out")
    if arguments.evaluate is None and arguments.evaluate_every is not None:
        raise ValueError("--evaluate-every needs something to evaluate; name a file with --evaluate")
    if arguments.evaluate is None and arguments.evaluate_prompt is not None:
        raise ValueError("--evaluate-prompt needs something to evaluate; name a file with --evaluate")
    if len(arguments.evaluate_columns) != 3:
        raise ValueError("--evaluate-columns takes three names: of two columns of text, and of their score")
    if arguments.plot is not None:
        from sbert.visualization.plots import check_plot

        check_plot(arguments.plot)
        if not Path(arguments.plot).parent.is_dir():
            raise FileNotFoundError(f"{arguments.plot}: there is no folder {Path(arguments.plot).parent}; make it")


def _prompts(given: list[str] | None) -> str | dict[str, str] | None:
    """What ``--prompt`` says, by column; or of all columns."""
    if given is None:
        return None
    if len(given) == 1 and "=" not in given[0]:
        return given[0]
    named = [option.partition("=") for option in given]
    prompts = {column: prompt for column, _, prompt in named}
    if len(prompts) < len(named) or not all(equals for _, equals, _ in named):
        raise ValueError(f"--prompt {given[-1]!r} does not fit the others; pass COLUMN=PROMPT once for each column")
    return prompts


def _classes(arguments: argparse.Namespace, choice: Choice, talkative: bool) -> list[str] | None:
    """The classes that were named; or for a loss that takes some, those of the data."""
    if choice.label != "class" or arguments.classes is not None:
        named: list[str] | None = arguments.classes
        return named
    if arguments.data == "-":
        raise ValueError("standard input cannot be read twice, once for its classes; name them with --classes")
    found = read_classes(arguments.data, arguments.label, drop=arguments.drop, file_format=arguments.format)
    if talkative:
        more = f" and {len(found) - _LISTED} more" if len(found) > _LISTED else ""
        print(f"classes: {', '.join(f'{i} {name}' for i, name in enumerate(found[:_LISTED]))}{more}", flush=True)
    return found


def _evaluator(arguments: argparse.Namespace) -> SimilarityEvaluator | None:
    if arguments.evaluate is None:
        return None
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

    modules: list[Any] = [arguments.model]
    if arguments.pooling is not None:
        from sbert.modules import Pooling, Transformer
        from sbert.storage.hub import resolve

        folder = resolve(arguments.model, organisation="sentence-transformers")
        if (folder / "modules.json").exists():
            raise ValueError(f"{arguments.model} has a pooling of its own; leave --pooling out")
        modules = [Transformer(folder), Pooling(arguments.pooling)]
    model = SentenceEncoder(*modules, device=arguments.device, dtype="float32")
    if arguments.max_seq_length is not None:
        model.max_seq_length = arguments.max_seq_length
    return model


def _loss(choice: Choice, model: SentenceEncoder, classes: list[str] | None, seed: int) -> Any:
    import torch

    from sbert import losses
    from sbert.pipeline.encode import widths

    made = getattr(losses, choice.loss)
    if choice.loss != "SoftmaxLoss":
        return made()
    with torch.random.fork_rng(devices=[]):  # The classifier begins with random weights.
        torch.manual_seed(seed)
        return made(widths(model, model.device)[-1], len(classes or ()))


def _summary(history: list[dict[str, Any]], output: Path) -> str:
    """One line: where the model is, the last loss, and the best score."""
    last = [entry for entry in history if "loss" in entry][-1]
    said = f"{output / 'final'}: {last['step']} steps, last loss {last['loss']:.4f}"
    scores = [(entry["evaluation"]["spearman"], entry["step"]) for entry in history if "evaluation" in entry]
    scores = [score for score in scores if not math.isnan(score[0])]
    if not scores:
        return said
    best, step = max(scores, key=lambda score: score[0])
    return f"{said}; {output / 'best'}: spearman {best:.4f} at step {step}"
