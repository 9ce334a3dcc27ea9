"""Load a BERT and its tokenizer without transformers, and convert them to those of transformers on demand.

Only what transformers would read in the very same way is loaded here; it loads everything else.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from sbert.backends import huggingface, minimal_bert
from sbert.backends.minimal_bert import BertModel
from sbert.storage.files import check_files, is_failure
from sbert.storage.weight_files import check_ids

if TYPE_CHECKING:
    import tokenizers
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

_READ = ("config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt")
_UNUSUAL = {
    *("adapter_config.json", "added_tokens.json", "chat_template.json", "additional_chat_templates"),
    *(name for name in huggingface.TOKENIZER_FILES if name not in _READ),
}
_FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
_SPECIAL = {
    name: f"[{name[:-6].upper()}]" for name in ("unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
}
# For these, transformers builds the steps of BERT from the vocabulary; for others it uses those of the file.
_REBUILT, _TAKEN = ("BertTokenizer", "BertTokenizerFast", None), ("TokenizersBackend", "PreTrainedTokenizerFast")
# What a tokenizer_config.json may say beside the names of special tokens: of BERT's steps, which are compared with
# the file's own; what changes no text's ids; and what changes none while it is empty.
_STEPS = {
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
}
_NOTES = {
    *("tokenizer_class", "name_or_path", "backend", "is_local", "local_files_only", "do_basic_tokenize"),
    *("model_max_length", "padding_side", "truncation_side", "truncation_strategy", "max_length", "stride"),
    *("pad_to_multiple_of", "pad_token_type_id", "clean_up_tokenization_spaces", "added_tokens_decoder"),
    *("special_tokens_map_file", "tokenizer_file", "model_input_names"),
}
_EMPTY = {"never_split", "extra_special_tokens", "additional_special_tokens", "full_tokenizer_file"}


@dataclass(frozen=True)
class Origin:
    """Folder of a model and the contents of its small files when it was loaded: the folder may not exist later.

    Args:
        folder: Of the model.
        files: Contents by name.
        dtype: Of the weights, as they were loaded.
    """

    folder: Path
    files: dict[str, bytes]
    dtype: torch.dtype

    @contextmanager
    def restored(self) -> Iterator[Path]:
        """A temporary folder with these files: the folder of the model may be replaced at any time."""
        with tempfile.TemporaryDirectory() as name:
            for file, content in self.files.items():
                (Path(name) / file).write_bytes(content)
            yield Path(name)


@dataclass(frozen=True, eq=False)
class PlainTokenizer:
    """The interface of a tokenizer that the library needs, with the names of transformers."""

    backend_tokenizer: tokenizers.Tokenizer
    pad_token_id: int
    model_max_length: Any
    truncation_side: str
    origin: Origin
    is_fast: bool = True

    def __len__(self) -> int:
        return int(self.backend_tokenizer.get_vocab_size())


def convert_model(network: BertModel) -> PreTrainedModel:
    """The Hugging Face model with the modules of a minimal one."""
    origin: Origin = network.origin
    with origin.restored() as folder:
        config = huggingface.load_config(folder, {})
    model = huggingface.rebuild(config, network.state_dict(), origin.dtype)
    model.name_or_path = model.config.name_or_path = str(origin.folder)
    minimal_bert.move(network, model)
    return model.to(network.device)


def convert_tokenizer(plain: PlainTokenizer) -> PreTrainedTokenizerBase:
    """The tokenizer of transformers."""
    with plain.origin.restored() as folder:
        tokenizer = huggingface.load_tokenizer(folder, {})
    tokenizer.name_or_path = tokenizer.init_kwargs["name_or_path"] = str(plain.origin.folder)
    return tokenizer


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
    files = {name: (folder / name).read_bytes() for name in _READ if (folder / name).is_file()}
    values = json.loads(files["config.json"])
    config = minimal_bert.read_config(values)
    if config is None:
        return None
    origin = Origin(folder, files, dtype)
    plain = _read_tokenizer(origin, values.get("tokenizer_class"))
    weights = _read_weights(folder / "model.safetensors", config.num_hidden_layers)
    if plain is None or weights is None:
        return None
    network = BertModel(config, origin)
    network.load_state_dict({name: weight.to(dtype) for name, weight in weights.items()}, assign=True)
    return network, plain


def _read_weights(path: Path, layers: int) -> dict[str, Tensor] | None:
    """The tensors of a file if their number fits the number of layers."""
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        if (file.metadata() or {}).get("format") != "pt":
            return None
        names = set(file.keys()) - {"embeddings.position_ids"}  # In old files; positions from 0.
        if len(names) != 16 * layers + 7:
            return None
        weights = {name: file.get_tensor(name) for name in names}
    return weights if {weight.dtype for weight in weights.values()} <= set(_FLOATS) else None


def _read_tokenizer(origin: Origin, named: str | None) -> PlainTokenizer | None:
    """The tokenizer of a folder with a BERT; None if transformers might modify it.

    Args:
        origin: The folder.
        named: The tokenizer's class, as config.json has it.
    """
    from tokenizers import Tokenizer

    files = origin.files
    config = json.loads(files.get("tokenizer_config.json", b"{}"))
    kind = config.get("tokenizer_class") or named
    special = _special_tokens(config, json.loads(files.get("special_tokens_map.json", b"{}")), kind in _REBUILT)
    if special is None or kind not in (*_REBUILT, *_TAKEN) or not _is_usual(config):
        return None
    check_ids(origin.folder / "tokenizer.json", files["tokenizer.json"])
    tokenizer = Tokenizer.from_buffer(files["tokenizer.json"])
    known = tokenizer.get_added_tokens_decoder()
    stated = config.get("added_tokens_decoder")
    if stated is not None and stated != {str(number): token.__getstate__() for number, token in known.items()}:
        return None
    special.setdefault("pad_token", (tokenizer.padding or {}).get("pad_token"))
    numbers = {token.content: number for number, token in known.items() if token.special}
    if not numbers.keys() >= set(special.values()):  # transformers would add it.
        return None
    if tokenizer.post_processor is None or (kind in _REBUILT and not _is_berts(tokenizer, config, special, numbers)):
        return None
    side = config.get("truncation_side", (tokenizer.truncation or {}).get("direction", "right"))
    limit = config.get("model_max_length")
    return PlainTokenizer(tokenizer, numbers[special["pad_token"]], 10**30 if limit is None else limit, side, origin)


def _is_usual(config: dict[str, Any]) -> bool:
    """Whether all keys of a tokenizer_config.json are known to have no effect."""
    if any(map(config.get, _EMPTY)) or not isinstance(config.get("model_input_names", []), list):
        return False
    sides = {config.get("padding_side", "right"), config.get("truncation_side", "right")}
    return set(config) <= {*_SPECIAL, *_STEPS, *_NOTES, *_EMPTY} and sides <= {"left", "right"}


def _special_tokens(config: dict[str, Any], mapped: dict[str, Any], rebuilt: bool) -> dict[str, Any] | None:
    """The special tokens by name, as strings."""
    tokens = {**(_SPECIAL if rebuilt else {}), **{name: config[name] for name in _SPECIAL if name in config}}
    if "added_tokens_decoder" not in config:  # Otherwise special_tokens_map.json is not read.
        if not set(mapped) <= set(_SPECIAL):
            return None
        tokens.update({name: value["content"] if isinstance(value, dict) else value for name, value in mapped.items()})
    return tokens if set(map(type, tokens.values())) <= {str} else None


def _is_berts(
    tokenizer: tokenizers.Tokenizer, config: dict[str, Any], special: dict[str, str], numbers: dict[str, int]
) -> bool:
    """Whether the steps of a tokenizer are those that the class of BERT would build from its vocabulary."""
    from tokenizers import models, normalizers, pre_tokenizers, processors

    model = tokenizer.model
    if type(model) is not models.WordPiece or model.unk_token != special["unk_token"]:
        return False
    if (model.continuing_subword_prefix, model.max_input_chars_per_word) != ("##", 100):
        return False
    added = tokenizer.get_added_tokens_decoder()
    if [model.token_to_id(token.content) for token in added.values()] != list(added):
        return False
    options = {theirs: config[ours] for ours, theirs in _STEPS.items() if ours in config}
    first, last = special["cls_token"], special["sep_token"]
    built: tuple[Any, ...] = (
        normalizers.BertNormalizer(**options),
        pre_tokenizers.BertPreTokenizer(),
        processors.TemplateProcessing(
            single=f"{first}:0 $A:0 {last}:0",
            pair=f"{first}:0 $A:0 {last}:0 $B:1 {last}:1",
            special_tokens=[(first, numbers[first]), (last, numbers[last])],
        ),
    )
    steps = tokenizer.normalizer, tokenizer.pre_tokenizer, tokenizer.post_processor
    return all(
        type(a) is type(b) and json.loads(a.__getstate__()) == json.loads(b.__getstate__())
        for a, b in zip(built, steps, strict=True)
    )
