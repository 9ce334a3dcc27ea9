"""The model folder on disk: every foreign name, key and file name, and nothing else.

Folders of sentence-transformers 2 to 6 are read; its oldest dialect, which all of its versions and the other
tools of the field read, is written.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sbert import files
from sbert.files import Unreadable, read_json, read_object, read_weights, required, write_json
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
    huggingface,
)
from sbert.modules.projection import ACTIVATIONS

MODULES = "modules.json"
SETTINGS = "config_sentence_transformers.json"
REFERENCE = "sbert_reference.json"
_WORDS_CONFIG = "wordembedding_config.json"
_WORDS_VOCABULARY = "whitespacetokenizer_config.json"
_LSTM_CONFIG = "lstm_config.json"
_THEIRS = "sentence_transformers."
_OURS = "sbert."

# The names that sentence-transformers gave the file of a transformer's settings.
_TRANSFORMER_CONFIGS = [
    f"sentence_{name}_config.json"
    for name in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
]
# Old keys, in the order in which their vectors are concatenated, and our names.
_POOLING_KEYS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
_POOLING_NAMES = {"mean_sqrt_len_tokens": "mean_sqrt_len"}


@dataclass
class Settings:
    """What a folder says of an encoder beside its modules."""

    prompts: dict[str, str] = field(default_factory=dict)
    default_prompt_name: str | None = None
    similarity_fn_name: str | None = None
    truncate_dim: int | None = None


# --------------------------------------------------------------------------------------------- reading


def read_settings(folder: Path) -> Settings:
    """Prompts, similarity and truncation of the encoder in ``folder``."""
    path = folder / SETTINGS
    config = read_object(path, missing_ok=True)
    kind = config.get("model_type") or "SentenceTransformer"
    if kind != "SentenceTransformer":
        raise Unreadable(path, f"describes a {kind}, not a sentence encoder", "load it with another library")
    prompts = files.field(config, path, "prompts", dict, {})
    if not all(isinstance(text, str) for text in prompts.values()):
        raise Unreadable(path, "gives prompts that are no strings")
    default = files.field(config, path, "default_prompt_name", str, None)
    if default is not None and default not in prompts:
        raise Unreadable(path, f"gives default_prompt_name={default!r}, which is not among its prompts")
    similarity = files.field(config, path, "similarity_fn_name", str, None)
    if similarity is not None and similarity not in SIMILARITIES:
        raise Unreadable(path, f"gives similarity_fn_name={similarity!r}, not one of {', '.join(SIMILARITIES)}")
    truncate_dim = files.field(config, path, "truncate_dim", int, None)
    if truncate_dim is not None and truncate_dim < 1:
        raise Unreadable(path, f"gives truncate_dim={truncate_dim} where at least 1 is expected")
    return Settings(prompts, default, similarity, truncate_dim)


def read_modules(
    folder: Path, classes: Sequence[type[nn.Module]] = (), dtype: torch.dtype | None = None
) -> list[nn.Module]:
    """The modules of the encoder in ``folder``.

    Args:
        folder: The model.
        classes: The user's own module classes, which the folder may name.
        dtype: Of the weights; float32 where it is not given.

    Raises:
        ValueError: If a file is damaged, or names a module that is not known, with the file's name.
    """
    path = folder / MODULES
    if not path.exists():
        return _read_plain(folder, dtype)
    listed = read_json(path)
    if not isinstance(listed, list) or not listed or not all(isinstance(entry, dict) for entry in listed):
        raise Unreadable(path, "holds no list of modules")
    own = {kind.__name__: kind for kind in classes}
    modules = []
    for entry in listed:
        kind = required(entry, path, "type", str)
        where = files.inside(folder, files.field(entry, path, "path", str, ""), path)
        name = kind.rpartition(".")[2]
        if kind.startswith(_OURS) and name in own:
            module = _read_own(where, own[name])
        elif kind.startswith((_THEIRS, _OURS)) and name in _READERS:
            module = _READERS[name](where, dtype)
        else:
            hint = "pass its class as classes=[...]" if kind.startswith(_OURS) else "use another model"
            known = ", ".join(sorted([*_READERS, *own]))
            raise Unreadable(path, f"names the module type {kind!r}, which is none of {known}", hint)
        modules.append(module.to(dtype) if dtype is not None else module)
    return modules


def _read_plain(folder: Path, dtype: torch.dtype | None) -> list[nn.Module]:
    """A folder without modules.json: a Hugging Face model with the pooling it is usually given, or model2vec's."""
    config = read_object(folder / "config.json", missing_ok=True)
    if config.get("model_type") == "model2vec":
        static = _read_static(folder, dtype)
        return [static, Normalize()] if config.get("normalize") else [static]
    transformer = _read_transformer(folder, dtype)
    architectures = files.field(config, folder / "config.json", "architectures", list, None) or [""]
    generates = str(architectures[0]).endswith("ForCausalLM") and config.get("is_causal") is not False
    return [transformer, Pooling("lasttoken" if generates else "mean")]


