"""Reading model folders of sentence-transformers 2 to 6, of Hugging Face and of model2vec."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from sbert.backends import huggingface
from sbert.backends.bert import loading as light
from sbert.functional import SIMILARITIES
from sbert.modules import (
    LSTM,
    Dense,
    Dropout,
    LayerNorm,
    Normalize,
    Pooling,
    StaticEmbedding,
    Transformer,
    WordEmbeddings,
)
from sbert.modules.dense import ACTIVATIONS
from sbert.modules.pooling import POOLINGS
from sbert.modules.registry import registered
from sbert.modules.tokenizer import ReadsText
from sbert.saving.format import (
    LSTM_CONFIG,
    MODULES,
    OURS,
    POOLING_KEYS,
    POOLING_NAMES,
    SETTINGS,
    THEIRS,
    TRANSFORMER_CONFIGS,
    WORDS_CONFIG,
    WORDS_VOCABULARY,
    Settings,
)
from sbert.storage import files, hub
from sbert.storage.files import UnreadableError, read_json, read_object, required
from sbert.storage.folders import read_whole
from sbert.storage.vocabularies import check_ids
from sbert.storage.weight_files import WEIGHTS, Header, read_header, read_weights, warn_of_unused, weights_file, within

_MOST_MODULES = 100


def read_settings(folder: Path) -> Settings:
    """Prompts, similarity and truncation of the encoder in ``folder``."""
    path = folder / SETTINGS
    config = read_object(path, missing_ok=True)
    kind = config.get("model_type") or "SentenceTransformer"
    if kind != "SentenceTransformer":
        raise UnreadableError(path, f"describes a {kind}, not a sentence encoder", "load it with another library")
    prompts = files.field(config, path, "prompts", dict, {})
    if not all(isinstance(text, str) for text in prompts.values()):
        raise UnreadableError(path, "gives prompts that are no strings")
    default = files.field(config, path, "default_prompt_name", str, None)
    if default is not None and default not in prompts:
        raise UnreadableError(path, f"gives default_prompt_name={default!r}, which is not among its prompts")
    similarity = files.field(config, path, "similarity_fn_name", str, None)
    if similarity is not None and similarity not in SIMILARITIES:
        raise UnreadableError(path, f"gives similarity_fn_name={similarity!r}, not one of {', '.join(SIMILARITIES)}")
    truncate_dim = files.field(config, path, "truncate_dim", int, None)
    if truncate_dim is not None and truncate_dim < 1:
        raise UnreadableError(path, f"gives truncate_dim={truncate_dim} where at least 1 is expected")
    return Settings(prompts, default, similarity, truncate_dim)


def read_modules(
    folder: Path,
    dtype: torch.dtype | None = None,
    resolve: Callable[[str], Path] = hub.resolve,
) -> list[nn.Module]:
    """The modules of the encoder in ``folder``.

    Args:
        folder: The model.
        dtype: Of the weights; float32 where it is not given.
        resolve: Finds the folder of a model by its name: an adapter's files name the model it was made for.

    Raises:
        ValueError: If a file is damaged, or names a module that is not known, with the file's name.
    """
    path = folder / MODULES
    if not os.path.lexists(path):  # A link that leads nowhere is no sign of a model without modules.
        return _read_plain(folder, dtype, resolve)
    listed = read_json(path)
    if not isinstance(listed, list) or not listed or not all(isinstance(entry, dict) for entry in listed):
        raise UnreadableError(path, "holds no list of modules")
    if len(listed) > _MOST_MODULES:
        raise UnreadableError(path, f"lists {len(listed)} modules, where at most {_MOST_MODULES} are expected")
    own, weighty = registered(), set()
    transformer: Callable[[Path, torch.dtype | None], nn.Module] = partial(_read_transformer, resolve=resolve)
    readers = {**_READERS, "Transformer": transformer}
    modules = []
    for entry in listed:
        kind = required(entry, path, "type", str)
        where = files.inside(folder, files.field(entry, path, "path", str, ""), path)
        name = kind.rpartition(".")[2]
        if kind.startswith(OURS) and name in own:
            module = _read_own(where, own[name])
        elif kind.startswith((THEIRS, OURS)) and name in readers:
            module = readers[name](where, dtype)
        else:
            hint = "use another model"
            if kind.startswith(OURS):
                hint = f"import the code that defines {name}, with @register_module before its class"
            known = ", ".join(sorted([*readers, *own]))
            raise UnreadableError(path, f"names the module type {kind!r}, which is none of {known}", hint)
        if module.state_dict():
            if where.resolve() in weighty:
                raise UnreadableError(path, f"names the weights in {where} twice")
            weighty.add(where.resolve())
        modules.append(module.to(dtype) if dtype is not None else module)
    if not isinstance(modules[0], ReadsText):
        raise UnreadableError(path, f"begins with a {type(modules[0]).__name__}, which reads no text")
    return modules


def _read_plain(folder: Path, dtype: torch.dtype | None, resolve: Callable[[str], Path]) -> list[nn.Module]:
    """A folder without modules.json: a Hugging Face model with the pooling it is usually given, or model2vec's."""
    config = read_object(folder / "config.json", missing_ok=True)
    if config.get("model_type") == "model2vec":
        static = _read_static(folder, dtype)
        return [static, Normalize()] if config.get("normalize") else [static]
    transformer = _read_transformer(folder, dtype, resolve)
    architectures = files.field(config, folder / "config.json", "architectures", list, None) or [""]
    generates = str(architectures[0]).endswith("ForCausalLM") and config.get("is_causal") is not False
    return [transformer, Pooling("lasttoken" if generates else "mean")]


