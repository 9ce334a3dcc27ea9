"""GGUF, the format of llama.cpp, written by its own converter."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from sbert.encoder import SentenceEncoder
from sbert.modules import Normalize

FILE, _SCRIPT, _VARIABLE = "model.gguf", "convert_hf_to_gguf.py", "LLAMA_CPP"
_POOLINGS = ("mean", "cls", "lasttoken")


def why_not(model: SentenceEncoder) -> str | None:
    """Why the format cannot hold an encoder that has a padded form; None if it can."""
    transformer, pooling, *rest = list[Any](model)
    if len(pooling.modes) > 1 or pooling.modes[0] not in _POOLINGS:
        return f"GGUF has the pooling modes {', '.join(_POOLINGS)}, not {'+'.join(pooling.modes)}"
    others = [type(module).__name__ for module in rest if type(module) is not Normalize]
    if others:
        return f"GGUF has no place for {others[0]}"
    if transformer.lower_case or model.truncate_dim is not None:
        return "GGUF has no place for lower_case and truncate_dim"
    return None


def converter(llama_cpp: str | os.PathLike[str] | None) -> Path:
    """The script in a folder of llama.cpp, or in that which ``LLAMA_CPP`` names.

    Raises:
        FileNotFoundError: If there is none. The message says how to get it.
    """
    folder = llama_cpp or os.environ.get(_VARIABLE)
    script = Path(folder or ".", _SCRIPT)
    if folder and script.is_file():
        return script
    found = f"{os.fspath(folder)} holds no {_SCRIPT}" if folder else "no folder of llama.cpp is given"
    raise FileNotFoundError(
        f"GGUF is written by llama.cpp's own converter, and {found}; run: git clone"
        " https://github.com/ggml-org/llama.cpp, install the package gguf, and pass that folder as --llama-cpp,"
        f" llama_cpp= or in the variable {_VARIABLE}"
    )


def write(model: SentenceEncoder, script: Path, path: Path) -> None:
    """Convert an encoder to a file of float32 weights.

    Raises:
        RuntimeError: If the converter fails. The message has the last line that it printed.
    """
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model", create_model_card=False)
        command = [sys.executable, str(script), str(Path(folder) / "model"), "--outfile", str(path), "--outtype", "f32"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode or not path.is_file():
        said = (done.stderr.strip() or done.stdout.strip() or "nothing").splitlines()[-1]
        raise RuntimeError(f"{script} ended with exit code {done.returncode} and said: {said[:300]}")
