"""Codecs of Pooling, Dense, LayerNorm, Dropout, Normalize and LSTM."""

from __future__ import annotations

from typing import Any

from torch import nn

from sbert.modules import LSTM, Dense, Dropout, LayerNorm, Normalize, Pooling
from sbert.modules.dense import ACTIVATIONS
from sbert.modules.pooling import POOLINGS
from sbert.saving.codecs.codec import Codec, make_codec
from sbert.saving.format import LSTM_CONFIG, POOLING_KEYS, POOLING_NAMES
from sbert.storage.files import JsonObject, write_json


def _pooling_arguments(config: JsonObject) -> dict[str, Any]:
    given = config.field("pooling_mode", (str, list), None)
    if given is None:
        given = [mode for key, mode in POOLING_KEYS.items() if config.field(key, bool, None)]
    names = [given] if isinstance(given, str) else given or ["mean"]
    modes = [POOLING_NAMES.get(str(name), str(name)) for name in names]
    unknown = [mode for mode in modes if mode not in POOLINGS]
    if unknown:
        reason = f"gives the pooling mode {unknown[0]!r}, which is not one of {', '.join(POOLINGS)}"
        raise config.error(reason, f"import the code that defines it, with @register_pooling({unknown[0]!r})")
    return {"mode": modes, "include_prompt": config.field("include_prompt", bool, True)}


def _pooling_settings(module: Pooling, input_dim: int) -> dict[str, Any]:
    # The flags express neither an order nor registered modes. The list is read since sentence-transformers 5.4.
    in_order_of_flags = [mode for mode in POOLING_KEYS.values() if mode in module.modes]
    foreign_names = {ours: theirs for theirs, ours in POOLING_NAMES.items()}
    modes = [foreign_names.get(mode, mode) for mode in module.modes]
    return {
        "word_embedding_dimension": input_dim,
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
    if not activation.startswith("torch.nn.modules.") or name not in ACTIVATIONS:
        reason = f"names the activation {activation!r}, which is not one of {', '.join(ACTIVATIONS)}"
        raise config.error(reason, "use another model")
    return {
        "in_features": config.dimension("in_features"),
        "out_features": config.dimension("out_features"),
        "bias": config.field("bias", bool, True),
        "activation": name,
        "residual": config.field("use_residual", bool, False),
    }


def _dense_settings(module: Dense, _: int) -> dict[str, Any]:
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


def _lstm_settings(module: LSTM, _: int) -> dict[str, Any]:
    return {
        "word_embedding_dimension": module.encoder.input_size,
        "hidden_dim": module.encoder.hidden_size,
        "num_layers": module.encoder.num_layers,
        "dropout": module.encoder.dropout,
        "bidirectional": module.encoder.bidirectional,
    }


def _norm_arguments(config: JsonObject) -> dict[str, Any]:
    return {"dim": config.dimension("dimension")}


CODECS: dict[type[nn.Module], Codec] = {
    Pooling: make_codec(Pooling, _pooling_arguments, _pooling_settings),
    Dense: make_codec(Dense, _dense_arguments, _dense_settings),
    LayerNorm: make_codec(LayerNorm, _norm_arguments, lambda module, _: {"dimension": module.norm.normalized_shape[0]}),
    Dropout: make_codec(Dropout, _dropout_arguments, lambda module, _: {"dropout": module.p}),
    Normalize: Codec(lambda *_: Normalize(), lambda _, folder, __: write_json(folder / "config.json", {})),
    LSTM: make_codec(LSTM, _lstm_arguments, _lstm_settings, LSTM_CONFIG),
}
