"""Write an encoder to a folder in the format of another program, with a README.md, and compare it with ``encode``."""

from __future__ import annotations

import copy
import logging
import os
import shlex
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from sbert.inputs.arguments import check_choice
from sbert.inputs.extras import missing
from sbert.inputs.prompts import default_prompt
from sbert.modules import Normalize
from sbert.saving.export import formats
from sbert.saving.export.padded import PaddedEncoder, why_not
from sbert.saving.model_card import fill_template
from sbert.storage.atomic import replacing
from sbert.storage.files import is_failure, one_line
from sbert.storage.folders import check_own, find_foreign

NAMES: tuple[str, ...] = (*formats.FORMATS, "gguf")
TOLERANCE = 1e-5
_TOKENIZER, _CARD = "tokenizer.json", "README.md"
_MODEL_FILES = (*(chosen.file for chosen in formats.FORMATS.values()), formats.GGUF_FILE)
_FILES = {*_MODEL_FILES, "model.onnx.data", "model.bin", _TOKENIZER, _CARD}

# Of a tokenizer's encoding, the values of each input.
_VALUES = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}
_WORDS = (
    "The night train to Čadca left at ten past nine, and no one on platform 3 had told the baker's DAUGHTER that her"
    " trunk, with two hundred letters and a clock, was still in the waiting room; 東京 was far away. Why worry?"
).split()
_COUNTS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 17, 20, 24, 28, 33, 40, 60, 600)
TEXTS = [" ".join((_WORDS * 20)[3 * i :][:count]) for i, count in enumerate(_COUNTS)]
_BATCHES = ((0, 1), (1, 4), (4, 19), (19, 20))