def _read_transformer(folder: Path, dtype: torch.dtype | None) -> nn.Module:
    path = next((folder / n for n in _TRANSFORMER_CONFIGS if (folder / n).exists()), folder / "sentence_bert_config.json")
    config = read_object(path, missing_ok=True)
    _check_transformer_config(config, path)
    options = {
        new: {**files.field(config, path, old, dict, {}), **files.field(config, path, new, dict, {})}
        for old, new in (
            ("model_args", "model_kwargs"),
            ("tokenizer_args", "processor_kwargs"),
            ("config_args", "config_kwargs"),
        )
    }
    allowed = {
        "model_kwargs": {"attn_implementation"},
        "processor_kwargs": {"model_max_length", "padding_side", "truncation_side", "do_lower_case", "add_eos_token"},
        "config_kwargs": set(options["config_kwargs"]) - {"attn_implementation", "_attn_implementation", "auto_map"},
    }
    # The dtype is the caller's choice, and code is never run.
    passed_over = {"trust_remote_code", "torch_dtype", "dtype"}
    for name, given in options.items():
        ignored = sorted(set(given) - allowed[name] - passed_over)
        if ignored:
            warnings.warn(f"{path}: {name} {', '.join(ignored)} ignored", stacklevel=2)
        options[name] = {k: v for k, v in given.items() if k in allowed[name] - passed_over}

    hf_config = huggingface.load_config(folder, options["config_kwargs"])
    attention = options["model_kwargs"].get("attn_implementation")
    model = huggingface.load_model(folder, hf_config, dtype or torch.float32, attention)
    tokenizer = huggingface.load_tokenizer(folder, options["processor_kwargs"])
    lower_case = files.field(config, path, "do_lower_case", bool, False)
    with files.reading(folder / "tokenizer.json", "a tokenizer"):
        transformer = Transformer(model, tokenizer, lower_case=lower_case)
        least = sum(transformer.special_tokens) + 1
    limit = files.field(config, path, "max_seq_length", int, None)
    if limit is not None and limit < least:
        raise Unreadable(path, f"gives max_seq_length={limit} where at least {least} is expected")
    if limit is not None:
        transformer.limit_to(limit)
    return transformer


def _check_transformer_config(config: dict[str, Any], path: Path) -> None:
    """Refuse what is not plain text through a plain forward; warn of keys that nobody knows."""
    text = {"text": {"method": "forward", "method_output_name": "last_hidden_state"}}
    expected = {
        "transformer_task": ("feature-extraction",),
        "modality_config": (text,),
        "module_output_name": ("token_embeddings",),
        "query_expansion": (False, {}),
    }
    for key, values in expected.items():
        if config.get(key) is not None and config[key] not in values:
            raise Unreadable(path, f"gives {key}={config[key]!r}, which is not supported", "use a text model")
    known = {
        *expected,
        *("max_seq_length", "do_lower_case", "model_args", "model_kwargs", "tokenizer_args", "processor_kwargs"),
        *("config_args", "config_kwargs", "processing_kwargs", "unpad_inputs", "query_length", "document_length"),
    }
    unknown = sorted(set(config) - known)
    if unknown:
        warnings.warn(f"{path}: unknown keys {', '.join(unknown)} ignored", stacklevel=2)


