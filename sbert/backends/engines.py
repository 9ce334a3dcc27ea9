"""Transformers in ONNX Runtime and OpenVINO: from a file of the model's folder, or one that is exported once.

What is exported is kept in ``~/.cache/sbert/engines``, by a digest of the weights, the configuration and the versions.
"""

from __future__ import annotations

import copy
import hashlib
import os
import warnings
from functools import cache
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from sbert.backends.backend import running
from sbert.backends.fused import Fused
from sbert.backends.minimal_bert import BertModel, convert_model
from sbert.backends.network import position_limit
from sbert.batch import TokenBatch
from sbert.inputs.extras import missing
from sbert.storage.atomic import replacing
from sbert.storage.folders import user_cache

# The package, and the file that sentence-transformers writes for it, by the names of the backends.
ENGINES = {"onnx": ("onnxruntime", "model.onnx"), "openvino": ("openvino", "openvino_model.xml")}
# Batches of more tokens run in the fused forward. ONNX Runtime takes 0.93 of its time on Zen 4 for a text of 16 tokens,
# 1.08 for one of 128, and 1.1 to 1.5 for batches; on Zen 3 (AVX2), 0.45 for a short text, and no less for many.
# OpenVINO takes 1.35, 1.00, and 1.05 to 1.3 on Zen 4.
_MOST_TOKENS = 64
# A file of the format of ONNX, which is that of protobuf, has at most 2 GB; larger weights are a file of their own.
_LARGE = 1_900_000_000


class EngineChoice(NamedTuple):
    """An engine for the weights that a network has now.

    Args:
        name: Its key in ``ENGINES``.
        dtype: Of its products.
        file: What it runs.
        digest: Of the weights.
    """

    name: str
    dtype: torch.dtype
    file: Path
    digest: str


def choose_engine(network: Any, name: str, int8: bool, folder: Path | None, file: str | None) -> EngineChoice:
    """An engine for a network.

    Args:
        network: A Hugging Face model, or a minimal BERT.
        name: Key of the engine in ``ENGINES``.
        int8: Whether to compute in int8.
        folder: Of the model.
        file: What the engine runs, a file in the folder. Default: that which sentence-transformers writes there; if
            there is none, or for int8, what is exported.

    Raises:
        FileNotFoundError: If the folder has no such file.
        ImportError: If a package is missing.
        ValueError: If the weights are not in float32.
    """
    package, usual = ENGINES[name]
    folders = [folder / name, folder] if folder and (file or not int8) else []
    path = next(filter(Path.is_file, (parent / (file or usual) for parent in folders)), None)
    if file and not path:
        raise FileNotFoundError(f"{folder or 'the model'} has no {file}; leave file_name= out to export the weights")
    for needed in (package, *([] if path else ["onnx", "onnxscript"])):
        if find_spec(needed) is None:
            raise missing(f"backend={name!r}", needed, name)
    if network.dtype != torch.float32:
        raise ValueError(f"backend={name!r} computes in float32 or int8, not {network.dtype}; leave dtype= out")
    digest = weights_digest(network)
    return EngineChoice(name, torch.int8 if int8 else torch.float32, path or _export(network, int8, digest), digest)


