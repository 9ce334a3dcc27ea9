"""The command line: ``sbert encode``, ``search``, ``train``, ``evaluate`` and the others."""

from __future__ import annotations

import argparse
import json
import os
import sys
import warnings
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

from sbert import __version__
from sbert.cli import cluster, evaluate, paraphrases, search, train
from sbert.cli import map as pages
from sbert.cli.output import INPUT, check_output
from sbert.data import FORMATS, read_texts
from sbert.storage.hub import OWN

if TYPE_CHECKING:
    from sbert.encoder import SentenceEncoder

# torch raises AssertionError for a device that it was not built for, transformers ImportError for a missing tokenizer
# package, the trainer FloatingPointError for a loss that is not finite. Other errors are bugs and show a traceback.
_FAILURES = (
    ValueError,
    TypeError,
    OSError,
    RuntimeError,
    MemoryError,
    ImportError,
    AssertionError,
    FloatingPointError,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code: 0, 2 after an error, 130 after Ctrl-C.

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
                arguments = _parse(argv)
                arguments.run(arguments)
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
    return 0


def _one_line(message: object) -> str:
    return " ".join(str(message).split())


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    print(f"sbert: warning: {_one_line(message)}", file=sys.stderr)


class _Parser(argparse.ArgumentParser):
    """A parser that raises its errors, so that they are printed as one line like all others."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message}; see {self.prog} --help")


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse a command whose positional arguments may stand anywhere among its options."""
    parser = _parser()
    given = sys.argv[1:] if argv is None else argv
    arguments, rest = parser.parse_known_args(given)
    # argparse collects positional arguments from one place only and returns those after further options as unknown.
    plain = rest[:1] == ["--"] or all(word == "-" or word[:1] != "-" for word in rest)
    further = rest[1:] if rest[:1] == ["--"] else rest
    words = getattr(arguments, "words", getattr(arguments, "texts", None))
    if plain and isinstance(words, list):
        words += further
    elif plain and isinstance(words, str) and OWN not in given and arguments.model == OWN and len(further) == 1:
        arguments.model, arguments.texts = words, further[0]
    elif rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    return arguments


def _parser() -> _Parser:
    parser = _Parser(prog="sbert", description="Sentence embeddings.")
    parser.add_argument("--version", action="version", version=f"sbert {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    encode = _command(commands, "encode", _encode, "write the vectors of texts to a .npy file")
    encode.add_argument("texts", help=INPUT)
    encode.add_argument("-o", "--output", required=True, metavar="FILE.npy", help="where to write the vectors")
    encode.add_argument("--column", metavar="NAME", help="column or key of the texts")
    encode.add_argument("--format", choices=FORMATS, help="default: by the file name extension")
    encode.add_argument("--prompt", metavar="TEXT", help="text inserted before each text")
    encode.add_argument("--prompt-name", metavar="NAME", help="one of the model's prompts")
    encode.add_argument("--batch-size", type=int, metavar="N", help="texts per batch")
    encode.add_argument("--batch-tokens", type=int, metavar="N", help="maximum number of tokens per batch")
    encode.add_argument("--normalize", action="store_true", help="scale vectors to length 1")
    encode.add_argument("--truncate-dim", type=int, metavar="N", help="keep the first N dimensions")
    encode.add_argument("--precision", default="float32", help="float32, binary or ubinary")
    encode.add_argument("--on-truncate", default="warn", help="warn, ignore or error, for texts that are truncated")
    encode.add_argument("--quiet", action="store_true", help="no progress bar and no summary")

    similarity = _command(commands, "similarity", _similarity, "print the similarities of two or more texts")
    similarity.add_argument(
        "texts", nargs="+", help="two texts, for one score; or a model and two or more texts, for a matrix"
    )
    similarity.set_defaults(model=None)

    about = "train a model on rows of texts"
    training = commands.add_parser("train", help=about, description=about)
    training.set_defaults(run=train.train)
    train.add_arguments(training)

    evaluate.add_arguments(_command(commands, "evaluate", evaluate.evaluate, "evaluate a model on standard data sets"))

    search.add_arguments(
        _command(commands, "search", search.search, "find the texts in a file that are similar to a query")
    )
    paraphrases.add_arguments(
        _command(commands, "pairs", paraphrases.pairs, "find the most similar pairs of texts in a file")
    )
    cluster.add_arguments(_command(commands, "cluster", cluster.cluster, "cluster the texts of a file by meaning"))
    pages.add_arguments(_command(commands, "map", pages.draw, "draw the texts of a file as an interactive map"))

    benchmark = _command(commands, "benchmark", _benchmark, "measure a model's speed here, and that of other libraries")
    benchmark.add_argument("--data", metavar="FILE", help="short texts; default: synthetic texts")
    benchmark.add_argument("--column", metavar="NAME", help="column or key of the texts")
    benchmark.add_argument("--format", choices=FORMATS, help="default: by the file name extension")
    benchmark.add_argument("--against", metavar="A,B", help="libraries to compare with; default: those installed")
    benchmark.add_argument("--rounds", type=int, default=3, metavar="N", help="rounds per contender")
    benchmark.add_argument("--sample", type=int, default=2000, metavar="N", help="short texts per round")
    benchmark.add_argument("--linear", action="store_true", help="also measure 1,000 to 100,000 texts")
    benchmark.add_argument("--json", metavar="FILE", help="write all results to this file")
    benchmark.add_argument("--plot", metavar="FILE.png", help="draw the results; needs matplotlib")

    doctor = _command(commands, "doctor", _doctor, "explain how a model runs on this machine")
    doctor.add_argument("--json", action="store_true", help="print JSON")

    info = _command(commands, "info", _info, "describe a model, and verify its vectors")
    info.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _command(commands: Any, name: str, run: Any, about: str) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = commands.add_parser(name, help=about, description=about)
    command.set_defaults(run=run)
    command.add_argument(
        "model", nargs="?", default=OWN, help=f"folder, or name on the Hugging Face hub (default: {OWN})"
    )
    command.add_argument("--device", help="cpu, cuda, cuda:1, mps")
    command.add_argument("--dtype", default="auto", help="auto, float32, bfloat16 or float16")
    return command


def _load(arguments: argparse.Namespace) -> SentenceEncoder:
    from sbert.encoder import SentenceEncoder

    return SentenceEncoder(arguments.model, device=arguments.device, dtype=arguments.dtype)


def _encode(arguments: argparse.Namespace) -> None:
    texts = read_texts(arguments.texts, arguments.column, arguments.format)
    vectors = _load(arguments).encode(
        texts,
        out=arguments.output,
        prompt=arguments.prompt,
        prompt_name=arguments.prompt_name,
        batch_size=arguments.batch_size,
        batch_tokens=arguments.batch_tokens,
        normalize_embeddings=arguments.normalize,
        truncate_dim=arguments.truncate_dim,
        precision=arguments.precision,
        on_truncate=arguments.on_truncate,
        show_progress_bar=False if arguments.quiet else None,
    )
    if not len(vectors):
        warnings.warn(f"{arguments.texts} contains no texts, so {arguments.output} contains no vectors", stacklevel=2)
    if not arguments.quiet:
        print(f"{arguments.output}: {vectors.shape[0]} vectors of {vectors.shape[1]} {vectors.dtype}")


def _similarity(arguments: argparse.Namespace) -> None:
    texts = [*([] if arguments.model is None else [arguments.model]), *arguments.texts]
    describing = (os.path.join(texts[0], name) for name in ("modules.json", "config.json"))
    if len(texts) < 2 or (len(texts) == 2 and (texts[0] == OWN or any(map(os.path.isfile, describing)))):
        raise ValueError("one text cannot be compared; pass two or more")
    arguments.model, *texts = texts if len(texts) > 2 else (OWN, *texts)  # Two arguments are two texts.
    model = _load(arguments)
    vectors = model.encode(texts)
    scores = model.similarity(vectors, vectors)
    if len(vectors) == 2:
        print(f"{scores[0, 1]:.4f}")
    else:
        print("\n".join(" ".join(f"{score:8.4f}" for score in row) for row in scores))


def _benchmark(arguments: argparse.Namespace) -> None:
    from sbert.cli.benchmark import benchmark, plot, table
    from sbert.visualization.formats import check_plot

    if arguments.dtype != "auto":
        raise ValueError("benchmark does not take --dtype: it measures auto and bfloat16; leave it out")
    for path in filter(None, (arguments.json, arguments.plot)):  # Checked first, because the measurement takes long.
        check_output(path)
    if arguments.plot is not None:
        check_plot(arguments.plot)
    texts = None
    if arguments.data is not None:
        texts = list(read_texts(arguments.data, arguments.column, arguments.format))
    result = benchmark(
        arguments.model,
        texts,
        against=None if arguments.against is None else arguments.against.split(","),
        device=arguments.device,
        rounds=arguments.rounds,
        sample=arguments.sample,
        linear=arguments.linear,
    )
    print(table(result))
    if arguments.json is not None:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(result, file, ensure_ascii=False, indent=2)
    if arguments.plot is not None:
        plot(result, arguments.plot)


def _doctor(arguments: argparse.Namespace) -> None:
    from sbert.cli.doctor import diagnose

    facts = diagnose(_load(arguments))
    if arguments.json:
        print(json.dumps(facts, ensure_ascii=False, indent=2))
        return
    for name, value in facts.items():
        print(f"{name:20} {value}")


def _info(arguments: argparse.Namespace) -> None:
    from sbert.saving import verification

    model = _load(arguments)
    parameters = list(model.parameters())
    facts: dict[str, Any] = {
        "modules": [_one_line(repr(module)) for module in model],
        "dim": model.get_sentence_embedding_dimension(),
        "max_seq_length": model.max_seq_length,
        "similarity": model.similarity_fn_name,
        "prompts": model.prompts,
        "default_prompt_name": model.default_prompt_name,
        "parameters": sum(parameter.numel() for parameter in parameters),
        "dtype": ", ".join(sorted({str(p.dtype).removeprefix("torch.") for p in parameters})),
        "device": str(model.device),
        "versions": verification.versions(),
    }
    verified = model.verify() if model.has_reference else None
    if arguments.json:
        facts["verification"] = None if verified is None else {**asdict(verified), "ok": verified.ok}
        print(json.dumps(facts, ensure_ascii=False, indent=2))
        return
    facts["parameters"] = f"{facts['parameters']:,}"
    facts["prompts"] = [f"{name}: {prompt!r}" for name, prompt in model.prompts.items()]
    facts["versions"] = [f"{name} {number}" for name, number in facts["versions"].items()]
    facts["verification"] = "no reference vectors; save() writes some" if verified is None else str(verified)
    for name, value in facts.items():
        for i, line in enumerate(value if isinstance(value, list) and value else [value or "none"]):
            print(f"{'' if i else name:20} {line}")
