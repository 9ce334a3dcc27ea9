"""Load a tokenizer.json without transformers, if transformers would not modify it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sbert.backends.bert.source import Origin
from sbert.storage.weight_files import check_ids

if TYPE_CHECKING:
    import tokenizers

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


def read_tokenizer(origin: Origin, named: str | None) -> PlainTokenizer | None:
    """The tokenizer of a folder with a BERT; None if transformers might modify it.

    Args:
        origin: The folder.
        named: The tokenizer's class, as config.json has it.
    """
    from tokenizers import Tokenizer

    files = origin.files
    config = json.loads(files.get("tokenizer_config.json", b"{}"))
    kind = config.get("tokenizer_class")
    kind = named if kind is None else kind
    special = _special_tokens(config, json.loads(files.get("special_tokens_map.json", b"{}")), kind in _REBUILT)
    if special is None or kind not in (*_REBUILT, *_TAKEN) or not _usual(config):
        return None
    check_ids(origin.folder / "tokenizer.json", files["tokenizer.json"])
    tokenizer = Tokenizer.from_buffer(files["tokenizer.json"])
    known = tokenizer.get_added_tokens_decoder()
    stated = config.get("added_tokens_decoder")
    if stated is not None and stated != {str(number): token.__getstate__() for number, token in known.items()}:
        return None
    padding, truncation = tokenizer.padding or {}, tokenizer.truncation or {}
    special.setdefault("pad_token", padding.get("pad_token"))
    numbers = {token.content: number for number, token in known.items() if token.special}
    if not all(token in numbers for token in special.values()):  # transformers would add it.
        return None
    if tokenizer.post_processor is None or (kind in _REBUILT and not _is_berts(tokenizer, config, special)):
        return None
    side = config.get("truncation_side", truncation.get("direction", "right"))
    limit = config.get("model_max_length")
    return PlainTokenizer(tokenizer, numbers[special["pad_token"]], 10**30 if limit is None else limit, side, origin)


def _usual(config: dict[str, Any]) -> bool:
    """Whether all keys of a tokenizer_config.json are known to have no effect."""
    if any(config.get(key) for key in _EMPTY) or not isinstance(config.get("model_input_names", []), list):
        return False
    sides = (config.get("padding_side", "right"), config.get("truncation_side", "right"))
    return set(config) <= {*_SPECIAL, *_STEPS, *_NOTES, *_EMPTY} and all(side in ("left", "right") for side in sides)


def _special_tokens(config: dict[str, Any], mapped: dict[str, Any], rebuilt: bool) -> dict[str, Any] | None:
    """The special tokens by name, as strings."""
    given = {name: value for name, value in config.items() if name in _SPECIAL}
    if "added_tokens_decoder" not in config:  # Otherwise special_tokens_map.json is not read.
        if not set(mapped) <= set(_SPECIAL):
            return None
        given.update({name: value["content"] if isinstance(value, dict) else value for name, value in mapped.items()})
    if not all(isinstance(value, str) for value in given.values()):
        return None
    return {**(_SPECIAL if rebuilt else {}), **given}


def _is_berts(tokenizer: tokenizers.Tokenizer, config: dict[str, Any], special: dict[str, str]) -> bool:
    """Whether the steps of a tokenizer are those that the class of BERT would build from its vocabulary."""
    from tokenizers import models, normalizers, pre_tokenizers, processors

    model = tokenizer.model
    if type(model) is not models.WordPiece or model.unk_token != special["unk_token"]:
        return False
    if (model.continuing_subword_prefix, model.max_input_chars_per_word) != ("##", 100):
        return False
    numbers = {token.content: number for number, token in tokenizer.get_added_tokens_decoder().items()}
    if any(model.token_to_id(token) != number for token, number in numbers.items()):
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
    found = tokenizer.normalizer, tokenizer.pre_tokenizer, tokenizer.post_processor
    return all(
        type(a) is type(b) and json.loads(a.__getstate__()) == json.loads(b.__getstate__())
        for a, b in zip(built, found, strict=True)
    )