def weights_digest(network: Any) -> str:
    """A digest of the weights of a network."""
    digest = hashlib.sha256()
    for name, weight in network.state_dict().items():
        digest.update(f"{name} {tuple(weight.shape)} {weight.dtype}".encode())
        digest.update(weight.cpu().contiguous().view(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


# ------------------------------------------------------------------------------------------------------------ export


def _export(network: Any, int8: bool, digest: str) -> Path:
    """The file of a network in the user's cache, which is written at its first use."""
    facts = [digest, network.config, int8, *map(version, ("sbert", "torch", "transformers"))]
    folder = user_cache() / "engines" / hashlib.sha256(repr(facts).encode()).hexdigest()[:32]
    if not (folder / "model.onnx").exists():
        model: Any = convert_model(network) if isinstance(network, BertModel) else copy.deepcopy(network)
        model.set_attn_implementation("eager")  # Whose mask is finite: rows that see nothing give no NaN.
        model.config.use_cache, names = False, ("input_ids", "attention_mask")
        try:
            with replacing(folder, None) as work, warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Those of exporters are about their own code.
                write_onnx(model.eval(), names, position_limit(model), work / "model.onnx", "token_embeddings", int8)
        except OSError as error:
            raise OSError(f"{folder} cannot be written ({error}); set XDG_CACHE_HOME to another folder") from error
    return folder / "model.onnx"


def trace(module: Any, names: tuple[str, ...], limit: int | None) -> Any:
    """The program of a module with inputs of these names, for any number of rows and up to ``limit`` tokens."""
    from torch.export import Dim, export

    longest = min(8, limit or 8)
    # Separate tensors: the same one under two names would become one input.
    example = {name: torch.ones(2, longest, dtype=torch.int64) for name in names}
    sizes = {0: Dim("batch", min=1), 1: Dim("length", min=1, max=limit)}
    with torch.no_grad():
        return export(module, (), example, dynamic_shapes=dict.fromkeys(example, sizes))


def write_onnx(module: Any, names: tuple[str, ...], limit: int | None, path: Path, output: str, int8: bool) -> None:
    """Write a module to a file in the format of ONNX.

    In int8, weights have a scale for each output, and their inputs are rounded as the file runs. Weights keep 7 bits:
    with 8, products overflow on processors without VNNI.

    Args:
        module: The module.
        names: Of its inputs.
        limit: Maximum number of tokens of a row.
        path: The file.
        output: Name of its first output.
        int8: Whether to convert weights to int8.
    """
    program = trace(module, names, limit)
    shapes = {name: {0: "batch", 1: "length"} for name in names}
    options: dict[str, Any] = {"input_names": names, "output_names": [output], "dynamic_shapes": shapes}
    written: Any = torch.onnx.export(program, dynamo=True, verbose=False, **options)
    # Else the quantization warns through the root logger, which it sets up for that.
    written.model.metadata_props["onnx.quant.pre_process"] = "onnxruntime.quant"
    size = sum(weights.nbytes for weights in program.state_dict.values())
    written.save(path, external_data=size > _LARGE)
    if int8:
        quantization: Any = import_module("onnxruntime.quantization")
        quantization.quantize_dynamic(path, path, per_channel=True, reduce_range=True)


# ------------------------------------------------------------------------------------------------------- the backend


def _open(choice: EngineChoice, threads: int) -> tuple[list[str], Any]:
    """The names of the inputs of a file, and the function from arrays, (texts, tokens), to vectors of all tokens."""
    if choice.name == "onnx":
        runtime: Any = import_module("onnxruntime")
        options = runtime.SessionOptions()
        options.intra_op_num_threads = threads
        session = runtime.InferenceSession(choice.file, options, providers=["CPUExecutionProvider"])
        return [port.name for port in session.get_inputs()], lambda inputs: session.run(None, inputs)[0]
    settings = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": threads}
    compiled: Any = import_module("openvino").compile_model(choice.file, "CPU", settings)
    return [port.get_any_name() for port in compiled.inputs], lambda inputs: compiled.infer_new_request(inputs)[0]


class Engine(Fused):
    """A transformer in an engine, text by text; but for larger batches, unless they are in int8.

    In int8, the engine rounds by the range of a whole batch, so that a vector would depend on the other texts.

    Args:
        network: A Hugging Face model or a minimal BERT, which is not modified.
        choice: The engine.
    """

    name: ClassVar[str] = "engine"
    how: ClassVar[str] = "in the engine"

    def __init__(self, network: Any, choice: EngineChoice) -> None:
        self._int8, package = choice.dtype == torch.int8, ENGINES[choice.name][0]
        if not self._int8:  # Which copies the weights.
            super().__init__(network, torch.float32)
        large = "each text alone" if self._int8 else f"more than {_MOST_TOKENS} tokens by {self.why}"
        self.why = f"{package} {version(package)} in {str(choice.dtype).removeprefix('torch.')}, {large}"
        # By process: in a forked one, threads are missing. What was opened stays, since there it would not end.
        self._open = cache(lambda _, threads: _open(choice, threads))

    def forward(self, batch: TokenBatch) -> Tensor:
        """Vectors of all tokens from the last layer. Shape: (tokens, dim)."""
        if not self._int8 and len(batch.values) > _MOST_TOKENS:
            return super().forward(batch)
        if batch.rows == 1:
            return self._run(batch.values)
        rows = batch.values.tensor_split(batch.offsets[1:-1])
        return torch.cat([self._run(row) for row in rows if len(row)])

    def _run(self, row: Tensor) -> Tensor:
        """Vectors of the tokens of a text. Shape: (tokens,) to (tokens, dim)."""
        # Calls at the same time take one thread each: eight callers, 0.82 of the time on Zen 4, with the same vectors.
        names, run = self._open(os.getpid(), 1 if len(running) > 1 else torch.get_num_threads())
        ids = row.numpy()[None]
        inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        return torch.from_numpy(run({name: inputs[name] for name in names})[0])
