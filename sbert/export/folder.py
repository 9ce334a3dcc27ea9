"""Write an encoder to a folder in the format of another program, and compare it with ``encode``."""

from __future__ import annotations

import copy
import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from sbert.encoder import SentenceEncoder
from sbert.export import gguf, readme
from sbert.export.formats import FORMATS, Run, traced
from sbert.export.padded import PaddedEncoder, why_not
from sbert.inputs.arguments import check_choice
from sbert.inputs.extras import missing
from sbert.storage.atomic import replacing
from sbert.storage.files import is_failure, one_line
from sbert.storage.folders import check_own, foreign

NAMES: tuple[str, ...] = (*FORMATS, "gguf")
TOLERANCE = 1e-5
_TOKENIZER, _CARD = "tokenizer.json", "README.md"
_MODEL_FILES = (*(chosen.file for chosen in FORMATS.values()), gguf.FILE)
_FILES = {*_MODEL_FILES, "model.onnx.data", "model.bin", _TOKENIZER, _CARD}

_WORDS = (
    "The night train to Čadca left at ten past nine, and no one on platform 3 had told the baker's DAUGHTER that her"
    " trunk, with two hundred letters and a clock, was still in the waiting room; 東京 was far away. Why worry?"
).split()
_COUNTS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 17, 20, 24, 28, 33, 40, 60, 600)
TEXTS = [" ".join((_WORDS * 20)[3 * i :][:count]) for i, count in enumerate(_COUNTS)]
_BATCHES = ((0, 1), (1, 4), (4, 19), (19, 20))


def export(
    model: SentenceEncoder,
    path: str | os.PathLike[str],
    format: str,  # noqa: A002
    *,
    llama_cpp: str | os.PathLike[str] | None = None,
) -> float | None:
    """Write an encoder to a folder that other programs run: tokens in, vectors out, float32.

    The folder has the model, its tokenizer.json, and a README.md with the lines that run it, the prompts and the limit
    of length. It is complete or absent: before it appears, what was written is read again and compared with ``encode``
    on 20 texts.

    Args:
        model: The encoder, which stays as it is.
        path: The folder. Its parent folders are created. An earlier export there is replaced.
        format: ``"onnx"``, ``"openvino"``, ``"torch-export"`` or ``"gguf"``.
        llama_cpp: For GGUF: folder of llama.cpp. Default: that which the variable ``LLAMA_CPP`` names.

    Returns:
        The largest difference of one number from the vectors of ``encode``; None for GGUF, which is not compared.

    Raises:
        ValueError: If the model cannot be exported (the message says why), or the folder has other files.
        ImportError: If a package is not installed. The message says how to install it.
        FileNotFoundError: If there is no llama.cpp.
        RuntimeError: If the exporter fails, or the difference exceeds 1e-5 (times the largest number, if above 1).

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as parent:
        ...     difference = export(model, f"{parent}/minilm", "torch-export")
        ...     sorted(file.name for file in Path(parent, "minilm").iterdir())
        ['README.md', 'model.pt2', 'tokenizer.json']
        >>> difference < 1e-5
        True
    """
    check_choice("format", format, NAMES)
    if not isinstance(model, SentenceEncoder):
        raise TypeError(f"{type(model).__name__} cannot be exported; pass a SentenceEncoder")
    reason = why_not(model) or (gguf.why_not(model) if format == "gguf" else None)
    if reason:
        raise ValueError(f"the model cannot be exported to {format}: {reason}")
    script = gguf.converter(llama_cpp) if format == "gguf" else None
    for package in FORMATS[format].packages if format in FORMATS else ():
        if find_spec(package) is None:
            raise missing(f"export to {format}", package, format)
    plain = copy.deepcopy(model).to("cpu", torch.float32)
    with replacing(Path(path), _check) as folder, _quiet():
        if script is not None:
            gguf.write(plain, script, folder / gguf.FILE)
            file, use, difference = gguf.FILE, readme.gguf_use(plain), None
        else:
            file, use, difference = _write(plain, folder, format)
        (folder / _CARD).write_text(readme.readme(model, file, use, difference), encoding="utf-8")
    return difference


def _write(model: SentenceEncoder, folder: Path, name: str) -> tuple[str, str, float]:
    """Write model and tokenizer; return the name of the file, how to run it, and the largest difference."""
    chosen = FORMATS[name]
    expected = model.encode(TEXTS, prompt="", on_truncate="ignore", show_progress_bar=False)
    encoder = PaddedEncoder(model)
    tokenizer = _tokenizer(model[0])
    tokenizer.save(str(folder / _TOKENIZER))
    try:
        chosen.write(traced(encoder, model.max_seq_length), encoder.inputs, folder / chosen.file)
        found = _vectors(chosen.load(folder / chosen.file), tokenizer, encoder.inputs)
    except Exception as error:
        if not is_failure(error):
            raise
        raise RuntimeError(f"{name} does not take this model ({one_line(error)}); try another format") from error
    difference = float(np.abs(found - expected).max())
    if not difference <= TOLERANCE * max(1.0, float(np.abs(expected).max())):
        raise RuntimeError(
            f"the vectors of the exported model differ by up to {difference:.1e} from those of encode, where"
            f" {TOLERANCE:.0e} is allowed, so nothing was written; try another format"
        )
    return chosen.file, readme.python_use(model, chosen, encoder.inputs), difference


def _tokenizer(transformer: Any) -> Any:
    """A copy of the tokenizer of a Transformer, which converts to lower case, truncates and pads as that does."""
    from tokenizers import Tokenizer, normalizers

    made: Any = Tokenizer.from_str(transformer.tokenizer.backend_tokenizer.to_str())
    if transformer.lower_case:
        steps = [normalizers.Lowercase(), *([] if made.normalizer is None else [made.normalizer])]
        made.normalizer = normalizers.Sequence(steps)
    made.no_truncation()
    if transformer.max_seq_length is not None:
        made.enable_truncation(transformer.max_seq_length, direction=transformer.truncation_side)
    padding, vocab = getattr(transformer.network.config, "pad_token_id", None) or 0, transformer.vocab_size
    padding = padding if vocab is None or padding < vocab else 0
    made.enable_padding(direction="right", pad_id=padding, pad_token=made.id_to_token(padding) or "[PAD]")
    return made


def _vectors(run: Run, tokenizer: Any, inputs: tuple[str, ...]) -> npt.NDArray[np.float32]:
    """The vectors of all texts, in batches of different shapes. Shape: (texts, dim)."""
    rows = []
    for start, end in _BATCHES:
        tokens = tokenizer.encode_batch(TEXTS[start:end])
        listed = {name: [getattr(each, readme.VALUES[name]) for each in tokens] for name in inputs}
        rows.append(run({name: np.array(values, np.int64) for name, values in listed.items()}))
    return np.concatenate(rows)


def _check(target: Path) -> None:
    """Raise a ValueError if the folder has files that no export wrote."""

    def other(folder: Path) -> str | None:
        exported = any((folder / name).is_file() for name in _MODEL_FILES)
        return foreign(folder, lambda name: exported and name in _FILES)

    check_own(target, "an exported model", other)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the warnings and messages of exporters, which speak of their own code."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
