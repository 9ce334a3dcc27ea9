"""The formats of other programs: how each is written, read again and called; GGUF by llama.cpp's own converter."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch.export import Dim, ExportedProgram

from sbert.modules import Normalize
from sbert.saving.export.padded import PaddedEncoder

Run = Callable[[dict[str, npt.NDArray[np.int64]]], Any]
OUTPUT = "sentence_embedding"
# A file of the format of ONNX, which is that of protobuf, has at most 2 GB; weights of more are a file of their own.
_LARGE = 1_900_000_000


class Format(NamedTuple):
    """A file format.

    Args:
        file: Name of its main file.
        packages: The packages that write it and, as the last one, run it.
        write: Called with the traced encoder, the names of its inputs and the path.
        load: The model in a file, as a function of named arrays.
        recipe: Python code that computes ``vectors`` from ``inputs``, a dict by names.
        value: What the recipe makes of each input, which is a list of lists.
        note: What a user of the format should know.
    """

    file: str
    packages: tuple[str, ...]
    write: Callable[[ExportedProgram, Sequence[str], Path], None]
    load: Callable[[Path], Run]
    recipe: str
    value: str = "{}"
    note: str = ""


def trace(encoder: PaddedEncoder, limit: int | None) -> ExportedProgram:
    """The program of an encoder, for any number of rows and up to ``limit`` tokens."""
    longest = min(8, limit or 8)
    # Tensors of their own: the same one under two names would become one input.
    example = {name: torch.ones(2, longest, dtype=torch.int64) for name in encoder.inputs}
    sizes = {0: Dim("batch", min=1), 1: Dim("length", min=1, max=limit)}
    with torch.no_grad():
        return torch.export.export(encoder, (), example, dynamic_shapes=dict.fromkeys(example, sizes))


def _write_onnx(program: ExportedProgram, names: Sequence[str], path: Path) -> None:
    shapes = {name: {0: "batch", 1: "length"} for name in names}
    options: dict[str, Any] = {"input_names": names, "output_names": [OUTPUT], "dynamic_shapes": shapes}
    model: Any = torch.onnx.export(program, dynamo=True, verbose=False, **options)
    size = sum(weights.nbytes for weights in program.state_dict.values())
    model.save(path, external_data=size > _LARGE)


def _load_onnx(path: Path) -> Run:
    session: Any = import_module("onnxruntime").InferenceSession(path)
    return lambda inputs: session.run(None, inputs)[0]


def _write_openvino(program: ExportedProgram, names: Sequence[str], path: Path) -> None:
    openvino: Any = import_module("openvino")
    model = openvino.convert_model(program)
    for port, name in zip((*model.inputs, *model.outputs), (*names, OUTPUT), strict=True):
        port.tensor.set_names({name})
    openvino.save_model(model, path, compress_to_fp16=False)  # By default, weights are rounded to float16.


def _load_openvino(path: Path) -> Run:
    model: Any = import_module("openvino").compile_model(path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return lambda inputs: model(inputs)[0]


def _load_program(path: Path) -> Run:
    module = torch.export.load(path).module()
    return lambda inputs: module(**{name: torch.from_numpy(values) for name, values in inputs.items()}).numpy()


_OPENVINO_NOTE = """\
Without the hint, OpenVINO computes in bfloat16 on processors that have it: faster, and each number of a vector of
length 1 differs by about 0.001. Weights are stored as float32; rounded to float16, they add about 0.0003."""
FORMATS: dict[str, Format] = {
    "onnx": Format(
        "model.onnx",
        ("onnx", "onnxscript", "onnxruntime"),
        _write_onnx,
        _load_onnx,
        'vectors = onnxruntime.InferenceSession("model.onnx").run(None, inputs)[0]',
    ),
    "openvino": Format(
        "model.xml",
        ("openvino",),
        _write_openvino,
        _load_openvino,
        'model = openvino.compile_model("model.xml", "CPU", {"INFERENCE_PRECISION_HINT": "f32"})\n'
        "vectors = model(inputs)[0]",
        note=_OPENVINO_NOTE,
    ),
    "torch-export": Format(
        "model.pt2",
        ("torch",),
        lambda program, _, path: torch.export.save(program, path),
        _load_program,
        'vectors = torch.export.load("model.pt2").module()(**inputs).numpy()',
        value="torch.tensor({})",
    ),
}

# ------------------------------------------------------------------------------------------------ GGUF, of llama.cpp

GGUF_FILE, _SCRIPT, _VARIABLE = "model.gguf", "convert_hf_to_gguf.py", "LLAMA_CPP"
_GGUF_POOLINGS = ("mean", "cls", "lasttoken")


def why_no_gguf(model: Any) -> str | None:
    """Why GGUF cannot hold an encoder that has a padded form; None if it can."""
    transformer, pooling, *rest = model
    if len(pooling.modes) > 1 or pooling.modes[0] not in _GGUF_POOLINGS:
        return f"GGUF has the pooling modes {', '.join(_GGUF_POOLINGS)}, not {'+'.join(pooling.modes)}"
    others = [type(module).__name__ for module in rest if type(module) is not Normalize]
    if others:
        return f"GGUF has no place for {others[0]}"
    if transformer.lower_case or model.truncate_dim is not None:
        return "GGUF has no place for lower_case and truncate_dim"
    return None


def find_converter(llama_cpp: str | os.PathLike[str] | None) -> Path:
    """The script in a folder of llama.cpp, or in that which ``LLAMA_CPP`` names.

    Raises:
        FileNotFoundError: If there is none. The message says how to get it.
    """
    folder = llama_cpp or os.environ.get(_VARIABLE)
    script = Path(folder or ".", _SCRIPT)
    if folder and script.is_file():
        return script
    reason = f"{os.fspath(folder)} holds no {_SCRIPT}" if folder else "no folder of llama.cpp is given"
    raise FileNotFoundError(
        f"GGUF is written by llama.cpp's own converter, and {reason}; run: git clone"
        " https://github.com/ggml-org/llama.cpp, install the package gguf, and pass that folder as"
        f" llama_cpp= or in the variable {_VARIABLE}"
    )


def write_gguf(model: Any, script: Path, path: Path) -> None:
    """Convert an encoder to a file of float32 weights.

    Raises:
        RuntimeError: If the converter fails. The message has the last line that it printed.
    """
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / "model"
        model.save(folder, create_model_card=False)
        command = [sys.executable, str(script), str(folder), "--outfile", str(path), "--outtype", "f32"]
        process = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if process.returncode or not path.is_file():
        said = (process.stderr.strip() or process.stdout.strip() or "nothing").splitlines()[-1]
        raise RuntimeError(f"{script} ended with exit code {process.returncode} and said: {said[:300]}")
