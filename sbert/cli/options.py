"""Options that several commands share: their definitions, the types of their values, and what they read and load."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from math import isfinite
from typing import Any

from sbert.data import FILE_FORMATS, Texts
from sbert.inputs.arguments import meant_argument
from sbert.storage.hub import MINI

INPUT = f"{', '.join(FILE_FORMATS)}; also .gz, .zst; - is stdin"


# --------------------------------------------------------------------------------------------- types of their values


def real(text: str) -> float:
    """A finite real number.

    Example:
        >>> from sbert.cli.options import real
        >>> real("0.5")
        0.5
    """
    with suppress(ValueError):
        if isfinite(float(text)):
            return float(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a finite number; pass one such as 0.75")


def at_least(least: int) -> Callable[[str], int]:
    """The type of whole numbers from ``least``.

    Example:
        >>> from sbert.cli.options import at_least
        >>> at_least(1)("5")
        5
    """

    def whole(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is not possible; pass a whole number of at least {least}")
        return int(text)

    return whole


def suggest(name: str, choices: Iterable[str]) -> str:
    """What to write instead of an unknown name: the nearest choice, or any."""
    nearest = meant_argument(name, list(choices))
    return f"did you mean {nearest}?" if nearest else f"the known ones are {', '.join(choices)}"


def names(text: str) -> list[str]:
    """Names separated by commas.

    Example:
        >>> from sbert.cli.options import names
        >>> names("premise, hypothesis")
        ['premise', 'hypothesis']
    """
    listed = [name.strip() for name in text.split(",")]
    if not all(listed):
        raise argparse.ArgumentTypeError(f"{text!r} has an empty name; pass names separated by commas")
    return listed


def new_file(path: str) -> str:
    """The path of a file that can be created, which is checked before the long computation."""
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        raise argparse.ArgumentTypeError(f"{path}: the folder {folder} does not exist; create it")
    if os.path.isdir(path):
        raise argparse.ArgumentTypeError(f"{path} is a folder; name a file")
    return path


# ------------------------------------------------------------------------------------------------------- options

_OPTIONS: dict[str, dict[str, Any]] = {
    "model": {"nargs": "?", "default": MINI, "metavar": "MODEL", "help": f"folder, or name on the hub ({MINI})"},
    "texts": {"metavar": "FILE", "help": INPUT},
    "--device": {"metavar": "NAME", "help": "cpu, cuda, cuda:1, xpu, mps"},
    "--devices": {"type": names, "metavar": "NAMES", "help": "one process for each: cuda:0,cuda:1 or cpu,cpu"},
    "--dtype": {"default": "auto", "metavar": "NAME", "help": "auto, float32, bfloat16, float16; int8 of an engine"},
    "--backend": {"default": "auto", "metavar": "NAME", "help": "auto, plain; onnx, openvino: engines on the CPU"},
    "--column": {"metavar": "NAME", "help": "column or key of the texts"},
    "--format": {"choices": FILE_FORMATS, "metavar": "NAME", "help": f"of the file: {', '.join(FILE_FORMATS)}"},
    "--json": {"action": "store_true", "help": "print JSON, for programs"},
    "--overwrite": {"action": "store_true", "help": "start from scratch, and replace what is there"},
    "--output": {"type": new_file, "metavar": "FILE", "help": "file to write, instead of standard output"},
    "--quiet": {"action": "store_true", "help": "no progress bar and no summary"},
}
LOADING = ("--device", "--dtype", "--backend")
READING = ("--column", "--format")
SOURCES = (*LOADING, "--devices", *READING)
TEXT_INPUT = ("model", "texts", *SOURCES)
RESULTS = ("--json", "--output", "--quiet")
ROW_HELP = "Rows are numbered from 1, without a header; empty ones are skipped."


def add_options(parser: argparse._ActionsContainer, *options: str) -> None:
    """Add arguments and options that several commands have.

    Example:
        >>> import argparse
        >>> from sbert.cli.options import TEXT_INPUT, add_options
        >>> parser = argparse.ArgumentParser()
        >>> add_options(parser, *TEXT_INPUT)
        >>> parser.parse_args(["texts.csv", "--column", "body"]).column
        'body'
    """
    for option in options:
        parser.add_argument(*(["-o"] if option == "--output" else []), option, **_OPTIONS[option])


# ---------------------------------------------------------------------------------------- what they read and load


def is_input(word: str) -> bool:
    """Whether an argument is a file of texts or standard input, and no model."""
    return word == "-" or (os.path.exists(word) and not os.path.isdir(word))


def read_input(arguments: argparse.Namespace) -> tuple[list[str], list[int]]:
    """Read the non-empty texts of a file, and their row numbers, counted from 1.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If a line is invalid, or there is no text.
    """
    rows = read_input_rows(arguments)
    return [text for text, _ in rows.values()], list(rows)


def read_input_rows(arguments: argparse.Namespace, keep: Sequence[str] = ()) -> dict[int, tuple[str, dict[str, Any]]]:
    """Read the non-empty texts of a file with other columns, by row number, from 1; errors as of ``read_input``."""
    texts = Texts(arguments.texts, arguments.column, format=arguments.format, keep=keep)
    rows = {number: row for number, row in enumerate(texts.rows(), start=1) if row[0].strip()}
    if not rows:
        raise ValueError(f"{arguments.texts} contains no text; pass another file")
    return rows


def load_by_options(arguments: argparse.Namespace, kind: type | None = None) -> Any:
    """Load a ``SentenceEncoder``, or another kind of model, by the options.

    With ``--devices``, its pool is returned, which is used in its place and ends with the command.

    Raises:
        ValueError: If one device and several are named.
    """
    from sbert.encoder import SentenceEncoder
    from sbert.functional import check_threshold

    devices = getattr(arguments, "devices", None)
    if devices and arguments.device:
        raise ValueError("--device and --devices both name devices; pass one of them")
    # The processes of a pool copy it from the CPU to their devices.
    options = {"device": "cpu" if devices else arguments.device, "dtype": arguments.dtype, "backend": arguments.backend}
    model: Any = (kind or SentenceEncoder)(arguments.model, **options)
    if (threshold := getattr(arguments, "threshold", None)) is not None:
        check_threshold(threshold, "cosine" if getattr(arguments, "hybrid", False) else model.similarity_fn_name)
    return model.pool(devices) if devices else model


def encode_input(arguments: argparse.Namespace, texts: list[str], **options: Any) -> tuple[Any, Any]:
    """The model of the options, and its vectors of texts. Shape of these: (texts, dim)."""
    model = load_by_options(arguments)
    return model, model.encode(texts, show_progress_bar=progress(arguments), **options)


def progress(arguments: argparse.Namespace) -> bool | None:
    """The value of ``show_progress_bar``: hidden by ``--quiet``, otherwise decided by the length of the work."""
    return False if arguments.quiet else None
