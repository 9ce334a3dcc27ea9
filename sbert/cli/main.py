"""The command line: its parser, the choice of the command, and how each command ends."""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Sequence
from typing import NoReturn

from sbert import __version__
from sbert.cli import (
    benchmark,
    cluster,
    doctor,
    encode,
    evaluate,
    export,
    info,
    map,  # noqa: A004
    merge,
    pairs,
    resume,
    search,
    similarity,
    train,
)

# Each has a file with add_arguments(parser) and run(arguments), whose first line says what the command does.
_OF_TEXTS = (encode, merge, similarity, search, pairs, cluster, map)
_OF_MODELS = (train, resume, evaluate, export, benchmark, doctor, info)
_COMMANDS = {module.__name__.rpartition(".")[2]: module for module in (*_OF_TEXTS, *_OF_MODELS)}
# torch raises AssertionError for a device that it was not built for, transformers ImportError for a missing tokenizer
# package, the trainer FloatingPointError for a loss that is not finite. Other errors are bugs and show a traceback.
_FAILURES = (ValueError, TypeError, OSError, RuntimeError, MemoryError, ImportError, AssertionError, FloatingPointError)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code: 0, 2 after an error, 130 after Ctrl-C, or what the command gives.

    Args:
        argv: Arguments after ``sbert``; default: those of the process.

    Raises:
        SystemExit: After ``--help`` and ``--version``, with code 0.

    Example:
        >>> main(["similarity", str(minilm), "A cat sleeps.", "A cat sleeps."])
        1.0000
        0
    """
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        for meant_for_programmers in (DeprecationWarning, PendingDeprecationWarning, ResourceWarning, ImportWarning):
            warnings.simplefilter("ignore", meant_for_programmers)
        warnings.showwarning = _show_warning
        try:
            try:
                arguments = _parse(sys.argv[1:] if argv is None else argv)
                return arguments.run(arguments) or 0
            finally:
                sys.stdout.flush()
        except KeyboardInterrupt as interrupt:
            print("; ".join(filter(None, ["sbert: interrupted", str(interrupt)])), file=sys.stderr)
            return 130
        except BrokenPipeError:  # The reader has closed the pipe; the interpreter must not flush again at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        except _FAILURES as error:
            print(f"sbert: error: {_one_line(error) or type(error).__name__}", file=sys.stderr)
            return 2


def _one_line(message: object) -> str:
    return " ".join(str(message).split())


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    print(f"sbert: warning: {_one_line(message)}", file=sys.stderr)


class _Parser(argparse.ArgumentParser):
    """A parser that raises its errors, so that they are printed as one line like all others."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message}; see {self.prog} --help")


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = _Parser(prog="sbert", description="Sentence embeddings.", formatter_class=argparse.RawTextHelpFormatter)
    first = {name: (module.__doc__ or "").partition("\n")[0] for name, module in _COMMANDS.items()}
    about = {name: line.partition(": ")[2].replace("``", "") for name, line in first.items()}
    parser.epilog = "commands:\n" + "".join(f"  {name:12}{line}\n" for name, line in about.items())
    parser.add_argument("--version", action="version", version=f"sbert {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", help="sbert COMMAND --help explains its options")
    for name, module in _COMMANDS.items():
        command = commands.add_parser(name, description=about[name])
        command.set_defaults(run=module.run)
        module.add_arguments(command)
    if argv and argv[0] in commands.choices:  # This way, a command's arguments may stand anywhere among its options.
        return commands.choices[argv[0]].parse_intermixed_args(argv[1:])
    return parser.parse_args(argv)
