"""``sbert export``: a model in a format of other programs.

sbert export onnx sbert-mini exported
"""

from __future__ import annotations

import argparse
from pathlib import Path

from sbert.cli.options import add_options

_FORMATS = ("onnx", "torch-export")  # Listed here as well, since the library is imported late.


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``sbert export``."""
    parser.add_argument("format", choices=_FORMATS, metavar="FORMAT", help=", ".join(_FORMATS))
    parser.add_argument("model", metavar="MODEL", help="folder, or name on the hub")
    parser.add_argument("folder", metavar="DIR", help="folder to write: the model, its tokenizer, and how to run it")
    parser.add_argument(
        "--dtype", default="float32", choices=("float32", "int8"), help="int8, of onnx: smaller, faster"
    )
    add_options(parser, "--quiet")


def run(arguments: argparse.Namespace) -> None:
    """Run ``sbert export``.

    Raises:
        ValueError: If the model cannot be exported, or the folder has other files.
        ImportError: If a package is missing.
    """
    from sbert.encoder import SentenceEncoder
    from sbert.saving.export import export

    model = SentenceEncoder(arguments.model, device="cpu", dtype="float32")
    difference = export(model, arguments.folder, arguments.format, arguments.dtype)
    if not arguments.quiet:
        size = sum(file.stat().st_size for file in Path(arguments.folder).iterdir()) / 1e6
        result = f"{size:.1f} MB, largest difference from encode {difference:.1e}"
        print(f"{arguments.folder}: {result}; its README.md says how to run it")
