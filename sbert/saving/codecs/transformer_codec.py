"""Codec of Transformer: the settings of sentence-transformers, a model of transformers, perhaps with an adapter."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from sbert.backends import huggingface, load_minimal_bert, position_limit
from sbert.inputs.arguments import warn
from sbert.modules import Transformer
from sbert.saving.codecs.codec import Arguments, Codec, ReadOptions
from sbert.saving.format import TRANSFORMER_CONFIGS
from sbert.storage.files import JsonObject, UnreadableError, read_object, reading, write_json
from sbert.storage.folders import read_whole
from sbert.storage.weight_files import half_precision_of

# Arguments that a folder may pass to transformers, by their new and old names; None: any key of the configuration.
# The dtype is the caller's choice. Nothing that could download or run code is passed on.
_ARGUMENTS: dict[str, tuple[str, set[str] | None]] = {
    "model_kwargs": ("model_args", {"attn_implementation"}),
    "processor_kwargs": (
        "tokenizer_args",
        {"model_max_length", "padding_side", "truncation_side", "do_lower_case", "add_eos_token"},
    ),
    "config_kwargs": ("config_args", None),
}
_SILENTLY_IGNORED = ("trust_remote_code", "torch_dtype", "dtype")

# Keys whose values must be one of these: plain text through a plain forward pass.
_TEXT = {"text": {"method": "forward", "method_output_name": "last_hidden_state"}}
_MASKED, _LOGITS = "fill-mask", {"text": {"method": "forward", "method_output_name": "logits"}}
_EXPECTED: dict[str, tuple[Any, ...]] = {
    "transformer_task": ("feature-extraction", _MASKED),
    "modality_config": (_TEXT, _LOGITS),
    "module_output_name": ("token_embeddings",),
    "query_expansion": (False, {}),
}
_OF_ROLES = ("query_length", "document_length", "query_expansion")
_IGNORED = ("processing_kwargs", "query_length", "document_length")
_KNOWN = {
    *(*_EXPECTED, *_IGNORED, "max_seq_length", "do_lower_case", "unpad_inputs"),
    *(name for new, (old, _) in _ARGUMENTS.items() for name in (new, old)),
}


def _read(folder: Path, options: ReadOptions, with_head: bool = False) -> Transformer:
    path = next(filter(os.path.lexists, map(folder.joinpath, TRANSFORMER_CONFIGS)), folder / TRANSFORMER_CONFIGS[0])
    config = read_object(path, missing_ok=True)
    # LateInteraction reads those of roles.
    config = JsonObject({**config, **dict.fromkeys(_OF_ROLES if options.multi_vector else ())}, path)
    arguments = _read_arguments(config, options.arguments)
    base = _base_of(folder, options.resolve)
    dtype = options.dtype or (half_precision_of(base) if options.keep_half else None) or torch.float32
    with_head = with_head or config.get("transformer_task") == _MASKED
    unusual = with_head or any(arguments.values()) or base != folder
    loaded = None if unusual else load_minimal_bert(folder, dtype)
    # The base model of an adapter has a folder of its own, which another process may replace as well.
    model, tokenizer = loaded or read_whole(base, lambda: _load(folder, base, dtype, arguments, with_head))
    lower_case = config.field("do_lower_case", bool, False)
    with reading(folder / "tokenizer.json", "a tokenizer"):
        transformer = Transformer(model, tokenizer, lower_case=lower_case)
        shortest = sum(transformer.special_tokens) + 1
    limit = config.field("max_seq_length", int, None)
    if limit is not None and limit < shortest:
        raise config.error(f"gives max_seq_length={limit} where at least {shortest} is expected")
    if limit is not None:
        positions = position_limit(transformer.network) or limit
        if limit > positions:
            warn(f"max_seq_length={limit} exceeds the {positions} positions of the model; {positions} is used")
        transformer.max_seq_length = min(limit, positions)
    return transformer


def _load(folder: Path, base: Path, dtype: torch.dtype, arguments: dict[str, Any], with_head: bool) -> tuple[Any, Any]:
    """Load the model and the tokenizer with the package transformers."""
    config = huggingface.load_config(base, arguments["config_kwargs"])
    model = huggingface.load_network(base, config, dtype, arguments["model_kwargs"], with_head)
    if base != folder:
        huggingface.load_adapter(model, folder)
    has_tokenizer = any((folder / name).exists() for name in huggingface.TOKENIZER_FILES)
    return model, huggingface.load_tokenizer(folder if has_tokenizer else base, arguments["processor_kwargs"])


def _base_of(folder: Path, resolve: Callable[[str], Path]) -> Path:
    """The folder of the transformer: ``folder`` itself or, if it contains an adapter, that of the base model."""
    path = folder / "adapter_config.json"
    if not path.exists():
        return folder
    name = read_object(path).require("base_model_name_or_path", str)
    if name.startswith("."):
        reason = f"names the base model {name!r}, which depends on the working directory"
        raise UnreadableError(path, reason, "write an absolute path, or the name of a model on the hub")
    with reading(path, "an adapter of an available model"):
        return resolve(name)


def _read_arguments(config: JsonObject, callers: Arguments) -> dict[str, dict[str, Any]]:
    """The arguments for transformers: those that the folder states and is allowed to, and over them the caller's.

    Raises:
        ValueError: For anything but plain text through a plain forward pass. Ignored keys are warned of.
    """
    for key, values in _EXPECTED.items():
        if config.get(key) is not None and config[key] not in values:
            raise config.error(f"gives {key}={config[key]!r}, which is not supported", "use a text model")
    ignored = []
    for key in _IGNORED:
        if config.get(key):
            warn(f"{config.path}: {key}={config[key]!r} ignored")
    if unknown := sorted(set(config) - _KNOWN):
        ignored.append(f"unknown keys {', '.join(unknown)} ignored")
    arguments: dict[str, dict[str, Any]] = {}
    for name, (old_name, allowed) in _ARGUMENTS.items():
        arguments[name] = {}
        for key, value in {**config.field(old_name, dict, {}), **config.field(name, dict, {})}.items():
            if key in _SILENTLY_IGNORED:
                continue
            is_known = allowed is None or key in allowed
            if is_known and ("attn_implementation" not in key or value in huggingface.ATTENTIONS):
                arguments[name][key] = value
            else:
                ignored.append(f"{name} {key}={value!r} ignored")
        arguments[name] |= callers.get(name, {})
    for key in ignored:
        warn(f"{config.path}: {key}")
    return arguments


def _write(module: Transformer, folder: Path, _: object) -> None:
    limit = module.max_seq_length
    write_network(module.auto_model, module.tokenizer, limit, folder)
    # text-embeddings-inference does not read a file in which the limit is missing or null.
    values: dict[str, Any] = {} if limit is None else {"max_seq_length": limit}
    if limit is not None or module.lower_case:
        write_json(folder / "sentence_bert_config.json", {**values, "do_lower_case": module.lower_case})


def write_network(network: Any, tokenizer: Any, limit: int | None, folder: Path) -> None:
    """Write a network and its tokenizer as transformers does, with ``limit`` as the maximum length of the tokenizer."""
    with huggingface.silence():
        if huggingface.adapters_alone.get() and huggingface.find_adapters(network):
            huggingface.save_adapter(network, folder)
        else:
            huggingface.merge_adapters(network).save_pretrained(folder, safe_serialization=True)
        stated = tokenizer.model_max_length
        tokenizer.model_max_length = limit or stated
        try:
            tokenizer.save_pretrained(folder)
        finally:
            tokenizer.model_max_length = stated


TRANSFORMER_CODEC = Codec(_read, _write)
MASKED_LM_CODEC = Codec(partial(_read, with_head=True), _write)
