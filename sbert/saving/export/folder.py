"""Write an encoder to a folder in the format of another program, with a README.md, and compare it with ``encode``."""

from __future__ import annotations

import copy
import os
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from sbert.backends import trace, write_onnx
from sbert.inputs.arguments import check_choice
from sbert.inputs.extras import require
from sbert.inputs.prompts import default_prompt
from sbert.modules import Normalize
from sbert.saving.export.traceable import PaddedEncoder, why_not
from sbert.saving.model_card import fill_template
from sbert.saving.verification import COMPARED_TEXTS, compare_int8
from sbert.storage.atomic import replacing
from sbert.storage.files import is_failure, one_line
from sbert.storage.folders import check_own, find_foreign

_Predict = Callable[[dict[str, npt.NDArray[np.int64]]], Any]
_OUTPUT, _TOKENIZER, _CARD = "sentence_embedding", "tokenizer.json", "README.md"
# Largest accepted difference from ``encode``.
_TOLERANCE = 1e-5


class ExportFormat(NamedTuple):
    """A file format.

    Args:
        file: Name of its main file.
        packages: The packages that write it and, as the last one, run it.
        write: Called with the encoder, the names of its inputs, its limit of tokens, the path, the name of the output,
            and whether to convert weights to int8.
        load: The model in a file, as a function of named arrays.
        recipe: Python code that computes ``vectors`` from ``inputs``, a dict of lists of lists by names.
    """

    file: str
    packages: tuple[str, ...]
    write: Callable[[PaddedEncoder, tuple[str, ...], int | None, Path, str, bool], None]
    load: Callable[[Path], _Predict]
    recipe: str


# -------------------------------------------------------------------------------------------------------- formats


def _load_onnx(path: Path) -> _Predict:
    session: Any = import_module("onnxruntime").InferenceSession(path)
    return lambda inputs: session.run(None, inputs)[0]


def _load_program(path: Path) -> _Predict:
    module = torch.export.load(path).module()
    return lambda inputs: module(**{name: torch.from_numpy(values) for name, values in inputs.items()}).numpy()


EXPORT_FORMATS: dict[str, ExportFormat] = {
    "onnx": ExportFormat(
        "model.onnx",
        ("onnx", "onnxscript", "onnxruntime"),
        write_onnx,
        _load_onnx,
        'vectors = onnxruntime.InferenceSession("model.onnx").run(None, inputs)[0]',
    ),
    "torch-export": ExportFormat(
        "model.pt2",
        ("torch",),
        lambda encoder, names, limit, path, *_: torch.export.save(trace(encoder, names, limit), path),
        _load_program,
        "inputs = {name: torch.tensor(rows) for name, rows in inputs.items()}\n"
        'vectors = torch.export.load("model.pt2").module()(**inputs).numpy()',
    ),
}
_MODEL_FILES = tuple(target.file for target in EXPORT_FORMATS.values())
_FILES = {*_MODEL_FILES, "model.onnx.data", _TOKENIZER, _CARD}

# -------------------------------------------------------------------------------------------------------- export

# Of a tokenizer's encoding, the values of each input.
_VALUES = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}
_BATCHES = ((0, 1), (1, 4), (4, 19), (19, 20))