def _read_pooling(folder: Path, dtype: torch.dtype | None) -> nn.Module:
    path = folder / "config.json"
    config = read_object(path)
    given = files.field(config, path, "pooling_mode", (str, list), None)
    if given is None:
        flags = {key: files.field(config, path, key, bool, None) for key in _POOLING_KEYS}
        given = [mode for key, mode in _POOLING_KEYS.items() if flags[key]]
    names = [given] if isinstance(given, str) else given or ["mean"]
    modes = [_POOLING_NAMES.get(str(name), str(name)) for name in names]
    unknown = [mode for mode in modes if mode not in _POOLING_KEYS.values()]
    if unknown:
        raise Unreadable(path, f"gives the pooling mode {unknown[0]!r}, which is unknown")
    return Pooling(modes, files.field(config, path, "include_prompt", bool, True))


def _read_normalize(folder: Path, dtype: torch.dtype | None) -> nn.Module:
    return Normalize()


def _read_dense(folder: Path, dtype: torch.dtype | None) -> nn.Module:
    path = folder / "config.json"
    config = read_object(path)
    for key in ("module_input_name", "module_output_name"):
        if files.field(config, path, key, str, "sentence_embedding") != "sentence_embedding":
            raise Unreadable(path, f"gives {key}={config[key]!r}, which is not supported", "use another model")
    activation = files.field(config, path, "activation_function", str, "torch.nn.modules.activation.Tanh")
    name = activation.rpartition(".")[2]
    if not activation.startswith("torch.nn.modules.") or name not in ACTIVATIONS:
        raise Unreadable(path, f"names the activation {activation!r}, which is none of {', '.join(ACTIVATIONS)}")
    module = Dense(
        _width(config, path, "in_features"),
        _width(config, path, "out_features"),
        files.field(config, path, "bias", bool, True),
        name,
        files.field(config, path, "use_residual", bool, False),
    )
    return _fill(module, folder)


def _read_layer_norm(folder: Path, dtype: torch.dtype | None) -> nn.Module:
    path = folder / "config.json"
    return _fill(LayerNorm(_width(read_object(path), path, "dimension")), folder)


def _read_dropout(folder: Path, dtype: torch.dtype | None) -> nn.Module:
    path = folder / "config.json"
    p = files.field(read_object(path), path, "dropout", (int, float), 0.2)
    if not 0 <= p <= 1:
        raise Unreadable(path, f"gives dropout={p} where 0 to 1 is expected")
    return Dropout(float(p))


def _read_static(folder: Path, dtype: torch.dtype | None) -> nn.Module:
    from tokenizers import Tokenizer

    path = folder / "tokenizer.json"
    with files.reading(path, "a tokenizer"):
        tokenizer = Tokenizer.from_file(str(path))
    weights = read_weights(folder)
    table = weights.get("embedding.weight", weights.get("embeddings"))
    source = files.weights_file(folder)
    if table is None or table.ndim != 2:
        raise Unreadable(source, "holds no table of embeddings")
    with files.reading(source, "a table of embeddings"):
        if "mapping" in weights:
            table = table[weights["mapping"].long()]
        table = table.to(dtype or torch.float32)
        if "weights" in weights:
            table = table * weights["weights"][:, None].to(table.dtype)
        if len(table) < tokenizer.get_vocab_size():
            raise Unreadable(source, f"holds {len(table)} vectors for {tokenizer.get_vocab_size()} tokens")
        return StaticEmbedding(tokenizer, table)


def _read_words(folder: Path, dtype: torch.dtype | None) -> nn.Module:
    path = folder / _WORDS_CONFIG
    config = read_object(path)
    tokenizer = required(config, path, "tokenizer_class", str)
    if tokenizer.rpartition(".")[2] != "WhitespaceTokenizer":
        raise Unreadable(path, f"names the tokenizer {tokenizer!r}, which is not supported", "use another model")
    vocabulary_path = folder / _WORDS_VOCABULARY
    vocabulary = read_object(vocabulary_path)
    words = required(vocabulary, vocabulary_path, "vocab", list)
    stop_words = files.field(vocabulary, vocabulary_path, "stop_words", list, [])
    if not all(isinstance(word, str) for word in [*words, *stop_words]):
        raise Unreadable(vocabulary_path, "lists words that are no strings")
    table = read_weights(folder).get("emb_layer.weight")
    if table is None or table.ndim != 2 or len(table) != len(words):
        raise Unreadable(files.weights_file(folder), f"holds no table of {len(words)} word vectors")
    return WordEmbeddings(
        words,
        table.float(),
        files.field(vocabulary, vocabulary_path, "do_lower_case", bool, False),
        stop_words,
        files.field(config, path, "max_seq_length", int, None),
        files.field(config, path, "update_embeddings", bool, False),
    )