def _read_transformer(folder: Path, dtype: torch.dtype | None, resolve: Callable[[str], Path]) -> nn.Module:
    path = next(
        (folder / n for n in TRANSFORMER_CONFIGS if (folder / n).exists()), folder / "sentence_bert_config.json"
    )
    config = read_object(path, missing_ok=True)
    _check_transformer_config(config, path)
    options = {name: _options(config, path, name) for name in _ARGUMENTS}
    base = _base_of(folder, resolve)
    found = None if any(options.values()) or base != folder else light.load(folder, dtype or torch.float32)
    # The adapter's base is a folder of its own, which others may replace as well.
    model, tokenizer = found or read_whole(
        base, lambda: _load_transformer(folder, base, dtype or torch.float32, options)
    )
    lower_case = files.field(config, path, "do_lower_case", bool, False)
    with files.reading(folder / "tokenizer.json", "a tokenizer"):
        transformer = Transformer(model, tokenizer, lower_case=lower_case)
        least = sum(transformer.special_tokens) + 1
    limit = files.field(config, path, "max_seq_length", int, None)
    if limit is not None and limit < least:
        raise UnreadableError(path, f"gives max_seq_length={limit} where at least {least} is expected")
    if limit is not None:
        transformer.limit_to(limit)
    return transformer


def _load_transformer(folder: Path, base: Path, dtype: torch.dtype, options: dict[str, Any]) -> tuple[Any, Any]:
    """The transformer and the tokenizer, as transformers loads them."""
    config = huggingface.load_config(base, options["config_kwargs"])
    model = huggingface.load_model(base, config, dtype, options["model_kwargs"].get("attn_implementation"))
    if base != folder:
        huggingface.load_adapter(model, folder)
    own = any((folder / name).exists() for name in huggingface.TOKENIZER_FILES)
    return model, huggingface.load_tokenizer(folder if own else base, options["processor_kwargs"])


def _base_of(folder: Path, resolve: Callable[[str], Path]) -> Path:
    """The folder of the transformer: this one or, where it holds an adapter of peft, the one this was made for."""
    path = folder / "adapter_config.json"
    if not path.exists():
        return folder
    name = required(read_object(path), path, "base_model_name_or_path", str)
    if name.startswith("."):
        reason = f"names the base model {name!r}, which depends on where a program runs"
        raise UnreadableError(path, reason, "name an absolute path, or a model on the hub")
    with files.reading(path, "an adapter of a model that can be had"):
        return resolve(name)


# What a folder may pass on to transformers, under its newer and its older name; any value of the configuration.
# The dtype is the caller's choice, and nothing that could fetch or run code is passed on.
_ARGUMENTS: dict[str, tuple[str, set[str] | None]] = {
    "model_kwargs": ("model_args", {"attn_implementation"}),
    "processor_kwargs": (
        "tokenizer_args",
        {"model_max_length", "padding_side", "truncation_side", "do_lower_case", "add_eos_token"},
    ),
    "config_kwargs": ("config_args", None),
}
_PASSED_OVER = ("trust_remote_code", "torch_dtype", "dtype")


def _options(config: dict[str, Any], path: Path, name: str) -> dict[str, Any]:
    """The arguments for transformers that a folder gives and may give."""
    old, allowed = _ARGUMENTS[name]
    given = {**files.field(config, path, old, dict, {}), **files.field(config, path, name, dict, {})}
    options = {}
    for key, value in given.items():
        if key in _PASSED_OVER:
            continue
        known = allowed is None or key in allowed
        if known and ("attn_implementation" not in key or value in huggingface.ATTENTIONS):
            options[key] = value
        else:
            warnings.warn(f"{path}: {name} {key}={value!r} ignored", stacklevel=2)
    return options


