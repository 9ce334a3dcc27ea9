"""The command line: its parser, the choice of the command, and how each command ends."""

from __future__ import annotations

import argparse
import os
import re
import sys
import textwrap
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from importlib import import_module
from types import ModuleType
from typing import Any, NoReturn, cast

from sbert import __version__
from sbert.cli.options import suggest
from sbert.cli.output import Terminal, visible, wrap
from sbert.inputs.arguments import meant_argument

# In the order of ``sbert --help``. Each has a file with add_arguments(parser) and run(arguments), whose first line says
# what the command does; examples follow.
_COMMANDS = "encode merge similarity search pairs cluster map".split()
_COMMANDS += "train evaluate export benchmark doctor info serve".split()
_FIRST = """\
sbert compares texts by their meaning. Five commands to try, in this order:

  sbert similarity "A cat sleeps on the sofa." "A kitten naps on the couch."

  printf '%s\\n' 'A cat sleeps on the sofa.' 'A kitten naps on the couch.' \\
      'The market fell today.' 'Shares lost value.' 'It rained.' > texts.txt
  sbert search texts.txt "animals at rest" --top-k 2
  sbert pairs texts.txt --max-pairs 2
  sbert cluster texts.txt --threshold 0.5 --min-size 2
  sbert encode texts.txt -o vectors.npy

They use the small model that comes with the library, and need no network.
sbert --help lists all commands, and sbert COMMAND --help explains one.
"""
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
        >>> from sbert.cli.main import main
        >>> main(["similarity", str("sbert-mini"), "A cat sleeps.", "A cat sleeps."])
        1.0000
        0
    """
    _open_closed_streams()
    out, errors = cast("Any", (Terminal(sys.stdout), Terminal(sys.stderr, has_bars=True)))
    with warnings.catch_warnings(), redirect_stdout(out), redirect_stderr(errors):
        warnings.simplefilter("default")
        for meant_for_programmers in (DeprecationWarning, PendingDeprecationWarning, ResourceWarning, ImportWarning):
            warnings.simplefilter("ignore", meant_for_programmers)
        arguments = argparse.Namespace(options={})
        warnings.showwarning = lambda message, *_, **__: _say("warning", message, arguments.options)
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
            _say("error", str(error).strip() or type(error).__name__, arguments.options)
            return 2


def _open_closed_streams() -> None:
    """Lead standard streams that the caller has closed to nowhere: the next file would take their place."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(number)
    sys.stdout, sys.stderr = sys.stdout or os.fdopen(1, "w"), sys.stderr or os.fdopen(2, "w")


def _say(kind: str, message: object, options: Mapping[str, str]) -> None:
    """Print an error or a warning in one line, with the arguments of Python as options: ``top_k=0`` is --top-k 0."""
    line = re.sub(r"\bshard=\((\w+), (\w+)\)", r"--shard \1/\2", " ".join(str(message).split()))
    line = re.sub(r"\bscale=\((\w+), (\w+)\)", r"--set data.scale=\1,\2", line)
    for name, option in options.items():
        line = re.sub(rf"pass {name}=None\b", f"leave {option} out", line)
        line = re.sub(rf"(?<![\w/.-]){name}=(?:True\b|(?=[\s;,.)]|$))", option, line)
        # Not names of files such as label=1.csv and split=0/rows.csv.
        line = re.sub(rf"(?<![\w/.-]){name}=(?=['\"\[(]|None\b|-?\d[\de.+-]*(?:[\s;,)]|$))", f"{option} ", line)
    if "set" not in options:  # A remedy for which there is no option is none; those of training are for --set.
        line = re.sub(r"; pass \w+=[^;]*$", "", line)
    print(wrap(visible(f"sbert: {kind}: {line}"), sys.stderr), file=sys.stderr)


class _Help(argparse.HelpFormatter):
    """A text of several lines is kept as it is; the usage has what is required only."""

    def add_usage(self, usage: str | None, actions: Iterable[argparse.Action], *more: Any, **options: Any) -> None:
        shown = [action for action in actions if action.required or not action.option_strings]
        super().add_usage(usage, shown, *more, **options)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if "\n" in text else super()._fill_text(text, width, indent)


class _Parser(argparse.ArgumentParser):
    """A parser that raises its errors, so that they are printed as one line like all others."""

    words: Sequence[str] = ()

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            raise argparse.ArgumentError(action, f"{value!r} is unknown; {suggest(value, action.choices)}")

    def error(self, message: str) -> NoReturn:
        options = [option[2:].replace("-", "_") for option in self._option_string_actions if option.startswith("--")]
        for word in (word.partition("=")[0] for word in self.words if word.startswith("--")):
            name = word[2:].replace("-", "_")
            if not any(option.startswith(name) for option in options) and (meant := meant_argument(name, options)):
                message = f"{message}; for {word}, did you mean --{meant.replace('_', '-')}?"
        raise ValueError(f"{message}{' See' if message[-1] == '?' else '; see'} {self.prog} --help")


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    if not argv:
        return argparse.Namespace(run=lambda _: print(_FIRST, end=""), options={})
    if argv and argv[0] in _COMMANDS:
        parser, command = _new_parser(argv[0])
        command.add_arguments(parser)
        named = [action for action in parser._actions if action.option_strings]
        options = {action.dest.rpartition(".")[2]: action.option_strings[-1] for action in named}
        parser.set_defaults(run=command.run, options={**options, "out": options.get("output", "")})
        parser.words = argv[1:]
        return parser.parse_intermixed_args(argv[1:])  # This way, arguments may stand anywhere among options.
    parser = _Parser(
        prog="sbert", description="sentence embeddings; without arguments, five examples.", formatter_class=_Help
    )
    about = {name: (_new_parser(name)[0].description or "").partition("\n")[0] for name in _COMMANDS}
    lines = (textwrap.fill(f"  {name:12}{line}", 80, subsequent_indent=" " * 14) for name, line in about.items())
    parser.epilog = "\n".join(["commands:", *lines])
    parser.add_argument("--version", action="version", version=f"sbert {__version__}")
    parser.add_argument("name", choices=_COMMANDS, metavar="COMMAND", help="sbert COMMAND --help explains its options")
    parser.parse_args(argv)
    raise ValueError("the command comes first; see sbert --help")


def _new_parser(name: str) -> tuple[_Parser, ModuleType]:
    """The parser of a command, without its arguments, and its module."""
    module = import_module(f"sbert.cli.{name}")
    first, *others = (module.__doc__ or "").splitlines()
    about = first.partition(": ")[2].replace("``", "")
    examples = [f"  {line.strip()}" for line in others if line.strip().startswith("sbert ")]
    return _Parser(prog=f"sbert {name}", description="\n".join([about, "", *examples]), formatter_class=_Help), module