def _read_lstm(folder: Path, dtype: torch.dtype | None) -> nn.Module:
    path = folder / _LSTM_CONFIG
    config = read_object(path)
    key = "word_embedding_dimension" if "word_embedding_dimension" in config else "embedding_dimension"
    module = LSTM(
        _width(config, path, key),
        _width(config, path, "hidden_dim"),
        files.field(config, path, "num_layers", int, 1),
        float(files.field(config, path, "dropout", (int, float), 0.0)),
        files.field(config, path, "bidirectional", bool, True),
    )
    return _fill(module, folder)


_READERS: dict[str, Callable[[Path, torch.dtype | None], nn.Module]] = {
    "Transformer": _read_transformer,
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
        raise Unreadable(path, f"gives {key}={width} where 1 to {2**20} is expected")
    return width


def _fill(module: nn.Module, folder: Path) -> nn.Module:
    """Give a module the weights of its folder, all of them and no others."""
    weights = read_weights(folder)
    with files.reading(files.weights_file(folder), f"the weights of {type(module).__name__}"):
        module.load_state_dict(weights)
    return module


def _read_own(folder: Path, kind: type[nn.Module]) -> nn.Module:
    path = folder / "config.json"
    with files.reading(path, f"the arguments of {kind.__name__}"):
        module = kind(**read_object(path))
    return _fill(module, folder) if module.state_dict() else module


# --------------------------------------------------------------------------------------------- writing


def write(folder: Path, modules: Sequence[nn.Module], widths: Sequence[int], settings: Settings) -> None:
    """Write an encoder's modules and settings into an empty folder.

    Args:
        folder: Where to.
        modules: The encoder's modules.
        widths: Width of each module's output.
        settings: The rest.
    """
    entries, before = [], 0
    for index, (module, width) in enumerate(zip(modules, widths, strict=True)):
        name = type(module).__name__
        path = "" if isinstance(module, Transformer) and index == 0 else f"{index}_{name}"
        where = folder / path
        where.mkdir(exist_ok=True)
        known = type(module) in _WRITERS
        if known:
            _WRITERS[type(module)](module, where, before)
        else:
            _write_own(module, where)
        kind = f"{_THEIRS}models.{name}" if known else f"{_OURS}{name}"
        entries.append({"idx": index, "name": str(index), "path": path, "type": kind})
        before = width
    write_json(folder / MODULES, entries)
    write_json(
        folder / SETTINGS,
        {
            # A low version, so that no version of sentence-transformers warns that the model is newer.
            "__version__": {"sentence_transformers": "2.3.0"},
            "model_type": "SentenceTransformer",
            "prompts": settings.prompts,
            "default_prompt_name": settings.default_prompt_name,
            "similarity_fn_name": settings.similarity_fn_name,
            **({} if settings.truncate_dim is None else {"truncate_dim": settings.truncate_dim}),
        },
    )


def _write_transformer(module: Any, folder: Path, before: int) -> None:
    limit = module.max_seq_length
    with huggingface.quiet():
        module.auto_model.save_pretrained(folder, safe_serialization=True)
        tokenizer = module.tokenizer
        stated = tokenizer.model_max_length
        tokenizer.model_max_length = limit or stated
        tokenizer.save_pretrained(folder)
        tokenizer.model_max_length = stated
    write_json(
        folder / "sentence_bert_config.json",
        {"max_seq_length": limit, "do_lower_case": module.lower_case},
    )


def _write_pooling(module: Any, folder: Path, before: int) -> None:
    ordered = [mode for mode in _POOLING_KEYS.values() if mode in module.modes]
    if list(module.modes) != ordered:
        # The old keys know no order and no repetition; the new one is read since sentence-transformers 5.4.
        write_json(
            folder / "config.json",
            {
                "word_embedding_dimension": before,
                "pooling_mode": [_names_of(mode) for mode in module.modes],
                "include_prompt": module.include_prompt,
            },
        )
        return
    flags = {key: mode in module.modes for key, mode in _POOLING_KEYS.items()}
    config = {"word_embedding_dimension": before, **flags, "include_prompt": module.include_prompt}
    write_json(folder / "config.json", config)


def _names_of(mode: str) -> str:
    return {ours: theirs for theirs, ours in _POOLING_NAMES.items()}.get(mode, mode)


def _write_normalize(module: Any, folder: Path, before: int) -> None:
    write_json(folder / "config.json", {})


def _write_dense(module: Any, folder: Path, before: int) -> None:
    activation = type(module.activation_function)
    config = {
        "in_features": module.linear.in_features,
        "out_features": module.linear.out_features,
        "bias": module.linear.bias is not None,
        "activation_function": f"{activation.__module__}.{activation.__name__}",
        **({"use_residual": True} if module.use_residual else {}),
    }
    write_json(folder / "config.json", config)
    write_weights(module.state_dict(), folder)


def _write_layer_norm(module: Any, folder: Path, before: int) -> None:
    write_json(folder / "config.json", {"dimension": module.norm.normalized_shape[0]})
    write_weights(module.state_dict(), folder)


def _write_dropout(module: Any, folder: Path, before: int) -> None:
    write_json(folder / "config.json", {"dropout": module.p})


def _write_static(module: Any, folder: Path, before: int) -> None:
    module.tokenizer.save(str(folder / "tokenizer.json"))
    write_weights(module.state_dict(), folder)


def _write_words(module: Any, folder: Path, before: int) -> None:
    write_json(
        folder / _WORDS_CONFIG,
        {
            "tokenizer_class": f"{_THEIRS}models.tokenizer.WhitespaceTokenizer.WhitespaceTokenizer",
            "update_embeddings": module.embedding.weight.requires_grad,
            "max_seq_length": module.max_seq_length or 1_000_000,
        },
    )
    write_json(
        folder / _WORDS_VOCABULARY,
        {
            "vocab": module.words,
            "stop_words": sorted(module.stop_words),
            "do_lower_case": module.lower_case,
        },
    )
    write_weights({"emb_layer.weight": module.embedding.weight}, folder)


def _write_lstm(module: Any, folder: Path, before: int) -> None:
    layers = module.encoder
    config = {
        "word_embedding_dimension": layers.input_size,
        "hidden_dim": layers.hidden_size,
        "num_layers": layers.num_layers,
        "dropout": layers.dropout,
        "bidirectional": layers.bidirectional,
    }
    write_json(folder / _LSTM_CONFIG, config)
    write_weights(module.state_dict(), folder)


_WRITERS: dict[type[nn.Module], Callable[[Any, Path, int], None]] = {
    Transformer: _write_transformer,
    Pooling: _write_pooling,
    Normalize: _write_normalize,
    Dense: _write_dense,
    LayerNorm: _write_layer_norm,
    Dropout: _write_dropout,
    StaticEmbedding: _write_static,
    WordEmbeddings: _write_words,
    LSTM: _write_lstm,
}


def _write_own(module: nn.Module, folder: Path) -> None:
    """A module of the user's: the arguments in its attribute ``config``, if it takes any, and its weights."""
    kind = type(module)
    parameters = inspect.signature(kind).parameters.values()
    needed = [p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    config = getattr(module, "config", {})
    lacking = [name for name in needed if name not in config]
    if lacking:
        raise ValueError(
            f"{kind.__name__} cannot be saved without its argument {lacking[0]!r};"
            " give it an attribute `config`, a dict of the arguments it was made with"
        )
    write_json(folder / "config.json", config)
    if module.state_dict():
        write_weights(module.state_dict(), folder)
    warnings.warn(f"{kind.__name__} is known to sbert alone: no other library loads this model", stacklevel=2)


def write_weights(weights: dict[str, Tensor], folder: Path) -> None:
    """Write tensors to ``model.safetensors``."""
    from safetensors.torch import save_file

    own = {name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}
    save_file(own, folder / "model.safetensors", metadata={"format": "pt"})
