"""Codecs of all modules but transformers and routers."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from sbert.backends.huggingface import load_tokenizer, silence
from sbert.modules import LSTM, Dense, Dropout, LayerNorm, Normalize, Pooling, StaticEmbedding, WordEmbeddings
from sbert.modules.dense import DENSE_ACTIVATIONS
from sbert.modules.pooling import POOLINGS
from sbert.modules.registry import BUILT_IN, REGISTERED, check_free
from sbert.modules.word_embeddings import SparseStaticEmbedding
from sbert.saving.codecs.codec import Codec, ReadOptions, write_weights
from sbert.saving.format import LSTM_CONFIG, POOLING_KEYS, POOLING_NAMES, THEIRS, WORDS_CONFIG, WORDS_VOCABULARY
from sbert.storage.files import JsonObject, UnreadableError, read_object, reading, write_json
from sbert.storage.weight_files import (
    WEIGHTS,
    WeightsHeader,
    check_ids,
    read_header,
    read_weights,
    warn_of_unused,
    within,
)

# The activations of their SpladePooling, by the modes here.
_SPLADE = {"splade": "relu", "splade_log1p": "log1p_relu"}


def make_codec(
    kind: type[nn.Module],
    arguments: Callable[[JsonObject], dict[str, Any]],
    settings: Callable[[Any, Mapping[nn.Module, int]], dict[str, Any]],
    file: str = "config.json",
) -> Codec:
    """The codec of a class whose folders hold a file of settings and, if there are any, weights.

    Args:
        kind: The class.
        arguments: Arguments of ``kind`` from the settings.
        settings: Settings from a module and the dimension of the input of each module of the encoder.
        file: Name of the file.
    """

    def read(folder: Path, options: ReadOptions) -> nn.Module:
        config = read_object(folder / file)
        if options.multi_vector and config.get("module_input_name") == "token_embeddings":
            config |= dict.fromkeys(("module_input_name", "module_output_name"))
        return _construct(folder, kind, arguments(config), config.path)

    def write(module: nn.Module, folder: Path, input_dims: Mapping[nn.Module, int]) -> None:
        write_json(folder / file, settings(module, input_dims))
        if state := module.state_dict():
            write_weights(state, folder)

    return Codec(read, write)


def _construct(folder: Path, kind: type[nn.Module], arguments: dict[str, Any], path: Path) -> nn.Module:
    """A module with the weights of a folder, which must match exactly; ``path`` is the file of its arguments."""
    has_weights = any(map(Path.exists, map(folder.joinpath, WEIGHTS)))
    header = read_header(folder) if has_weights else WeightsHeader(folder, {})
    with reading(path, f"the arguments of {kind.__name__}"), within(header, path):
        module = kind(**arguments)
    state = module.state_dict()
    if state:
        header = header if has_weights else read_header(folder)  # The error says which files are expected.
        weights = read_weights(header, [name for name, value in state.items() if not value.is_floating_point()])
        with reading(header.path, f"the weights of {kind.__name__}"):
            module.load_state_dict(weights)
    return module


def user_settings(module: nn.Module, _: object) -> dict[str, Any]:
    """The settings of a module of a class that a user has defined: its arguments, in the attribute ``config``."""
    kind = type(module)
    check_free("module", kind.__name__, kind, {**BUILT_IN, **REGISTERED})
    config: dict[str, Any] = getattr(module, "config", {})
    # Arguments with a default are required as well: the module may have been made with another value.
    for parameter in inspect.signature(kind).parameters.values():
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD) and parameter.name not in config:
            raise ValueError(
                f"{kind.__name__} cannot be saved without its argument {parameter.name!r};"
                " give it an attribute `config`, a dict of all the arguments it was made with"
            )
    return config


def _pooling_arguments(config: JsonObject) -> dict[str, Any]:
    names = config.field("pooling_mode", (str, list), None)
    if "pooling_strategy" in config:
        key = f"{config['pooling_strategy']} {config.get('activation_function', 'relu')}"
        names = next((mode for mode, activation in _SPLADE.items() if key == f"max {activation}"), key)
    if names is None:
        names = [mode for key, mode in POOLING_KEYS.items() if config.field(key, bool, None)]
    names = [names] if isinstance(names, str) else names or ["mean"]
    modes = [POOLING_NAMES.get(str(name), str(name)) for name in names]
    unknown = [mode for mode in modes if mode not in POOLINGS]
    if unknown:
        reason = f"gives the pooling mode {unknown[0]!r}, which is not one of {', '.join(POOLINGS)}"
        raise config.error(reason, f"import the code that defines it, with @register_pooling({unknown[0]!r})")
    return {"mode": modes, "include_prompt": config.field("include_prompt", bool, True)}


def _pooling_settings(module: Pooling, input_dims: Mapping[nn.Module, int]) -> dict[str, Any]:
    if module.is_sparse:
        prompt = {} if module.include_prompt else {"include_prompt": False}  # Which no other library has.
        return {"pooling_strategy": "max", "activation_function": _SPLADE[module.modes[0]], **prompt}
    # The flags express neither an order nor registered modes. The list is read since sentence-transformers 5.4.
    in_order_of_flags = [mode for mode in POOLING_KEYS.values() if mode in module.modes]
    foreign_names = {mode: name for name, mode in POOLING_NAMES.items()}
    modes = [foreign_names.get(mode, mode) for mode in module.modes]
    return {
        "word_embedding_dimension": input_dims[module],
        **{key: mode in module.modes for key, mode in POOLING_KEYS.items()},
        **({} if list(module.modes) == in_order_of_flags else {"pooling_mode": modes}),
        "include_prompt": module.include_prompt,
    }


def _dense_arguments(config: JsonObject) -> dict[str, Any]:
    for key in ("module_input_name", "module_output_name"):
        if config.field(key, str, "sentence_embedding") != "sentence_embedding":
            raise config.error(f"gives {key}={config[key]!r}, which is not supported", "use another model")
    activation = config.field("activation_function", str, "torch.nn.modules.activation.Tanh")
    name = activation.rpartition(".")[2]
    if not activation.startswith("torch.nn.modules.") or name not in DENSE_ACTIVATIONS:
        reason = f"names the activation {activation!r}, which is not one of {', '.join(DENSE_ACTIVATIONS)}"
        raise config.error(reason, "use another model")
    return {
        "in_features": config.dimension("in_features"),
        "out_features": config.dimension("out_features"),
        "bias": config.field("bias", bool, True),
        "activation": name,
        "residual": config.field("use_residual", bool, False),
    }


def _dense_settings(module: Dense, _: object) -> dict[str, Any]:
    activation = type(module.activation_function)
    return {
        "in_features": module.linear.in_features,
        "out_features": module.linear.out_features,
        "bias": module.linear.bias is not None,
        "activation_function": f"{activation.__module__}.{activation.__name__}",
        **({"use_residual": True} if module.use_residual else {}),
    }


def _dropout_arguments(config: JsonObject) -> dict[str, Any]:
    p = config.field("dropout", (int, float), 0.2)
    if not 0 <= p <= 1:
        raise config.error(f"gives dropout={p} where 0 to 1 is expected")
    return {"p": float(p)}


def _lstm_arguments(config: JsonObject) -> dict[str, Any]:
    key = "word_embedding_dimension" if "word_embedding_dimension" in config else "embedding_dimension"
    return {
        "in_features": config.dimension(key),
        "hidden": config.dimension("hidden_dim"),
        "layers": config.field("num_layers", int, 1),
        "dropout": float(config.field("dropout", (int, float), 0.0)),
        "bidirectional": config.field("bidirectional", bool, True),
    }


def _lstm_settings(module: LSTM, _: object) -> dict[str, Any]:
    return {
        "word_embedding_dimension": module.encoder.input_size,
        "hidden_dim": module.encoder.hidden_size,
        "num_layers": module.encoder.num_layers,
        "dropout": module.encoder.dropout,
        "bidirectional": module.encoder.bidirectional,
    }


def _norm_arguments(config: JsonObject) -> dict[str, Any]:
    return {"dim": config.dimension("dimension")}


def _read_static(folder: Path, options: ReadOptions) -> StaticEmbedding:
    from tokenizers import Tokenizer

    path = folder / "tokenizer.json"
    check_ids(path)
    with reading(path, "a tokenizer"):
        tokenizer = Tokenizer.from_file(str(path))
        tokens = tokenizer.get_vocab_size()
    header = read_header(folder)
    weights = read_weights(header, integers=("mapping",))
    table = weights.pop("embedding.weight", weights.pop("embeddings", None))
    if table is None or table.ndim != 2:
        raise UnreadableError(header.path, "contains no table of embeddings")
    mapping, scales = weights.pop("mapping", None), weights.pop("weights", None)  # Of model2vec, for each token.
    if mapping is not None and (mapping.ndim != 1 or len(mapping) > 2 * tokens):
        reason = f"contains a mapping of shape {tuple(mapping.shape)}, where at most {2 * tokens} tokens are expected"
        raise UnreadableError(header.path, reason)
    with reading(header.path, "a table of embeddings"):
        table = table if mapping is None else table[mapping.long()]  # (tokens, dim)
        table = table.to(options.dtype or torch.float32)
        table = table if scales is None else table * scales[:, None].to(table.dtype)
        if len(table) < tokens:
            raise UnreadableError(header.path, f"contains {len(table)} vectors for {tokens} tokens")
        module = StaticEmbedding(tokenizer, table)
    warn_of_unused(header.path, weights)
    return module


def _write_static(module: StaticEmbedding, folder: Path, _: object) -> None:
    # Other libraries apply the truncation in the file; this one does not.
    tokenizer = type(module.tokenizer).from_str(module.tokenizer.to_str())
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.save(str(folder / "tokenizer.json"))
    write_weights(module.state_dict(), folder)


def _read_sparse_static(folder: Path, _: ReadOptions) -> SparseStaticEmbedding:
    config, header, tokenizer = read_object(folder / "config.json"), read_header(folder), load_tokenizer(folder, {})
    weights = read_weights(header).get("weight")
    if weights is None or weights.shape != (len(tokenizer),):
        raise UnreadableError(header.path, f"contains no weights of {len(tokenizer)} words")
    return SparseStaticEmbedding(tokenizer, weights.float(), not config.field("frozen", bool, False))


def _write_sparse_static(module: SparseStaticEmbedding, folder: Path, _: object) -> None:
    with silence():
        module.tokenizer.save_pretrained(folder)
    write_json(folder / "config.json", {"frozen": not module.embedding.weight.requires_grad})
    write_weights({"weight": module.embedding.weight[:, 0]}, folder)


def _read_words(folder: Path, _: ReadOptions) -> WordEmbeddings:
    config, vocabulary = read_object(folder / WORDS_CONFIG), read_object(folder / WORDS_VOCABULARY)
    tokenizer = config.require("tokenizer_class", str)
    if tokenizer.rpartition(".")[2] != "WhitespaceTokenizer":
        raise config.error(f"names the tokenizer {tokenizer!r}, which is not supported", "use another model")
    words = vocabulary.require("vocab", list)
    stop_words = vocabulary.field("stop_words", list, [])
    if not all(isinstance(word, str) for word in [*words, *stop_words]):
        raise vocabulary.error("lists words that are not strings")
    header = read_header(folder)
    weights = read_weights(header)
    table = weights.pop("emb_layer.weight", None)
    if table is None or table.ndim != 2 or len(table) != len(words):
        raise UnreadableError(header.path, f"contains no table of {len(words)} word vectors")
    warn_of_unused(header.path, weights)
    return WordEmbeddings(
        words,
        table.float(),
        vocabulary.field("do_lower_case", bool, False),
        stop_words,
        config.field("max_seq_length", int, None),
        config.field("update_embeddings", bool, False),
    )


def _write_words(module: WordEmbeddings, folder: Path, _: object) -> None:
    config = {
        "tokenizer_class": f"{THEIRS}models.tokenizer.WhitespaceTokenizer.WhitespaceTokenizer",
        "update_embeddings": module.embedding.weight.requires_grad,
        "max_seq_length": module.max_seq_length or 1_000_000,
    }
    stop_words = sorted(module.stop_words)
    vocabulary = {"vocab": module.words, "stop_words": stop_words, "do_lower_case": module.lower_case}
    write_json(folder / WORDS_CONFIG, config)
    write_json(folder / WORDS_VOCABULARY, vocabulary)
    write_weights({"emb_layer.weight": module.embedding.weight}, folder)


LAYER_CODECS: dict[type[nn.Module], Codec] = {
    Pooling: make_codec(Pooling, _pooling_arguments, _pooling_settings),
    Dense: make_codec(Dense, _dense_arguments, _dense_settings),
    LayerNorm: make_codec(LayerNorm, _norm_arguments, lambda module, _: {"dimension": module.norm.normalized_shape[0]}),
    Dropout: make_codec(Dropout, _dropout_arguments, lambda module, _: {"dropout": module.p}),
    Normalize: Codec(lambda *_: Normalize(), lambda _, folder, __: write_json(folder / "config.json", {})),
    LSTM: make_codec(LSTM, _lstm_arguments, _lstm_settings, LSTM_CONFIG),
    StaticEmbedding: Codec(_read_static, _write_static),
    SparseStaticEmbedding: Codec(_read_sparse_static, _write_sparse_static),
    WordEmbeddings: Codec(_read_words, _write_words),
}
