"""``sbert encode``: the vectors of the texts of files, as .npy or Parquet, whole or in shards.

sbert encode texts.txt -o vectors.npy
sbert encode all-MiniLM-L6-v2 corpus/ --column text --keep id -o all.parquet
sbert encode corpus/ --column text --shard 3/16 -o corpus.npy
"""

from __future__ import annotations

import argparse
import glob
import re
import warnings
from typing import Any

from sbert.cli.options import INPUT, SOURCES, add_options, at_least, is_input, load_by_options, names, progress
from sbert.data import Texts
from sbert.storage.hub import MINI

_EPILOG = """\
If the first argument is a file, a pattern or -, or the only one, the default
model is used. If the command was interrupted, the same command continues it.
"""
# The options that are arguments of ``SentenceEncoder.encode``.
_OPTIONS = "prompt prompt_name batch_size batch_tokens normalize_embeddings truncate_dim precision on_truncate"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``sbert encode``.

    Example:
        >>> import argparse
        >>> from sbert.cli.encode import add_arguments
        >>> parser = argparse.ArgumentParser()
        >>> add_arguments(parser)
        >>> parser.parse_args(["texts.txt", "-o", "vectors.npy", "--shard", "3/16"]).shard
        (3, 16)
    """
    parser.usage = "%(prog)s [options] [MODEL] FILE [FILE ...] -o OUTPUT"
    parser.epilog = _EPILOG
    add = parser.add_argument
    add("inputs", nargs="*", metavar="[MODEL] FILE", help=f"a model ({MINI}); then files, folders: {INPUT}")
    add("-o", "--output", required=True, help="FILE.npy or FILE.parquet; of sparse vectors, FILE.npz")
    add_options(parser, *SOURCES, "--overwrite", "--quiet")
    add("--keep", type=names, default=[], metavar="NAMES", help="columns to copy to Parquet (a line is: text)")
    add("--prompt", metavar="TEXT", help="text inserted before each text")
    add("--prompt-name", metavar="NAME", help="one of the model's prompts")
    add("--batch-size", type=at_least(1), metavar="N", help="texts per batch")
    add("--batch-tokens", type=at_least(1), metavar="N", help="maximum number of tokens per batch")
    add("--normalize", dest="normalize_embeddings", action="store_true", help="scale vectors to length 1")
    add("--truncate-dim", type=at_least(1), metavar="N", help="keep the first N dimensions")
    precisions = "float32 float16 binary ubinary".split()
    add("--precision", choices=precisions, default="float32", metavar="NAME", help=", ".join(precisions))
    choices, about = ("warn", "ignore", "error"), "warn, ignore or error, if a text is truncated"
    add("--on-truncate", choices=choices, default="warn", metavar="NAME", help=about)
    add = parser.add_argument_group("large inputs").add_argument
    add("--shard", type=_shard, metavar="I/N", help="encode part I of N, from 0/N to N-1/N")


def _shard(text: str) -> tuple[int, int]:
    result = re.fullmatch(r"(\d+)/(\d+)", text)
    if not result or int(result[1]) >= int(result[2]):
        raise argparse.ArgumentTypeError(f"{text!r} is not a valid shard; shards are counted from 0: 0/4, 1/4, ...")
    return int(result[1]), int(result[2])


def run(arguments: argparse.Namespace) -> None:
    """Run ``sbert encode``.

    Raises:
        FileNotFoundError: If a file, or the folder of the output, does not exist.
        KeyboardInterrupt: After Ctrl-C; the message says how to go on.
        ValueError: If a line or an option is invalid, or the interrupted run had other texts or another model.
    """
    if not arguments.inputs:
        raise ValueError("there is no file of texts; pass [MODEL] FILE; see sbert encode --help")
    first = arguments.inputs[0]
    has_model = len(arguments.inputs) > 1 and not (is_input(first) or glob.has_magic(first))
    arguments.model, *inputs = arguments.inputs if has_model else [MINI, *arguments.inputs]
    try:
        _encode(arguments, inputs)
    except KeyboardInterrupt:
        without = ", without --overwrite" if arguments.overwrite else ""
        raise KeyboardInterrupt(f"to go on, run the same command again{without}") from None


def _encode(arguments: argparse.Namespace, inputs: list[str]) -> None:
    texts = Texts(inputs, arguments.column, format=arguments.format, keep=arguments.keep)
    options: dict[str, Any] = {name: getattr(arguments, name) for name in _OPTIONS.split()}
    options |= {"out": arguments.output, "shard": arguments.shard, "overwrite": arguments.overwrite}
    vectors = load_by_options(arguments).encode(texts, show_progress_bar=progress(arguments), **options)
    if not vectors.shape[0] and arguments.shard is None:
        warnings.warn(f"{inputs[0]} contains no texts, so {arguments.output} contains no vectors", stacklevel=2)
    if not arguments.quiet:
        shard = "" if arguments.shard is None else ", shard {}/{}".format(*arguments.shard)
        print(f"{arguments.output}{shard}: {vectors.shape[0]} vectors of {vectors.shape[1]} {vectors.dtype}")