def export(model: nn.Sequential, path: str | os.PathLike[str], format: str, dtype: str = "float32") -> float:  # noqa: A002
    """Write an encoder to a folder that other programs run: tokens in, vectors out, float32.

    The folder has the model, its tokenizer.json, and a README.md with the lines that run it, the prompts and the limit
    of length. It is complete or absent: before it appears, what was written is read again and compared with ``encode``
    on 20 texts.

    Args:
        model: The ``SentenceEncoder``, which stays as it is.
        path: The folder. Its parent folders are created. An earlier export there is replaced.
        format: ``"onnx"`` or ``"torch-export"``.
        dtype: ``"float32"``; or, for ``"onnx"``, ``"int8"``, whose vectors differ: see ``SentenceEncoder.check_int8``.

    Returns:
        The largest difference of one number from the vectors of ``encode``.

    Raises:
        ValueError: If the model cannot be exported (the message says why), or not in int8 without harm, or the folder
            has other files.
        ImportError: If a package is not installed. The message says how to install it.
        RuntimeError: If the exporter fails, or the difference exceeds 1e-5 (times the largest number, if above 1) in
            float32.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from sbert import SentenceEncoder
        >>> from sbert.saving.export import export
        >>> model = SentenceEncoder()
        >>> with tempfile.TemporaryDirectory() as parent:
        ...     difference = export(model, f"{parent}/model", "torch-export")
        ...     sorted(file.name for file in Path(parent, "model").iterdir())
        ['README.md', 'model.pt2', 'tokenizer.json']
        >>> difference < 1e-5
        True
    """
    check_choice("format", format, tuple(EXPORT_FORMATS))
    check_choice("dtype", dtype, ("float32", "int8") if format == "onnx" else ("float32",))
    if getattr(model, "is_cross_encoder", True):
        raise TypeError(f"{type(model).__name__} cannot be exported; pass a SentenceEncoder")
    if reason := why_not(model):
        raise ValueError(f"the model cannot be exported to {format}: {reason}")
    target = EXPORT_FORMATS[format]
    for package in target.packages:
        with require(f"export to {format}", package, format):
            import_module(package)
    plain: Any = copy.deepcopy(model).to("cpu", torch.float32)
    plain[0].engine = None
    with replacing(Path(path), _check) as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Those of exporters are about their own code.
        expected = plain.encode(COMPARED_TEXTS, prompt="", on_truncate="ignore", show_progress_bar=False)
        encoder, tokenizer = PaddedEncoder(plain), _configure_tokenizer(plain[0])
        tokenizer.save(str(folder / _TOKENIZER))
        try:
            target.write(encoder, encoder.inputs, plain.max_seq_length, folder / target.file, _OUTPUT, dtype == "int8")
            vectors = _encode(target.load(folder / target.file), tokenizer, encoder.inputs)
        except Exception as error:
            if not is_failure(error):
                raise
            message = f"{format} does not take this model ({one_line(error)}); try another format"
            raise RuntimeError(message) from error
        difference = float(np.abs(vectors - expected).max())
        compared = f"{difference:.1e} from those of `encode`"
        if dtype == "int8":
            compared += f"; the rank correlation of their similarities is {compare_int8(vectors, expected):.3f}"
        elif not difference <= _TOLERANCE * max(1.0, float(np.abs(expected).max())):
            problem = f"the vectors of the exported model differ by up to {difference:.1e} from those of encode"
            raise RuntimeError(
                f"{problem}, where {_TOLERANCE:.0e} is allowed, so nothing was written; try another format"
            )
        (folder / _CARD).write_text(_readme(plain, target, encoder.inputs, compared), encoding="utf-8")
    return difference


def _configure_tokenizer(transformer: Any) -> Any:
    """The private tokenizer of a Transformer, which from now on truncates and pads as that does."""
    tokenizer: Any = transformer.tokenizer_copy().tokenizer
    if transformer.max_seq_length is not None:
        tokenizer.enable_truncation(transformer.max_seq_length, direction=transformer.truncation_side)
    padding, vocab = getattr(transformer.network.config, "pad_token_id", None) or 0, transformer.vocab_size
    padding = padding if vocab is None or padding < vocab else 0
    tokenizer.enable_padding(direction="right", pad_id=padding, pad_token=tokenizer.id_to_token(padding) or "[PAD]")
    return tokenizer


def _encode(predict: _Predict, tokenizer: Any, inputs: tuple[str, ...]) -> npt.NDArray[np.float32]:
    """The vectors of all texts, in batches of different shapes. Shape: (texts, dim)."""
    parts = []
    for start, end in _BATCHES:
        encodings = tokenizer.encode_batch(COMPARED_TEXTS[start:end])
        values = {name: [getattr(encoding, _VALUES[name]) for encoding in encodings] for name in inputs}
        parts.append(predict({name: np.array(rows, np.int64) for name, rows in values.items()}))
    return np.concatenate(parts)


def _check(target: Path) -> None:
    """Raise a ValueError if the folder has files that no export wrote."""

    def find(folder: Path) -> str | None:
        exported = any((folder / name).is_file() for name in _MODEL_FILES)
        return find_foreign(folder, lambda name: exported and name in _FILES)

    check_own(target, "an exported model", find)


def _readme(model: Any, target: ExportFormat, inputs: Sequence[str], compared: str) -> str:
    """The README.md of a folder; ``compared`` says how far its vectors are from those of ``encode``."""
    default = default_prompt(model)
    prompts = "".join(f"| {name} | {text!r} |\n" for name, text in model.prompts.items() if text)
    first = f"\nBy default, {default!r} stands before every text." if default else ""
    return fill_template(
        "export.md",
        title=model.name_or_path.rstrip("/").rpartition("/")[2] or "Sentence encoder",
        file=target.file,
        dim=model.get_sentence_embedding_dimension(),
        length=" and length 1" if isinstance(model[-1], Normalize) and model.truncate_dim is None else "",
        limit=model.max_seq_length or "any number of",
        version=version("sbert"),
        compared=compared,
        names=", ".join(f"`{name}`" for name in inputs),
        output=_OUTPUT,
        package=target.packages[-1],
        texts=[default + text for text in ("A cat sleeps.", "Taxes go up.")],
        values="".join(f'    "{name}": [t.{_VALUES[name]} for t in tokens],\n' for name in inputs),
        recipe=target.recipe,
        prompts=f"Put before a text:\n\n| name | prompt |\n|---|---|\n{prompts}{first}" if prompts else "None.",
    )
