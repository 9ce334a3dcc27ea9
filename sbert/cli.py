"""The command line: ``sbert encode``, ``sbert similarity``, ``sbert info``."""

from __future__ import annotations

import argparse
import json
import os
import sys
import warnings
from collections.abc import Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, TextIO

from sbert.data import FORMATS, read_texts

if TYPE_CHECKING:
    from sbert.encoder import SentenceEncoder


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code: 0, 2 after an error, 130 after Ctrl-C.

    Example:
        >>> main(["similarity", str(minilm), "A cat sleeps.", "A cat sleeps."])
        1.0000
        0
    """
    arguments = _parser().parse_args(argv)
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.showwarning = _show_warning
        try:
            arguments.run(arguments)
            sys.stdout.flush()
        except KeyboardInterrupt:
            print("sbert: interrupted", file=sys.stderr)
            return 130
        except BrokenPipeError:  # Whoever read the output has seen enough.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        except (ValueError, TypeError, OSError, RuntimeError, MemoryError) as error:
            print(f"sbert: error: {' '.join(str(error).split()) or type(error).__name__}", file=sys.stderr)
            return 2
    return 0


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    print(f"sbert: warning: {message}", file=sys.stderr)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="sbert", description="Sentence embeddings.")
    parser.add_argument("--version", action="version", version=f"sbert {version('sbert')}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    encode = _command(commands, "encode", _encode, "write the vectors of texts to a .npy file")
    encode.add_argument("texts", help="a file: text, JSONL, CSV or TSV, .gz or not; - for standard input")
    encode.add_argument("-o", "--output", required=True, metavar="FILE.npy", help="where to write the vectors")
    encode.add_argument("--column", help="the column or key that holds the texts")
    encode.add_argument("--format", choices=FORMATS, help="by the file's ending where it is not given")
    encode.add_argument("--prompt", help="text to put before each text")
    encode.add_argument("--prompt-name", help="one of the model's prompts")
    encode.add_argument("--batch-size", type=int, help="texts in a batch")
    encode.add_argument("--batch-tokens", type=int, help="tokens in a batch at most")
    encode.add_argument("--normalize", action="store_true", help="scale vectors to length 1")
    encode.add_argument("--truncate-dim", type=int, help="keep so many numbers of each vector")
    encode.add_argument("--precision", default="float32", help="float32, binary or ubinary")
    encode.add_argument("--on-truncate", default="warn", help="warn, ignore or error")
    encode.add_argument("--quiet", action="store_true", help="no progress bar")

    similarity = _command(commands, "similarity", _similarity, "compare two texts or more")
    similarity.add_argument("texts", nargs="+", help="two texts give a number, more a matrix")

    info = _command(commands, "info", _info, "say what a model is, and whether its vectors are still the same")
    info.add_argument("--json", action="store_true", help="for programs")
    return parser


def _command(commands: Any, name: str, run: Any, about: str) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = commands.add_parser(name, help=about, description=about)
    command.set_defaults(run=run)
    command.add_argument("model", help="a folder, or a name on the Hugging Face hub")
    command.add_argument("--device", help="cpu, cuda, cuda:1, mps")
    command.add_argument("--dtype", help="float32, bfloat16 or float16")
    return command


def _load(arguments: argparse.Namespace) -> SentenceEncoder:
    from sbert.encoder import SentenceEncoder

    return SentenceEncoder(arguments.model, device=arguments.device, dtype=arguments.dtype)


def _encode(arguments: argparse.Namespace) -> None:
    vectors = _load(arguments).encode(
        read_texts(arguments.texts, arguments.column, arguments.format),
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
    print(f"{arguments.output}: {vectors.shape[0]} vectors of {vectors.shape[1]} {vectors.dtype}")


def _similarity(arguments: argparse.Namespace) -> None:
    if len(arguments.texts) < 2:
        raise ValueError("one text cannot be compared; pass two or more")
    model = _load(arguments)
    vectors = model.encode(arguments.texts)
    scores = model.similarity(vectors, vectors)
    if len(vectors) == 2:
        print(f"{scores[0, 1]:.4f}")
    else:
        print("\n".join(" ".join(f"{score:8.4f}" for score in row) for row in scores))


def _info(arguments: argparse.Namespace) -> None:
    from sbert import verification

    model = _load(arguments)
    parameters = list(model.parameters())
    facts: dict[str, Any] = {
        "modules": [repr(module) for module in model],
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
    if model.has_reference:
        facts["verification"] = str(model.verify())
    if arguments.json:
        print(json.dumps(facts, ensure_ascii=False, indent=2))
        return
    for name, value in facts.items():
        if isinstance(value, dict):
            value = ", ".join(
                f"{key} {text!r}" if name == "prompts" else f"{key} {text}" for key, text in value.items()
            )
        lines = value if isinstance(value, list) else [f"{value:,}" if name == "parameters" else value or "none"]
        for i, line in enumerate(lines):
            print(f"{name if i == 0 else '':20} {line}")
