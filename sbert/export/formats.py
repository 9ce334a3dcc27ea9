"""The formats that hold a traced encoder: how each is written, read again and called."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch.export import Dim, ExportedProgram

from sbert.export.padded import PaddedEncoder

Run = Callable[[dict[str, npt.NDArray[np.int64]]], Any]
OUTPUT = "sentence_embedding"
# A file of the format of ONNX, which is that of protobuf, has at most 2 GB; weights of more are a file of their own.
_LARGE = 1_900_000_000


class Format(NamedTuple):
    """A file format.

    Args:
        file: Name of its main file.
        packages: The packages beside torch that write it and run it.
        package: The package that runs it.
        write: Called with the traced encoder, the names of its inputs and the path.
        load: The model in a file, as a function of named arrays.
        recipe: Python code that computes ``vectors`` from ``inputs``, a dict by names.
        value: What the recipe makes of each input, which is a list of lists.
        note: What a user of the format should know.
    """

    file: str
    packages: tuple[str, ...]
    package: str
    write: Callable[[ExportedProgram, Sequence[str], Path], None]
    load: Callable[[Path], Run]
    recipe: str
    value: str = "{}"
    note: str = ""


def traced(encoder: PaddedEncoder, limit: int | None) -> ExportedProgram:
    """The program of an encoder, for any number of rows and up to ``limit`` tokens."""
    longest = min(8, limit or 8)
    # Tensors of their own: the same one under two names would become one input.
    example = {name: torch.ones(2, longest, dtype=torch.int64) for name in encoder.inputs}
    sizes = {0: Dim("batch", min=1), 1: Dim("length", min=1, max=limit)}
    with torch.no_grad():
        return torch.export.export(encoder, (), example, dynamic_shapes=dict.fromkeys(example, sizes))


def _write_onnx(program: ExportedProgram, names: Sequence[str], path: Path) -> None:
    sizes = {0: "batch", 1: "length"}
    model: Any = torch.onnx.export(
        program,
        dynamo=True,
        verbose=False,
        input_names=names,
        output_names=[OUTPUT],
        dynamic_shapes=dict.fromkeys(names, sizes),
    )
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


def _write_program(program: ExportedProgram, names: Sequence[str], path: Path) -> None:
    torch.export.save(program, path)


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
        "onnxruntime",
        _write_onnx,
        _load_onnx,
        'vectors = onnxruntime.InferenceSession("model.onnx").run(None, inputs)[0]',
    ),
    "openvino": Format(
        "model.xml",
        ("openvino",),
        "openvino",
        _write_openvino,
        _load_openvino,
        'model = openvino.compile_model("model.xml", "CPU", {"INFERENCE_PRECISION_HINT": "f32"})\n'
        "vectors = model(inputs)[0]",
        note=_OPENVINO_NOTE,
    ),
    "torch-export": Format(
        "model.pt2",
        (),
        "torch",
        _write_program,
        _load_program,
        'vectors = torch.export.load("model.pt2").module()(**inputs).numpy()',
        value="torch.tensor({})",
    ),
}