def export(
    model: nn.Sequential,
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
        model: The ``SentenceEncoder``, which stays as it is.
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
    if getattr(model, "is_cross_encoder", True):
        raise TypeError(f"{type(model).__name__} cannot be exported; pass a SentenceEncoder")
    reason = why_not(model) or (formats.why_no_gguf(model) if format == "gguf" else None)
    if reason:
        raise ValueError(f"the model cannot be exported to {format}: {reason}")
    script = formats.find_converter(llama_cpp) if format == "gguf" else None
    for package in formats.FORMATS[format].packages if format in formats.FORMATS else ():
        if find_spec(package) is None:
            raise missing(f"export to {format}", package, format)
    plain = copy.deepcopy(model).to("cpu", torch.float32)
    with replacing(Path(path), _check) as folder, _quiet():
        if script is None:
            file, use, difference = _write(plain, folder, format)
        else:
            formats.write_gguf(plain, script, folder / formats.GGUF_FILE)
            file, use, difference = formats.GGUF_FILE, _gguf_use(plain), None
        (folder / _CARD).write_text(_readme(plain, file, use, difference), encoding="utf-8")
    return difference


def _write(model: Any, folder: Path, name: str) -> tuple[str, str, float]:
    """Write model and tokenizer; return the name of the file, how to run it, and the largest difference."""
    chosen = formats.FORMATS[name]
    expected = model.encode(TEXTS, prompt="", on_truncate="ignore", show_progress_bar=False)
    encoder = PaddedEncoder(model)
    tokenizer = _copy_tokenizer(model[0])
    tokenizer.save(str(folder / _TOKENIZER))
    try:
        chosen.write(formats.trace(encoder, model.max_seq_length), encoder.inputs, folder / chosen.file)
        vectors = _encode(chosen.load(folder / chosen.file), tokenizer, encoder.inputs)
    except Exception as error:
        if not is_failure(error):
            raise
        raise RuntimeError(f"{name} does not take this model ({one_line(error)}); try another format") from error
    difference = float(np.abs(vectors - expected).max())
    if not difference <= TOLERANCE * max(1.0, float(np.abs(expected).max())):
        raise RuntimeError(
            f"the vectors of the exported model differ by up to {difference:.1e} from those of encode, where"
            f" {TOLERANCE:.0e} is allowed, so nothing was written; try another format"
        )
    return chosen.file, _python_use(model, chosen, encoder.inputs), difference


def _copy_tokenizer(transformer: Any) -> Any:
    """A copy of the tokenizer of a Transformer, which converts to lower case, truncates and pads as that does."""
    from tokenizers import Tokenizer, normalizers

    tokenizer: Any = Tokenizer.from_str(transformer.tokenizer.backend_tokenizer.to_str())
    if transformer.lower_case:
        steps = [normalizers.Lowercase(), *([] if tokenizer.normalizer is None else [tokenizer.normalizer])]
        tokenizer.normalizer = normalizers.Sequence(steps)
    tokenizer.no_truncation()
    if transformer.max_seq_length is not None:
        tokenizer.enable_truncation(transformer.max_seq_length, direction=transformer.truncation_side)
    padding, vocab = getattr(transformer.network.config, "pad_token_id", None) or 0, transformer.vocab_size
    padding = padding if vocab is None or padding < vocab else 0
    tokenizer.enable_padding(direction="right", pad_id=padding, pad_token=tokenizer.id_to_token(padding) or "[PAD]")
    return tokenizer


def _encode(run: formats.Run, tokenizer: Any, inputs: tuple[str, ...]) -> npt.NDArray[np.float32]:
    """The vectors of all texts, in batches of different shapes. Shape: (texts, dim)."""
    rows = []
    for start, end in _BATCHES:
        tokens = tokenizer.encode_batch(TEXTS[start:end])
        listed = {name: [getattr(each, _VALUES[name]) for each in tokens] for name in inputs}
        rows.append(run({name: np.array(values, np.int64) for name, values in listed.items()}))
    return np.concatenate(rows)


def _check(target: Path) -> None:
    """Raise a ValueError if the folder has files that no export wrote."""

    def other(folder: Path) -> str | None:
        exported = any((folder / name).is_file() for name in _MODEL_FILES)
        return find_foreign(folder, lambda name: exported and name in _FILES)

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


# -------------------------------------------------------------------------------------------------------- its README


def _readme(model: Any, file: str, use: str, difference: float | None) -> str:
    """The README.md of a folder; ``difference`` is the largest one from ``encode``, if they were compared."""
    prompts = "".join(f"| {name} | {text!r} |\n" for name, text in model.prompts.items() if text)
    default = f"\nBy default, {default_prompt(model)!r} stands before every text." if default_prompt(model) else ""
    compared = "not compared with it"
    if difference is not None:
        compared = f"on 20 texts, its vectors differ by at most {difference:.1e} from those of `encode`"
    return fill_template(
        "export.md",
        title=model.name_or_path.rstrip("/").rpartition("/")[2] or "Sentence encoder",
        file=file,
        dim=model.get_sentence_embedding_dimension(),
        length=" and length 1" if _is_normalized(model) else "",
        limit=model.max_seq_length or "any number of",
        version=version("sbert"),
        compared=compared,
        use=use,
        prompts=f"Put before a text:\n\n| name | prompt |\n|---|---|\n{prompts}{default}" if prompts else "None.",
    )


def _is_normalized(model: Any) -> bool:
    return isinstance(model[-1], Normalize) and model.truncate_dim is None


def _python_use(model: Any, chosen: formats.Format, inputs: Sequence[str]) -> str:
    values = {name: chosen.value.format(f"[t.{_VALUES[name]} for t in tokens]") for name in inputs}
    use = fill_template(
        "export_python.md",
        names=", ".join(f"`{name}`" for name in inputs),
        output=formats.OUTPUT,
        dim=model.get_sentence_embedding_dimension(),
        package=chosen.packages[-1],
        texts=[default_prompt(model) + text for text in ("A cat sleeps.", "Taxes go up.")],
        values="".join(f'    "{name}": {value},\n' for name, value in values.items()),
        recipe=chosen.recipe,
    )
    return f"{use}\n{chosen.note}".strip()


def _gguf_use(model: Any) -> str:
    text = shlex.quote(f"{default_prompt(model)}A cat sleeps.")
    return fill_template("export_gguf.md", normalize=2 if _is_normalized(model) else -1, text=text).strip()