def _check_transformer_config(config: dict[str, Any], path: Path) -> None:
    """Refuse what is not plain text through a plain forward; warn of keys that are not heeded."""
    text = {"text": {"method": "forward", "method_output_name": "last_hidden_state"}}
    expected = {
        "transformer_task": ("feature-extraction",),
        "modality_config": (text,),
        "module_output_name": ("token_embeddings",),
        "query_expansion": (False, {}),
    }
    for key, values in expected.items():
        if config.get(key) is not None and config[key] not in values:
            raise UnreadableError(path, f"gives {key}={config[key]!r}, which is not supported", "use a text model")
    for key in ("processing_kwargs", "query_length", "document_length"):
        if config.get(key):
            warnings.warn(f"{path}: {key}={config[key]!r} ignored", stacklevel=2)
    known = {
        *expected,
        *(name for new, (old, _) in _ARGUMENTS.items() for name in (new, old)),
        *("max_seq_length", "do_lower_case", "processing_kwargs", "unpad_inputs", "query_length", "document_length"),
    }
    unknown = sorted(set(config) - known)
    if unknown:
        warnings.warn(f"{path}: unknown keys {', '.join(unknown)} ignored", stacklevel=2)


def _read_pooling(folder: Path, dtype: torch.dtype | None) -> nn.Module:
    path = folder / "config.json"
    config = read_object(path)
    given = files.field(config, path, "pooling_mode", (str, list), None)
    if given is None:
        flags = {key: files.field(config, path, key, bool, None) for key in POOLING_KEYS}
        given = [mode for key, mode in POOLING_KEYS.items() if flags[key]]
    names = [given] if isinstance(given, str) else given or ["mean"]
    modes = [POOLING_NAMES.get(str(name), str(name)) for name in names]
    unknown = [mode for mode in modes if mode not in POOLINGS]
    if unknown:
        reason = f"gives the pooling mode {unknown[0]!r}, which is none of {', '.join(POOLINGS)}"
        raise UnreadableError(path, reason, f"import the code that defines it, with @register_pooling({unknown[0]!r})")
    return Pooling(modes, files.field(config, path, "include_prompt", bool, True))


def _read_normalize(folder: Path, dtype: torch.dtype | None) -> nn.Module:
    return Normalize()


def _read_dense(folder: Path, dtype: torch.dtype | None) -> nn.Module:
    path = folder / "config.json"
    config = read_object(path)
    for key in ("module_input_name", "module_output_name"):
        if files.field(config, path, key, str, "sentence_embedding") != "sentence_embedding":
            raise UnreadableError(path, f"gives {key}={config[key]!r}, which is not supported", "use another model")
    activation = files.field(config, path, "activation_function", str, "torch.nn.modules.activation.Tanh")
    name = activation.rpartition(".")[2]
    if not activation.startswith("torch.nn.modules.") or name not in ACTIVATIONS:
        raise UnreadableError(path, f"names the activation {activation!r}, which is none of {', '.join(ACTIVATIONS)}")
    return _filled(
        folder,
        path,
        Dense,
        _width(config, path, "in_features"),
        _width(config, path, "out_features"),
        files.field(config, path, "bias", bool, True),
        name,
        files.field(config, path, "use_residual", bool, False),
    )


def _read_layer_norm(folder: Path, dtype: torch.dtype | None) -> nn.Module:
    path = folder / "config.json"
    return _filled(folder, path, LayerNorm, _width(read_object(path), path, "dimension"))


def _read_dropout(folder: Path, dtype: torch.dtype | None) -> nn.Module:
    path = folder / "config.json"
    p = files.field(read_object(path), path, "dropout", (int, float), 0.2)
    if not 0 <= p <= 1:
        raise UnreadableError(path, f"gives dropout={p} where 0 to 1 is expected")
    return Dropout(float(p))


