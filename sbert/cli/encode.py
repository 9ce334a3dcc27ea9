"""``sbert encode``: the vectors of the texts of files, in a .npy or Parquet file or a folder of shards."""

from __future__ import annotations

import argparse
import glob
import re
import warnings
from typing import Any

from sbert.cli.options import (
    INPUT,
    add_device,
    add_devices,
    add_dtype,
    add_format,
    add_quiet,
    at_least,
    is_input,
    load_on_devices,
    names,
    number,
    progress,
)
from sbert.data import Texts
from sbert.storage.hub import OWN

_EPILOG = """\
If the first argument is a file, a pattern or -, or the only one, the default model is used. A killed command goes on
where it was when it is run again.

One shard per job, numbered from 0, on one machine or many; a finished shard is skipped:
  seq 0 15 | OMP_NUM_THREADS=2 xargs -P 4 -I{} sbert encode corpus/ -o vectors.npy --shard {}/16
  sbatch --array=0-15 --wrap 'sbert encode corpus/ -o vectors.npy --shard $SLURM_ARRAY_TASK_ID/16'
  Kubernetes, an indexed job: sh -c 'sbert encode corpus/ -o vectors.npy --shard $JOB_COMPLETION_INDEX/16'
  sbert encode --status -o vectors.npy
  sbert merge vectors.npy
"""
# Options that have a meaning only with --ray, or none with it.
_RAY = ("actors", "gpus_per_actor", "cpus_per_actor")
_NOT_RAY = ("shard", "no_resume", "devices", "format")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``sbert encode``.

    Example:
        >>> parser = argparse.ArgumentParser()
        >>> add_arguments(parser)
        >>> parser.parse_args(["texts.txt", "-o", "vectors.npy", "--shard", "3/16"]).shard
        (3, 16)
    """
    parser.usage = "%(prog)s [options] [MODEL] FILE [FILE ...] -o OUTPUT"
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EPILOG
    words = f"folder or name of a model (default: {OWN}); then files, folders or patterns: {INPUT}"
    parser.add_argument("words", nargs="*", metavar="[MODEL] FILE", help=words)
    output = "where to write the vectors: FILE.npy, FILE.parquet, or FOLDER/ for many .npy files"
    parser.add_argument("-o", "--output", required=True, help=output)
    add_device(parser)
    add_dtype(parser)
    add_format(parser)
    keep = "columns to copy to Parquet, separated by commas; lines of text are the column text"
    parser.add_argument("--keep", type=names, default=[], metavar="NAMES", help=keep)
    parser.add_argument("--prompt", metavar="TEXT", help="text inserted before each text")
    parser.add_argument("--prompt-name", metavar="NAME", help="one of the model's prompts")
    parser.add_argument("--batch-size", type=int, metavar="N", help="texts per batch")
    tokens = "maximum number of tokens per batch"
    parser.add_argument("--batch-tokens", type=at_least(1), metavar="N", help=tokens)
    parser.add_argument("--normalize", action="store_true", help="scale vectors to length 1")
    parser.add_argument("--truncate-dim", type=int, metavar="N", help="keep the first N dimensions")
    precision = "float32, float16, binary or ubinary"
    parser.add_argument("--precision", default="float32", metavar="NAME", help=precision)
    truncated = "warn, ignore or error, for texts that are truncated"
    parser.add_argument("--on-truncate", default="warn", metavar="ACTION", help=truncated)
    same = "the same vector for a text to the last bit, whatever its batch, order and process"
    parser.add_argument("--deterministic", action="store_true", help=same)
    add_quiet(parser)
    _add_scale(parser.add_argument_group("large inputs"))


def _add_scale(group: argparse._ActionsContainer) -> None:
    """Add the options for several devices and machines."""
    group.add_argument("--no-resume", action="store_true", help="start anew after an interruption")
    add_devices(group)
    status = "print how much of OUTPUT is finished; exit with 1 unless all is"
    group.add_argument("--status", action="store_true", help=status)
    group.add_argument("--shard", type=_shard, metavar="I/N", help="encode part I of N, from 0/N to N-1/N")
    ray = "Parquet files to a folder of Parquet files, with Ray Data"
    group.add_argument("--ray", action="store_true", help=ray)
    group.add_argument("--actors", type=at_least(1), metavar="N", help="with --ray: processes (default: all that fit)")
    group.add_argument("--gpus-per-actor", type=number, metavar="X", help="with --ray: GPUs of each process (0)")
    group.add_argument("--cpus-per-actor", type=number, metavar="X", help="with --ray: CPUs of each process (1)")


def _shard(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d+)/(\d+)", text)
    if not found or int(found[1]) >= int(found[2]):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a valid shard; shards are counted from 0: 0/4, 1/4, 2/4 and 3/4 are all of four"
        )
    return int(found[1]), int(found[2])


def run(arguments: argparse.Namespace) -> int:
    """Run ``sbert encode``.

    Returns:
        0, or with ``--status`` 1 if a file is not finished.

    Raises:
        FileNotFoundError: If a file, or the folder of the output, does not exist.
        KeyboardInterrupt: After Ctrl-C; the message says how to go on.
        ValueError: If a line or an option is invalid, or a journal belongs to other texts or another model.
    """
    if arguments.status:
        return _status(arguments.output)
    if not arguments.words:
        raise ValueError("there is no file of texts; pass [MODEL] FILE; see sbert encode --help")
    has_model = len(arguments.words) > 1 and not _is_source(arguments.words[0])
    arguments.model, *inputs = arguments.words if has_model else [OWN, *arguments.words]
    try:
        (_with_ray if arguments.ray else _encode)(arguments, inputs)
        return 0
    except ValueError as error:
        raise ValueError(str(error).replace("resume=False", "--no-resume")) from error
    except KeyboardInterrupt:
        without = ", without --no-resume" if arguments.no_resume else ""
        raise KeyboardInterrupt(f"to go on, run the same command again{without}") from None


def _is_source(word: str) -> bool:
    return is_input(word) or glob.has_magic(word)


def _encode(arguments: argparse.Namespace, inputs: list[str]) -> None:
    unused = next((name for name in _RAY if getattr(arguments, name) is not None), None)
    if unused:
        raise ValueError(f"--{unused.replace('_', '-')} is for --ray; add that, or leave it out")
    texts = Texts(inputs, arguments.column, format=arguments.format, keep=arguments.keep)
    model: Any = load_on_devices(arguments)
    vectors = model.encode(
        texts,
        out=arguments.output,
        resume=not arguments.no_resume,
        shard=arguments.shard,
        show_progress_bar=progress(arguments),
        **_options(arguments),
    )
    if not len(vectors) and arguments.shard is None:
        warnings.warn(f"{inputs[0]} contains no texts, so {arguments.output} contains no vectors", stacklevel=2)
    if not arguments.quiet:
        shard = "" if arguments.shard is None else ", shard {}/{}".format(*arguments.shard)
        print(f"{arguments.output}{shard}: {vectors.shape[0]} vectors of {vectors.shape[1]} {vectors.dtype}")


def _options(arguments: argparse.Namespace) -> dict[str, Any]:
    """The arguments of ``encode`` that a process of Ray takes as well."""
    return {
        "prompt": arguments.prompt,
        "prompt_name": arguments.prompt_name,
        "batch_size": arguments.batch_size,
        "batch_tokens": arguments.batch_tokens,
        "normalize_embeddings": arguments.normalize,
        "truncate_dim": arguments.truncate_dim,
        "precision": arguments.precision,
        "on_truncate": arguments.on_truncate,
        "deterministic": arguments.deterministic,
    }


def _with_ray(arguments: argparse.Namespace, inputs: list[str]) -> None:
    unused = next((name for name in _NOT_RAY if getattr(arguments, name)), None)
    if unused:
        raise ValueError(f"--{unused.replace('_', '-')} has no meaning with --ray; leave one of them out")
    from sbert.integrations.ray import encode_files

    options = {name: value for name in _RAY if (value := getattr(arguments, name)) is not None}
    written = encode_files(
        inputs,
        arguments.output,
        arguments.model,
        column=arguments.column or "text",
        keep=arguments.keep,
        device=arguments.device,
        dtype=arguments.dtype,
        **options,
        **_options(arguments),
    )
    if not arguments.quiet:
        print(f"{arguments.output}: {len(written)} Parquet {'file' if len(written) == 1 else 'files'}")


def _status(output: str) -> int:
    """Print the state of each file of an output, and how many are done."""
    from sbert.vector_files import status

    parts = status(output)
    for part in parts:
        rate = f", {part.rate:,.0f} per second" if part.rate else ""
        rows = f"{part.rows:,} rows{rate}" if part.state != "missing" else ""
        print(f"{part.state:8}  {part.path.name}  {part.note or rows}".rstrip())
    done = sum(part.state == "done" for part in parts)
    remedy = "" if done == len(parts) else "; to go on, run their commands again"
    print(f"{done} of {len(parts)} files done{remedy}")
    return int(done < len(parts))
