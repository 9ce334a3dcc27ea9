"""Load models without transformers, and convert them to those of transformers on demand."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from sbert.backends import huggingface
from sbert.backends.bert import model as bert
from sbert.backends.bert.model import BertModel
from sbert.backends.bert.source import READ, Origin, contents
from sbert.backends.bert.tokenizer import PlainTokenizer, read_tokenizer
from sbert.storage.files import check_files, is_failure

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

_UNUSUAL = {
    *("adapter_config.json", "added_tokens.json", "chat_template.json", "additional_chat_templates"),
    *(name for name in huggingface.TOKENIZER_FILES if name not in READ),
}
_FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


def model(network: BertModel) -> PreTrainedModel:
    """The Hugging Face model with the modules of a minimal one."""
    with network.origin.restored() as folder:
        config = huggingface.load_config(folder, {})
    made = huggingface.rebuild(config, network.state_dict(), network.origin.dtype)
    made.name_or_path = made.config.name_or_path = str(network.origin.folder)
    bert.move(network, made)
    return made.to(network.device)


def tokenizer(plain: PlainTokenizer) -> PreTrainedTokenizerBase:
    """The tokenizer of transformers."""
    with plain.origin.restored() as folder:
        made = huggingface.load_tokenizer(folder, {})
    made.name_or_path = made.init_kwargs["name_or_path"] = str(plain.origin.folder)
    return made


def load(folder: Path, dtype: torch.dtype) -> tuple[BertModel, PlainTokenizer] | None:
    """The BERT in a folder and its tokenizer; None if anything is unusual, so that transformers loads it.

    Args:
        folder: Of the model.
        dtype: Of the weights.
    """
    try:
        return _load(folder, dtype)
    except BaseException as error:
        if not is_failure(error):
            raise
        return None


def _load(folder: Path, dtype: torch.dtype) -> tuple[BertModel, PlainTokenizer] | None:
    check_files(folder)
    names = os.listdir(folder)
    if _UNUSUAL.intersection(names) or any(name.endswith((".jinja", "tokenizer.model")) for name in names):
        return None
    files = contents(folder)
    values = json.loads(files["config.json"])
    config = bert.read_config(values)
    if config is None:
        return None
    origin = Origin(folder, files, dtype)
    plain = read_tokenizer(origin, values.get("tokenizer_class"))
    weights = _weights(folder / "model.safetensors", config.num_hidden_layers)
    if plain is None or weights is None:
        return None
    network = BertModel(config, origin)
    loaded = network.load({name: weight.to(dtype) for name, weight in weights.items()})
    return (network, plain) if loaded else None


def _weights(path: Path, layers: int) -> dict[str, Any] | None:
    """The tensors of a file if their number fits the number of layers."""
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        if (file.metadata() or {}).get("format") != "pt":
            return None
        names = set(file.keys()) - {"embeddings.position_ids"}  # In old files; positions from 0.
        if len(names) not in (16 * layers + 5, 16 * layers + 7):
            return None
        weights = {name: file.get_tensor(name) for name in names}
    return weights if all(weight.dtype in _FLOATS for weight in weights.values()) else None