def _read_static(folder: Path, dtype: torch.dtype | None) -> nn.Module:
    from tokenizers import Tokenizer

    path = folder / "tokenizer.json"
    check_ids(path)
    with files.reading(path, "a tokenizer"):
        tokenizer = Tokenizer.from_file(str(path))
    weights = read_weights(folder, integers=("mapping",))
    table = weights.get("embedding.weight", weights.get("embeddings"))
    source = weights_file(folder)
    if table is None or table.ndim != 2:
        raise UnreadableError(source, "holds no table of embeddings")
    with files.reading(source, "a table of embeddings"):
        if "mapping" in weights:
            mapping, most = weights["mapping"], 2 * tokenizer.get_vocab_size()  # Many tokens may share a vector.
            if mapping.ndim != 1 or len(mapping) > most:
                reason = f"holds a mapping of shape {tuple(mapping.shape)}, where at most {most} tokens are expected"
                raise UnreadableError(source, reason)
            table = table[mapping.long()]
        table = table.to(dtype or torch.float32)
        if "weights" in weights:
            table = table * weights["weights"][:, None].to(table.dtype)
        if len(table) < tokenizer.get_vocab_size():
            raise UnreadableError(source, f"holds {len(table)} vectors for {tokenizer.get_vocab_size()} tokens")
        module = StaticEmbedding(tokenizer, table)
    unused = set(weights) - {"embedding.weight", "embeddings", "mapping", "weights"}
    warn_of_unused(read_header(folder), unused, module)
    return module


def _read_words(folder: Path, dtype: torch.dtype | None) -> nn.Module:
    path = folder / WORDS_CONFIG
    config = read_object(path)
    tokenizer = required(config, path, "tokenizer_class", str)
    if tokenizer.rpartition(".")[2] != "WhitespaceTokenizer":
        raise UnreadableError(path, f"names the tokenizer {tokenizer!r}, which is not supported", "use another model")
    vocabulary_path = folder / WORDS_VOCABULARY
    vocabulary = read_object(vocabulary_path)
    words = required(vocabulary, vocabulary_path, "vocab", list)
    stop_words = files.field(vocabulary, vocabulary_path, "stop_words", list, [])
    if not all(isinstance(word, str) for word in [*words, *stop_words]):
        raise UnreadableError(vocabulary_path, "lists words that are no strings")
    weights = read_weights(folder)
    table = weights.get("emb_layer.weight")
    if table is None or table.ndim != 2 or len(table) != len(words):
        raise UnreadableError(weights_file(folder), f"holds no table of {len(words)} word vectors")
    module = WordEmbeddings(
        words,
        table.float(),
        files.field(vocabulary, vocabulary_path, "do_lower_case", bool, False),
        stop_words,
        files.field(config, path, "max_seq_length", int, None),
        files.field(config, path, "update_embeddings", bool, False),
    )
    warn_of_unused(read_header(folder), set(weights) - {"emb_layer.weight"}, module)
    return module


def _read_lstm(folder: Path, dtype: torch.dtype | None) -> nn.Module:
    path = folder / LSTM_CONFIG
    config = read_object(path)
    key = "word_embedding_dimension" if "word_embedding_dimension" in config else "embedding_dimension"
    return _filled(
        folder,
        path,
        LSTM,
        _width(config, path, key),
        _width(config, path, "hidden_dim"),
        files.field(config, path, "num_layers", int, 1),
        float(files.field(config, path, "dropout", (int, float), 0.0)),
        files.field(config, path, "bidirectional", bool, True),
    )


_READERS: dict[str, Callable[[Path, torch.dtype | None], nn.Module]] = {
    "Pooling": _read_pooling,
    "Normalize": _read_normalize,
    "Dense": _read_dense,
    "LayerNorm": _read_layer_norm,
    "Dropout": _read_dropout,
    "StaticEmbedding": _read_static,
    "WordEmbeddings": _read_words,
    "LSTM": _read_lstm,
}


def _width(config: dict[str, Any], path: Path, key: str) -> int:
    width: int = required(config, path, key, int)
    if not 1 <= width <= 2**20:
        raise UnreadableError(path, f"gives {key}={width} where 1 to {2**20} is expected")
    return width


def _filled(folder: Path, path: Path, kind: Callable[..., nn.Module], *arguments: Any, **more: Any) -> nn.Module:
    """A module with the weights of its folder, all of them and no others.

    Args:
        folder: Of the weights.
        path: The file that gives the arguments.
        kind: Makes the module.
        arguments: For ``kind``.
        more: The same, by name.
    """
    name = getattr(kind, "__name__", "a module")
    empty = not any((folder / file).exists() for file in WEIGHTS)
    header = Header(folder, {}) if empty else read_header(folder)
    with files.reading(path, f"the arguments of {name}"), within(header, path):
        module = kind(*arguments, **more)
    own = module.state_dict()
    if own:
        weights = read_weights(folder, integers=[key for key, value in own.items() if not value.is_floating_point()])
        with files.reading(header.path, f"the weights of {name}"):
            module.load_state_dict(weights)
    return module


def _read_own(folder: Path, kind: type[nn.Module]) -> nn.Module:
    path = folder / "config.json"
    return _filled(folder, path, kind, **read_object(path))
